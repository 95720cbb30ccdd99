"""pyperf: `python script.py -o FILE`; values of several processes, started one after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tare.foreign import Benchmark, Found, Part, Positive, Tool, once
from tare.workloads import Statistic

_STATISTICS = {
    "second": (Statistic("time of a loop's turn"), 1e9),
    "byte": (Statistic("memory", "B"), 1.0),
    "integer": (Statistic("a number", "1"), 1.0),
}


class _Metadata(Part):
    name: str | None = None
    unit: Literal["second", "byte", "integer"] = "second"


class _Run(Part):
    values: tuple[Positive, ...] = ()
    """None of a process that only calibrated."""


class _Benchmark(Part):
    metadata: _Metadata = _Metadata()
    runs: tuple[_Run, ...]


class _File(Part):
    version: str
    metadata: Mapping[str, Any] = {}
    benchmarks: tuple[_Benchmark, ...] = Field(min_length=1)


_TOLD = ("cpu_model_name", "cpu_count", "hostname", "platform", "python_version", "aslr")


def _read(document: Any) -> Found:
    file = _File.model_validate(document)
    shared = _Metadata.model_validate(file.metadata)
    found = []
    for one in file.benchmarks:
        unit = one.metadata.unit if "unit" in one.metadata.model_fields_set else shared.unit
        statistic, factor = _STATISTICS[unit]
        restarts = [[value * factor for value in run.values] for run in one.runs if run.values]
        if restarts:
            name = one.metadata.name or shared.name or "benchmark"
            found.append((name, Benchmark(statistic, restarts)))
    told = {key: file.metadata[key] for key in _TOLD if key in file.metadata}
    return Found(once(found), told)


TOOL = Tool(
    "pyperf",
    "processes, each the mean of its values",
    "all processes of one benchmark run in a row, so that what changes over minutes (heat, a"
    " neighbour) falls on one benchmark",
    # pytest-benchmark has these too, and tells of its own commit.
    lambda document: (
        isinstance(document, dict)
        and {"benchmarks", "version"} <= document.keys()
        and "commit_info" not in document
    ),
    _read,
)
