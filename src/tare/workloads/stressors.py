"""Well-known programs that compute or move memory for a while, and the rate that they report.

Each is a row: how it is called, and how its rate is read from what it prints. They run inside the
environment, one after another, each for the same time; what a machine does in a second of its own
wall clock is the rate, so that a processor that is taken away shows. `concurrent`: a process of the
host does the same beside the environment, and only what both did at once counts (`at_once.py`).
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tare import environments, packages
from tare.errors import TrialError
from tare.levels import Factor, Settings, among, choice
from tare.packages import PROGRAMS
from tare.published.beside import Beside
from tare.stats.fairness import jain_index
from tare.stress_ng import stress_ng_argv
from tare.workloads import Bench, Measurement, Statistic, Unit, papers, rows
from tare.workloads.at_once import LEAST_RUNS, Counted, at_once
from tare.workloads.findings import Findings

SCORE = "score"
"""The statistic of a class: the geometric mean over its methods' rates."""
HOST = "host-"
"""Before the name of a statistic: the same of the host's process beside the environment."""

_START_SLACK_S = 60.0
"""To start, and for an operation that is under way when the time is over: some are long in a
guest."""
_START_S = 0.2
"""What a method costs beside its time: only for the plan's estimate."""
_MEETING_S = 1.0
"""What it costs to bring two sides together, likewise."""


@dataclass(frozen=True)
class Method:
    """One program at work.

    Attributes:
        argv: (workers, seconds) -> what is run.
        rate: what it printed -> operations (or bytes) a second of all its workers together.
        what: what it does, for the statistic's help.
        unit: of its rate.
    """

    argv: Callable[[int, int], tuple[str, ...]]
    rate: Callable[[str], float]
    what: str
    unit: Unit = "1/s"

    @property
    def statistic(self) -> Statistic:
        """The row of the statistic that this method is."""
        return Statistic(self.what, self.unit, "higher")


def stress_ng(what: str, stressor: str, *options: str) -> Method:
    """A stressor of stress-ng.

    Args:
        what: what it does.
        stressor: its name, such as "cpu".
        options: of the stressor, such as "--cpu-method", "int64".
    """

    def argv(workers: int, seconds: int) -> tuple[str, ...]:
        told = ("--metrics", "--yaml", "/proc/self/fd/1")
        return stress_ng_argv(stressor, workers, seconds, *options, *told)

    return Method(argv, _bogo_rate, what)


def sysbench(what: str, test: str, *options: str, unit: Unit) -> Method:
    """A test of sysbench, `cpu` or `memory`."""

    def argv(workers: int, seconds: int) -> tuple[str, ...]:
        limits = (f"--threads={workers}", f"--time={seconds}", "--events=0")
        return ("sysbench", test, *options, *limits, "run")

    return Method(argv, _bytes_rate if unit == "B/s" else _event_rate, what, unit)


@dataclass(frozen=True)
class Class:
    """Methods that stand for one kind of work.

    Attributes:
        subject: what sentences in the report speak of.
        methods: by the names of their statistics.
    """

    subject: str
    methods: Mapping[str, Method]


class StressLevels(rows.Placed):
    """The factors of such a workload."""

    environment = rows.environment("Where the programs run")
    class_: Factor[Class] = among({}, "", "What they do; each workload has its own.")
    workers = rows.count("1", "Processes that do it at once.", most=4096)
    mode = choice(
        ("alone", "concurrent"),
        "alone",
        "Whether they run in the environment alone, or on the host beside it too, at once.",
    )


class StressSettings(Settings):
    """What its sessions share."""

    seconds = rows.count("1", "How long each method runs, in whole seconds.", most=86_400)


class StressBench(Bench[StressLevels, StressSettings]):
    """The environment, and the host beside it."""

    def measure(self, levels: StressLevels) -> Measurement:
        """Run every method of the class, one after another.

        Raises:
            TrialError: a program failed, or printed no rate.
        """
        methods, seconds = levels.class_.methods, self.settings.seconds
        together = levels.mode == "concurrent"
        rates: dict[str, float] = {}
        overlaps: dict[str, Mapping[str, float]] = {}
        for name, method in methods.items():
            argv, timeout_s = method.argv(levels.workers, seconds), seconds + _START_SLACK_S
            if together:
                found = at_once(argv, timeout_s, self.site, self.inside)
                rates |= {name: _mean(method, found.guest), HOST + name: _mean(method, found.host)}
                overlaps[name] = _overlap(found, seconds)
            else:
                rates[name] = method.rate(self.inside.run(argv, timeout_s))
        for name, rate in rates.items():
            if not (math.isfinite(rate) and rate > 0):
                raise TrialError(f"{name} did nothing within {seconds} s")
        values = {SCORE: _score(rates, methods), **rates}
        settings: dict[str, Any] = {
            n: " ".join(m.argv(levels.workers, seconds)) for n, m in methods.items()
        }
        if together:
            host = _score(rates, [HOST + name for name in methods])
            shares = (host, values[SCORE])
            values |= {HOST + SCORE: host, "sum": sum(shares), "jain": jain_index(shares)}
            settings["overlap"] = overlaps
        return Measurement(values=values, settings=settings)


