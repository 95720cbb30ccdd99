"""JMH: `java -jar benchmarks.jar -rf json -rff FILE`; iterations within forked virtual machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tare.errors import UsageError
from tare.foreign import Benchmark, Found, NotNegative, Part, Positive, Tool, once
from tare.workloads import Statistic

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "hr": 3600e9, "day": 86_400e9}
_UNIT = re.compile(r"ops/(?P<rate>\w+)|(?P<time>\w+)/op")
_Count = Annotated[int, Field(ge=1)]


class _Metric(Part):
    scoreUnit: str  # noqa: N815 - theirs
    rawData: tuple[tuple[Positive, ...], ...] = ()  # noqa: N815 - likewise
    """Of each fork, a value an iteration."""
    rawDataHistogram: tuple[tuple[tuple[tuple[NotNegative, _Count], ...], ...], ...] = ()  # noqa: N815
    """In the mode that samples, instead: of each fork and iteration, values and how often."""


class _Entry(Part):
    benchmark: str
    mode: Literal["thrpt", "avgt", "sample", "ss"]
    forks: int
    params: Mapping[str, str] = {}
    primaryMetric: _Metric  # noqa: N815 - likewise
    jdkVersion: str | None = None  # noqa: N815
    vmName: str | None = None  # noqa: N815
    vmVersion: str | None = None  # noqa: N815
    jvmArgs: tuple[str, ...] = ()  # noqa: N815


class _File(Part):
    entries: tuple[_Entry, ...]


def _read(document: Any) -> Found:
    entries = _File.model_validate({"entries": document}).entries
    notes = [
        f"{entry.benchmark} ran in JMH's own process (-f 0)" for entry in entries if not entry.forks
    ]
    first = entries[0] if entries else None
    keys = ("jdkVersion", "vmName", "vmVersion", "jvmArgs") if first else ()
    told = {key: getattr(first, key) for key in keys}
    return Found(once([(_name(entry), _benchmark(entry)) for entry in entries]), told, notes)


def _name(entry: _Entry) -> str:
    params = [f"{name}={value}" for name, value in entry.params.items()]
    return " ".join([entry.benchmark, *params, entry.mode])


def _benchmark(entry: _Entry) -> Benchmark:
    metric = entry.primaryMetric
    forks = [list(fork) for fork in metric.rawData] or [
        [sum(v * n for v, n in samples) / sum(n for _, n in samples) for samples in fork if samples]
        for fork in metric.rawDataHistogram
    ]
    if not any(forks):
        raise UsageError(f"{entry.benchmark} has no iteration", "let JMH write it again")
    if not all(value for fork in forks for value in fork):
        raise UsageError(
            f"{entry.benchmark} is shorter than the clock's tick", "measure it in the mode avgt"
        )
    found = _UNIT.fullmatch(metric.scoreUnit)
    unit = found and (found["rate"] or found["time"])
    if found is None or unit not in _NS:
        raise UsageError(
            f"{entry.benchmark} is in {metric.scoreUnit!r}, which is neither operations a time nor"
            " time an operation",
            "let JMH report in one of its own units (-tu)",
        )
    if found["rate"]:
        per_s = 1e9 / _NS[unit]
        statistic = Statistic("operations a second", "1/s", "higher")
        return Benchmark(statistic, [[value * per_s for value in fork] for fork in forks if fork])
    statistic = Statistic("time of an operation")
    return Benchmark(statistic, [[value * _NS[unit] for value in fork] for fork in forks if fork])


TOOL = Tool(
    "JMH",
    "forks, each the mean of its iterations",
    "all forks of one benchmark run in a row, so that what changes over minutes (heat, a neighbour)"
    " falls on one benchmark",
    lambda document: (
        isinstance(document, list)
        and any(isinstance(entry, dict) and "jmhVersion" in entry for entry in document)
    ),
    _read,
)
