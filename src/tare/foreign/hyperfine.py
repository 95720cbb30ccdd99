"""hyperfine: `hyperfine --export-json FILE`; a value is the wall time of an execution."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tare.foreign import Benchmark, Found, Part, Positive, Tool, once
from tare.workloads import Statistic

_TIME = Statistic("wall time of an execution")


class _Result(Part):
    command: str
    times: tuple[Positive, ...] = Field(min_length=1)
    """Seconds."""
    exit_codes: tuple[int | None, ...] = ()


class _File(Part):
    results: tuple[_Result, ...]


def _read(document: Any) -> Found:
    results = _File.model_validate(document).results
    failed = {r.command: sum(code != 0 for code in r.exit_codes) for r in results}
    return Found(
        once([(r.command, Benchmark(_TIME, [[t * 1e9] for t in r.times])) for r in results]),
        {},
        [f"{n} executions of {name} did not end with 0" for name, n in failed.items() if n],
    )


TOOL = Tool(
    "hyperfine",
    "executions, each a process of its own",
    "all executions of one command run in a row, so that what changes over minutes (heat, a"
    " neighbour) falls on one command",
    lambda document: isinstance(document, dict) and "results" in document,
    _read,
)