class Stressing(rows.InEnvironment[StressLevels, StressSettings]):
    """A workload of classes of methods; a trial runs every method of one class.

    Args:
        name: of the workload.
        classes: by name; the first is the default.
    """

    settings = StressSettings
    bench = StressBench
    response_times = False

    def __init__(self, name: str, classes: Mapping[str, Class]) -> None:
        class OwnLevels(StressLevels):
            environment = StressLevels.environment
            class_ = among(classes, next(iter(classes)), "What they do.")

        self.name = name
        self.classes = classes
        self.levels = OwnLevels
        every = [item for kind in classes.values() for item in kind.methods.items()]
        each = {name: method.statistic for name, method in every}
        score = Statistic("geometric mean of the class's rates; an index", "1/s", "higher")
        self.statistics: Mapping[str, Statistic] = {
            SCORE: score,
            HOST + SCORE: replace(score, help="score of the host beside it"),
            "sum": Statistic("the scores of host and guest, at once, added", "1/s", "higher"),
            "jain": Statistic(
                "Jain's index of the two scores: 1 is even, 0.5 one has all", "1", "higher"
            ),
            **each,
            **{
                HOST + name: replace(row, help=f"{name} of the host beside it")
                for name, row in each.items()
            },
        }

    def subject(self, levels: StressLevels) -> str:
        """What sentences about a cell speak of."""
        return levels.class_.subject

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """The paper's ratios of guest and host."""
        return papers.b.scores(found)

    def lacking(self, levels: StressLevels, settings: StressSettings, programs: Path) -> str | None:
        """What computes; and a host of ours beside what is on another machine."""
        if levels.mode == "concurrent" and environments.is_far(levels.environment):
            return (
                "no host of ours is beside an environment on another machine. Take `mode: alone`"
                " there, or run Tare on that machine"
            )
        return super().lacking(levels, settings, programs) or packages.lacking(PROGRAMS[self.name])

    def machine(self, levels: StressLevels) -> environments.Machine | None:
        """Alone, where no host of ours does the same beside it."""
        return environments.machine(levels.environment) if levels.mode == "alone" else None

    def seconds(self, levels: StressLevels, settings: StressSettings) -> float:
        """Expected duration of a trial."""
        methods, seconds = len(levels.class_.methods), settings.seconds
        if levels.mode == "alone":
            return methods * (seconds + _START_S)
        # Two start at once. Who has enough goes on until the other has, and to its run's end.
        return methods * ((LEAST_RUNS + 1) * (seconds + 2 * _START_S) + _MEETING_S)


def _score(rates: Mapping[str, float], names: Iterable[str]) -> float:
    return statistics.geometric_mean(rates[name] for name in names)


def _mean(method: Method, outputs: Sequence[str]) -> float:
    """Of runs of the same length, the rate over all of them."""
    return statistics.fmean(method.rate(said) for said in outputs)


def _overlap(found: Counted, seconds: int) -> Mapping[str, float]:
    """What a reader needs to judge an overlap; `at work` is a share of the side's time."""
    return {
        "seconds": round(found.seconds, 3),
        "runs of the host": len(found.host),
        "runs of the guest": len(found.guest),
        "host at work": round(seconds / found.host_cycle_s, 2),
        "guest at work": round(seconds / found.guest_cycle_s, 2),
    }


def _bogo_rate(said: str) -> float:
    return _number(r"^\s*bogo-ops-per-second-real-time:\s*([0-9.]+)\s*$", said, "stress-ng")


def _event_rate(said: str) -> float:
    return _number(r"^\s*events per second:\s*([0-9.]+)\s*$", said, "sysbench")


def _bytes_rate(said: str) -> float:
    mebibytes = _number(r"transferred \(([0-9.]+) MiB/sec\)\s*$", said, "sysbench")
    return mebibytes * (1 << 20)


def _number(pattern: str, said: str, program: str) -> float:
    found: Sequence[str] = re.findall(pattern, said, re.MULTILINE)
    try:
        return float(found[-1])
    except (IndexError, ValueError) as error:
        raise TrialError(f"{program} printed no rate; it ended: {said[-300:]!r}") from error
