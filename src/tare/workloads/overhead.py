"""The overhead vector of an environment: what elementary operations cost in it, and it itself.

Unit costs are `probe`'s, each the median over batches of their means. Starting is measured on a
second one of its kind, entered beside the first, so that images are packed and caches warm: what it
takes every time, until a first program has run in it.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

from tare import environments
from tare.environments import Inside
from tare.errors import TrialError
from tare.levels import Settings
from tare.workloads import Bench, Measurement, Statistic, rows

_TIMEOUT_S = 120.0
_IDLE = ("sh", "-c", "sleep 120 & echo '{}'; wait")
"""A shell, whose peak has been reached when it tells that all of it has started."""
_MOST_OF_CLOCK = 0.01
"""A cost of which the probe's own clock is a larger share is refused."""
_FEW = ("--batches", "10", "--operations", "500")
_UNITS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "system-call": ("a null system call", ("syscall", "--batches", "10")),
    "context-switch": (
        "a switch between two running threads, sched_yield included",
        ("context-switch", *_FEW),
    ),
    "wake-thread": (
        "waking a thread on the same processor, and its return",
        ("wakeup", "--kind", "thread", *_FEW),
    ),
    "wake-process": (
        "waking another process on the same processor, and its return",
        ("wakeup", "--kind", "process", *_FEW),
    ),
    "page-fault": ("the first touch of a page", ("page-fault", *_FEW)),
    "clock-read": (
        "reading CLOCK_MONOTONIC",
        ("clock", "--batches", "10", "--operations", "1000"),
    ),
    "timer-late": (
        "how late a sleep until an absolute time ends",
        ("timer", "--batches", "10", "--operations", "20"),
    ),
    "integer-step": (
        "a step of a chain of integer operations",
        ("integer", "--batches", "10"),
    ),
    "floating-point-step": (
        "a step of a chain of floating-point operations",
        ("floating-point", "--batches", "10"),
    ),
}
"""Statistic -> what it is, and the probe's arguments."""


class OverheadLevels(rows.Placed):
    """The factors of `overhead`."""

    environment = rows.environment("What costs")


class OverheadBench(Bench[OverheadLevels, Settings]):
    """An environment, and beside it a second one."""

    def measure(self, levels: OverheadLevels) -> Measurement:
        """Run every probe, then set up a second environment.

        Raises:
            TrialError: a probe failed, or the environment did not start.
        """
        values: dict[str, float] = {}
        shares: dict[str, float] = {}
        refused: list[str] = []
        for name, (_, argv) in _UNITS.items():
            cost, share = _cost(name, self.inside.run(("probe/probe", *argv), _TIMEOUT_S))
            if share < _MOST_OF_CLOCK:
                values[name], shares[name] = cost, share
            else:
                refused.append(name)
        began = time.monotonic_ns()
        with environments.for_plot(levels).enter(self.site) as second:
            second.run(("uname", "-r"), _TIMEOUT_S)
            values["start"] = float(time.monotonic_ns() - began)
            footprint = _footprint(second)
        if footprint:
            values["footprint"] = float(footprint)
        return Measurement(values=values, settings={"clock's share": shares, "refused": refused})


class Overhead(rows.InEnvironment[OverheadLevels, Settings]):
    """The workload `overhead`."""

    name = "overhead"
    levels = OverheadLevels
    settings = Settings
    bench = OverheadBench
    statistics: Mapping[str, Statistic] = {
        **{name: Statistic(what) for name, (what, _) in _UNITS.items()},
        "start": Statistic("from nothing until a first program has run inside"),
        "footprint": Statistic(
            "peak resident memory on the host of what runs an idle program: of the program itself,"
            " or of the guest around it",
            "B",
        ),
    }
    response_times = False

    def subject(self, levels: OverheadLevels) -> str:
        """What sentences about a cell speak of."""
        return "An elementary operation"

    def lacking(self, levels: OverheadLevels, settings: Settings, programs: Path) -> str | None:
        """The probe."""
        return super().lacking(levels, settings, programs) or rows.unbuilt(programs / "probe/probe")

    def seconds(self, levels: OverheadLevels, settings: Settings) -> float:
        """Expected duration of a trial: the probes, and one more setting up."""
        return 2.0 + environments.row(levels.environment).setup_s


WORKLOAD = Overhead()


def _footprint(inside: Inside) -> int | None:
    """Peak memory of what runs an idle program, once that has started."""
    with inside.start(_IDLE) as idle:
        idle.event(_TIMEOUT_S)
        return idle.account().peak_memory_bytes


def _cost(name: str, said: str) -> tuple[float, float]:
    """Return an operation's cost in ns, and the share of it that is the probe's own clock."""
    try:
        line = json.loads(said)
        found = statistics.median(float(batch) for batch in line["batches"])
        clock = float(line["clock_overhead_ns"]) / float(line["operations_per_batch"])
    except (
        ValueError,
        KeyError,
        TypeError,
        ZeroDivisionError,
        statistics.StatisticsError,
    ) as error:
        raise TrialError(f"the probe of {name} printed no batches: {said[-200:]!r}") from error
    if not (math.isfinite(found) and found > 0):
        raise TrialError(f"the probe of {name} found a time that cannot be: {found}")
    return found, clock / found
