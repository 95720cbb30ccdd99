"""Google Benchmark: `--benchmark_out=FILE --benchmark_out_format=json`; real times, one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tare import units
from tare.errors import UsageError
from tare.foreign import Benchmark, Format, Found, Part, Positive, Tool, json_text
from tare.outcome import CellOutcome, Outcome
from tare.record import Trial
from tare.workloads import Statistic

_TIME = Statistic("real time of an iteration")


class _Entry(Part):
    name: str
    run_name: str | None = None
    aggregate_name: str | None = None
    run_type: str = "iteration"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    """Since 1.8, of what skipped itself; its times are zeros."""
    skip_message: str = ""


class _Iteration(_Entry):
    real_time: Positive
    time_unit: Literal["ns", "us", "ms", "s"]


class _File(Part):
    context: dict[str, Any]
    benchmarks: tuple[dict[str, Any], ...]


def _read(document: Any) -> Found:
    file = _File.model_validate(document)
    values: dict[str, list[float]] = {}
    aggregated: dict[str, str] = {}
    failed: set[str] = set()
    notes = []
    for entry in file.benchmarks:
        head = _Entry.model_validate(entry)
        name = head.run_name or head.name
        if head.error_occurred:
            failed.add(name)
            notes.append(f"{head.name} failed: {head.error_message or 'it does not say why'}")
        elif head.skipped:
            notes.append(f"{head.name} was skipped: {head.skip_message or 'it does not say why'}")
        elif head.aggregate_name == "mean":
            aggregated[name] = f"{name} has aggregates alone, of ReportAggregatesOnly"
        elif head.run_type == "iteration":
            measured = _Iteration.model_validate(entry)
            time = measured.real_time * units.scale(measured.time_unit)[1]
            values.setdefault(name, []).append(time)
    if file.benchmarks and not values and not notes:
        raise UsageError(
            "it holds aggregates alone", "run without --benchmark_report_aggregates_only"
        )
    notes += [note for name, note in aggregated.items() if name not in values]
    told = ("run_machine", "host_name", "num_cpus", "cpu_scaling_enabled", "library_build_type")
    return Found(
        {name: Benchmark(_TIME, [found], name in failed) for name, found in values.items()},
        {key: file.context[key] for key in told if key in file.context},
        list(dict.fromkeys(notes)),  # of all repetitions
    )


def _refuse(name: str, statistic: Statistic) -> None:
    if statistic.unit != "ns":
        raise UsageError(
            f"a file of Google Benchmark's holds times, and {name} is in {statistic.unit}",
            "add --statistic with one that is a time, or take --format bencher or openmetrics",
        )


def _write(told: Outcome) -> str:
    ((name, statistic),) = told.statistics.items()
    _refuse(name, statistic)
    context = {
        "date": f"{told.run.began.isoformat(timespec='seconds')}+00:00",
        "executable": "tare",
        "json_schema_version": 1,
        "run": told.run.id,
        "run_title": told.run.title,
        "run_machine": told.run.machine,
        "run_machine_words": told.run.machine_words,
        "run_commit": told.run.commit,
    }
    entries = [e for i, cell in enumerate(told.cells) for e in _entries(cell, name, i)]
    return json_text({"context": context, "benchmarks": entries})


def _entries(cell: CellOutcome, statistic: str, family: int) -> Iterator[dict[str, Any]]:
    """A repetition a session, then the aggregates, which are arithmetic and know no blocks."""
    sessions = cell.sessions[statistic]
    name = f"{cell.name}/{statistic}"
    head = {"family_index": family, "per_family_instance_index": 0, "run_name": name}
    cpu = [_cpu(trial) for trial, _ in sessions]
    known = [ns for ns in cpu if ns is not None]
    times = {"real_time": np.array([value for _, value in sessions])}
    if len(known) == len(cpu):
        times["cpu_time"] = np.array(known)
    for i, (trial, _) in enumerate(sessions):
        yield {
            "name": name,
            **head,
            "run_type": "iteration",
            "repetitions": len(sessions),
            "repetition_index": i,
            "threads": 1,
            "iterations": _iterations(trial),
            **{key: found[i] for key, found in times.items()},
            "time_unit": "ns",
        }
    for aggregate, of in _AGGREGATES.items() if len(sessions) > 1 else ():
        yield {
            "name": f"{name}_{aggregate}",
            **head,
            "run_type": "aggregate",
            "repetitions": len(sessions),
            "threads": 1,
            "aggregate_name": aggregate,
            "aggregate_unit": "percentage" if aggregate == "cv" else "time",
            "iterations": len(sessions),
            **{key: float(of(found)) for key, found in times.items()},
            "time_unit": "ns",
        }


def _cpu(trial: Trial) -> float | None:
    """Of an execution of a command, which alone tells it; it is never both zero and known."""
    return sum(trial.values.get(name, 0.0) for name in ("user", "system")) or None


def _iterations(trial: Trial) -> int:
    """Executions, or replies; one where a session is one number."""
    return trial.counters.get("executions") or trial.counters.get("received") or 1


_Times = npt.NDArray[np.float64]
_AGGREGATES: Mapping[str, Callable[[_Times], float]] = {
    "mean": np.mean,
    "median": np.median,
    "stddev": lambda times: times.std(ddof=1),
    "cv": lambda times: times.std(ddof=1) / times.mean(),
}

FORMAT = Format("google-benchmark", _write, single=True, refuse=_refuse)
TOOL = Tool(
    "Google Benchmark",
    "repetitions within one process",
    "all repetitions run in one process, which is never started anew: where its memory and code"
    " came to lie is in all of them alike, and may be all that differs",
    lambda document: isinstance(document, dict) and {"context", "benchmarks"} <= document.keys(),
    _read,
)
