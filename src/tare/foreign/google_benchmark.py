"""Google Benchmark: `--benchmark_out=FILE --benchmark_out_format=json`; real times, one process."""

from __future__ import annotations

from typing import Any, Literal

from tare import units
from tare.errors import UsageError
from tare.foreign import Benchmark, Found, Part, Positive, Tool
from tare.workloads import Statistic

_TIME = Statistic("real time of an iteration")


class _Entry(Part):
    name: str
    run_name: str | None = None
    run_type: str = "iteration"
    error_occurred: bool = False
    error_message: str = ""


class _Iteration(_Entry):
    real_time: Positive
    time_unit: Literal["ns", "us", "ms", "s"]


class _File(Part):
    context: dict[str, Any]
    benchmarks: tuple[dict[str, Any], ...]


def _read(document: Any) -> Found:
    file = _File.model_validate(document)
    values: dict[str, list[float]] = {}
    notes = []
    for entry in file.benchmarks:
        head = _Entry.model_validate(entry)
        if head.error_occurred:
            notes.append(f"{head.name} failed: {head.error_message or 'it does not say why'}")
        elif head.run_type == "iteration":
            measured = _Iteration.model_validate(entry)
            time = measured.real_time * units.scale(measured.time_unit)[1]
            values.setdefault(head.run_name or head.name, []).append(time)
    if file.benchmarks and not values and not notes:
        raise UsageError(
            "it holds aggregates alone", "run without --benchmark_report_aggregates_only"
        )
    told = ("host_name", "num_cpus", "cpu_scaling_enabled", "library_build_type")
    return Found(
        {name: Benchmark(_TIME, [found]) for name, found in values.items()},
        {key: file.context[key] for key in told if key in file.context},
        notes,
    )


TOOL = Tool(
    "Google Benchmark",
    "repetitions within one process",
    "all repetitions run in one process, which is never started anew: where its memory and code"
    " came to lie is in all of them alike, and may be all that differs",
    lambda document: isinstance(document, dict) and {"context", "benchmarks"} <= document.keys(),
    _read,
)
