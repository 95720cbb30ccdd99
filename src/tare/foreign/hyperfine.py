"""hyperfine: `hyperfine --export-json FILE`; a value is the wall time of an execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from tare.errors import UsageError
from tare.foreign import Benchmark, Format, Found, NotNegative, Part, Tool, json_text, once
from tare.outcome import CellOutcome, Outcome
from tare.record import Trial
from tare.workloads import Statistic

_TIME = Statistic("wall time of an execution")


class _Result(Part):
    command: str
    times: tuple[NotNegative, ...] = Field(min_length=1)
    """Seconds; zero where it took less than the shell that hyperfine takes off."""
    exit_codes: tuple[int | None, ...] = ()


class _File(Part):
    results: tuple[_Result, ...]


def _read(document: Any) -> Found:
    results = _File.model_validate(document).results
    notes = []
    found = []
    for result in results:
        name = result.command
        if failed := sum(code != 0 for code in result.exit_codes):
            notes.append(f"{failed} executions of {name} did not end with 0")
        if all(result.times):
            times = [[time * 1e9] for time in result.times]
            found.append((name, Benchmark(_TIME, times, bool(failed))))
        else:
            notes.append(f"{name} took less than the shell around it: run hyperfine with -N")
    return Found(once(found), {}, notes)


def _write(told: Outcome) -> str:
    if told.workload != "command" or "wall" not in told.statistics:
        what = "another statistic" if told.workload == "command" else told.workload
        raise UsageError(
            f"a file of hyperfine's holds wall times of a command's executions, and not {what}",
            "take --format google-benchmark, bencher, openmetrics or csv",
        )
    exit_code = int(told.settings.get("expect_exit", "0"))
    return json_text({"results": [_result(cell, exit_code) for cell in told.cells]})


def _result(cell: CellOutcome, exit_code: int) -> dict[str, Any]:
    """As it would be of all executions in a row: which session each is of, it cannot say."""
    trials = [trial for trial, _ in cell.sessions["wall"]]
    times = np.array([ns for trial in trials for ns in trial.settings["wall_ns"]]) / 1e9
    return {
        "command": cell.name,
        "mean": times.mean(),
        "stddev": times.std(ddof=1) if times.size > 1 else None,
        "median": float(np.median(times)),
        "user": _mean(trials, "user"),
        "system": _mean(trials, "system"),
        "min": times.min(),
        "max": times.max(),
        "times": times.tolist(),
        "exit_codes": [exit_code] * times.size,
        "parameters": dict(cell.levels),
    }


def _mean(trials: Sequence[Trial], statistic: str) -> float | None:
    """Over executions, in s, of a mean a session: zero where it is absent, if any has it."""
    found = [trial.values.get(statistic, 0.0) / 1e9 for trial in trials]
    weights = [len(trial.settings["wall_ns"]) for trial in trials]
    return float(np.average(found, weights=weights)) if any(found) else None


FORMAT = Format("hyperfine", _write)
TOOL = Tool(
    "hyperfine",
    "executions, each a process of its own",
    "all executions of one command run in a row, so that what changes over minutes (heat, a"
    " neighbour) falls on one command",
    lambda document: isinstance(document, dict) and "results" in document,
    _read,
)
