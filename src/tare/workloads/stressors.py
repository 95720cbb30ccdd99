"""Well-known programs that compute or move memory for a while, and the rate that they report.

Each is a row: how it is called, and how its rate is read from what it prints. They run inside the
environment, one after another, each for the same time; what a machine does in a second of its own
wall clock is the rate, so that a processor that is taken away shows.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tare.errors import TrialError
from tare.workloads import Factor, Measurement, Statistic, Unit, Watching, choice, rows, unwatched

if TYPE_CHECKING:
    from pathlib import Path

    from tare.cell import Cell
    from tare.environments import Inside, Site

__all__ = ["SCORE", "Class", "Method", "Stressing", "stress_ng", "sysbench"]

SCORE = "score"
"""The statistic of a class: the geometric mean over its methods' rates."""

_START_SLACK_S = 60.0
"""To start, and for an operation that is under way when the time is over: some are long in a
guest."""
_START_S = 0.2
"""What a method costs beside its time: only for the plan's estimate."""


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
        return (
            "stress-ng", f"--{stressor}", str(workers), *options,
            "--timeout", str(seconds), "--metrics", "--yaml", "/proc/self/fd/1",
            "--temp-path", "/tmp",  # noqa: S108 - it only tries it
        )  # fmt: skip

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


class Stressing(rows.InEnvironment):
    """A workload of classes of methods; a trial runs every method of one class.

    Args:
        name: of the workload.
        classes: by name; the first is the default.
    """

    session_settings: Mapping[str, Factor] = {
        "seconds": rows.count("seconds", "1", "How long each method runs, in whole seconds.")
    }
    response_times = False

    def __init__(self, name: str, classes: Mapping[str, Class]) -> None:
        self.name = name
        self._classes = classes
        names = tuple(classes)
        declared = (
            rows.environment("Where the programs run"),
            choice("class", names, names[0], "What they do."),
            rows.count("workers", "1", "Processes that do it at once."),
            rows.PLACEMENT,
            *rows.GUEST,
        )
        self.factors: Mapping[str, Factor] = {row.name: row for row in declared}
        every = (item for kind in classes.values() for item in kind.methods.items())
        self.statistics: Mapping[str, Statistic] = {
            SCORE: Statistic("geometric mean of the class's rates; an index", "1/s", "higher"),
            **{method_name: method.statistic for method_name, method in every},
        }

    def subject(self, cell: Cell) -> str:
        """What sentences about a cell speak of."""
        return self._of(cell).subject

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:
        """Expected duration of a trial."""
        return len(self._of(cell).methods) * (int(session["seconds"]) + _START_S)

    def measure(
        self,
        cell: Cell,
        session: Mapping[str, Any],
        site: Site,  # noqa: ARG002 - nothing runs outside
        inside: Inside,
        samples: Path,  # noqa: ARG002 - a rate is all that a method tells
        watching: Watching = unwatched,  # noqa: ARG002 - nothing is counted
    ) -> Measurement:
        """Run every method of the class, one after another.

        Raises:
            TrialError: a program failed, or printed no rate.
        """
        methods = self._of(cell).methods
        workers, seconds = int(cell.levels["workers"]), int(session["seconds"])
        rates: dict[str, float] = {}
        for name, method in methods.items():
            said = inside.run(method.argv(workers, seconds), seconds + _START_SLACK_S)
            rates[name] = method.rate(said)
            if not (math.isfinite(rates[name]) and rates[name] > 0):
                raise TrialError(f"{name} did nothing within {seconds} s")
        score = statistics.geometric_mean(rates.values())
        commands = {name: " ".join(m.argv(workers, seconds)) for name, m in methods.items()}
        return Measurement(values={SCORE: score, **rates}, settings=commands)

    def _of(self, cell: Cell) -> Class:
        return self._classes[cell.levels["class"]]


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
