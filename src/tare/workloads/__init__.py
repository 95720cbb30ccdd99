"""What is measured: one file a workload, which it offers as `WORKLOAD`.

A workload declares its factors and measures one trial.

A setting is one row: name, parser, default, help. The experiment file is validated against these
rows, and the JSON Schema that editors use is exported from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tare import discovery
from tare.accounting import Account
from tare.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tare.cell import Cell
    from tare.environments import Environment, Inside, Site
    from tare.placement import Placement


@dataclass(frozen=True)
class Factor:
    """One factor of a workload.

    Attributes:
        parse: text of a level -> the level as the workload wants it; raises UsageError.
        show: the level as every table prints it, so that `100us` and `0.1 ms` are one level.
        choices: the allowed levels, where they can be listed.
    """

    name: str
    parse: Callable[[object], Any]
    show: Callable[[Any], str]
    default: str
    help: str
    choices: tuple[str, ...] | None = None
    examples: tuple[str, ...] = ()

    def level(self, written: object) -> str:
        """The canonical text of a level; the one form that records and tables hold."""
        return self.show(self.parse(written))


Watching = Callable[["Account", "Account"], AbstractContextManager[None]]
"""Looks on while a session is measured: (client's account, server's account) -> context."""


def unwatched(_client: Account, _server: Account) -> AbstractContextManager[None]:
    """Look away: measuring sessions carry no tracer."""
    return nullcontext()


def choice(name: str, choices: tuple[str, ...], default: str, help: str) -> Factor:  # noqa: A002
    """A factor whose levels are words."""

    def parse(written: object) -> str:
        if written not in choices:
            raise UsageError(f"{written!r} is not one of {', '.join(choices)}")
        return str(written)

    return Factor(name, parse, str, default, help, choices)


Unit = Literal["ns", "B", "B/s", "1/s", "1"]
"""Of a statistic: times in ns, sizes in bytes, rates a second, plain numbers."""


@dataclass(frozen=True)
class Statistic:
    """One number that a session is summarised by, and that sessions are compared by."""

    help: str
    unit: Unit = "ns"
    better: Literal["lower", "higher"] = "lower"


@dataclass(frozen=True)
class Measurement:
    """What a workload returns of one trial, beside the raw samples that it may have written."""

    values: Mapping[str, float] = field(default_factory=dict)
    """Statistic -> this trial's value, positive and finite. Statistics of raw samples are computed
    from the samples and do not stand here."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What was counted and may be zero. Of requests: sent, received, lost, duplicated, reordered,
    corrupted; late: after they counted as lost."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What the programs said of themselves: quality of service, transport options, versions."""
    client: Account = field(default_factory=Account)
    server: Account = field(default_factory=Account)
    duration_ns: int | None = None
    """Of the measured part, where there is one."""


@dataclass(frozen=True)
class Room:
    """Disk that a trial takes."""

    kept_bytes: int = 0
    """At most, in the result."""
    scratch_bytes: int = 0
    """Among temporary files, while it runs."""


class Workload(Protocol):
    """A kind of measurement."""

    name: str
    factors: Mapping[str, Factor]
    plot_factors: frozenset[str]
    """Factors that need an environment to be set up anew; they define the whole plot."""
    session_settings: Mapping[str, Factor]
    """Settings that every session of an experiment shares: requests, warm-up, timeout."""
    statistics: Mapping[str, Statistic]
    """Name -> the scalars that a session can be summarised by, e.g. p50; the first is the one that
    is judged where an experiment declares none."""
    programs: tuple[str, ...]
    """Patterns of the programs that it runs, below the build directory or beside it; the instrument
    itself apart. A run goes on while these are what they were."""
    response_times: bool
    """Whether a session is a series of response times, written as samples: its statistics are
    computed from them, and it can be asked for deadlines, and for what its operations cost. The
    trials of other workloads hold values instead."""

    def subject(self, cell: Cell) -> str:
        """What sentences about a cell speak of, such as "A response through UDP"."""
        ...

    def applicable(self, levels: Mapping[str, str]) -> frozenset[str]:
        """Names of the factors that mean something for a cell with these levels.

        A factor that does not apply is left out of the cell, so that cells that differ in it
        alone are one cell (ICMP knows no reception mode).
        """
        ...

    def refused(
        self, levels: Mapping[str, str], asked: Mapping[str, Sequence[str]]
    ) -> tuple[str, str] | None:
        """Say why no cell can be what these levels ask for together, wherever it is run.

        Args:
            levels: one of every factor.
            asked: all the levels of every factor.

        Returns:
            The factor that has to change, and a sentence on its level; None where all is well.
        """
        ...

    def link_rate(self, plot: Mapping[str, str]) -> int | None:
        """Rate of the wire that a plot asks for, bits a second; None without a limit."""
        ...

    def environment(self, plot: Mapping[str, str]) -> Environment:
        """Where a plot is measured."""
        ...

    def placement(self, plot: Mapping[str, str]) -> Placement:
        """Processors and priority that a plot asks for.

        Raises:
            UnavailableError: this machine does not offer them.
        """
        ...

    def setup_seconds(self, plot: Mapping[str, str]) -> float:
        """Expected duration of setting an environment up."""
        ...

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:
        """Expected duration of a trial, for the plan's estimate."""
        ...

    def lacking(self, levels: Mapping[str, str], programs: Path) -> str | None:
        """Say what a cell needs that its environment cannot do or this machine has not.

        Args:
            levels: the cell's.
            programs: the build directory.

        Returns:
            What is lacking and what to do, in sentences; None where nothing is. Cheap: a plan asks.
        """
        ...

    def room(self, cell: Cell, session: Mapping[str, Any]) -> Room:
        """Tell how much disk a trial takes."""
        ...

    def measure(
        self,
        cell: Cell,
        session: Mapping[str, Any],
        site: Site,
        inside: Inside,
        samples: Path,
        watching: Watching = unwatched,
    ) -> Measurement:
        """Measure one trial in an entered environment.

        Raw samples, where there are any, are written to `samples` (Parquet, as
        docs/formats/results.md says). `watching` is open around the measured part; it is given
        both ends' accounts.

        Raises:
            TrialError: it could not be measured; the run goes on.
        """
        ...


@cache
def by_name() -> Mapping[str, Workload]:
    """Every workload of this version, by its name in experiment files."""
    found: list[Workload] = [*discovery.offered(__name__, "WORKLOAD")]
    return {workload.name: workload for workload in found}
