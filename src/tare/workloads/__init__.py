"""What is measured: one file a workload, which it offers as `WORKLOAD`.

A workload declares its factors and measures one trial.

A setting is one row: name, parser, default, help. The experiment file is validated against these
rows, and the JSON Schema that editors use is exported from them.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from tare import discovery
from tare.accounting import Account
from tare.document import Problem
from tare.levels import Factor, Levels, Settings
from tare.placement import Placement

if TYPE_CHECKING:
    from pathlib import Path

    from tare.environments import Environment, Inside, Machine, Site
    from tare.published.beside import Beside
    from tare.workloads.echo_samples import EchoSamples
    from tare.workloads.findings import Findings
    from tare.workloads.mpi_io_scaling import Scaling

L = TypeVar("L", bound=Levels)
"""The levels of a workload's cells, typed."""
S = TypeVar("S", bound=Settings)
"""The settings of its sessions."""


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
    """What a workload returns of one trial."""

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
    samples: EchoSamples | None = None
    """Every request, where responses are timed."""


@dataclass(frozen=True)
class Made:
    """What an experiment file makes of a workload."""

    workload: AnyWorkload
    content: Mapping[str, Any]
    """The file's, with what is the workload's own in the form that an experiment keeps."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class Room:
    """Disk that a trial takes."""

    kept_bytes: int = 0
    """At most, in the result."""
    scratch_bytes: int = 0
    """Among temporary files, while it runs."""
    disk_bytes: int = 0
    """On a disk (`environments.scratch_disk.folder_for`), while it runs."""


@dataclass(frozen=True)
class Bench(ABC, Generic[L, S]):
    """A workload set up in one plot: measures cells, one after another."""

    site: Site
    inside: Inside
    settings: S

    @abstractmethod
    def measure(self, levels: L) -> Measurement:
        """Measure one trial.

        Raises:
            TrialError: it could not be measured; the run goes on.
        """


class Workload(Protocol[L, S]):
    """A kind of measurement."""

    name: str
    levels: type[L]
    """Its factors."""
    settings: type[S]
    """What every session of an experiment shares."""
    plot_factors: frozenset[str]
    """Factors that need an environment to be set up anew; they define the whole plot."""
    statistics: Mapping[str, Statistic]
    """Name -> the scalars that a session can be summarised by, e.g. p50; the first is the one that
    is judged where an experiment declares none."""
    programs: tuple[str, ...] = ()
    """Patterns of the programs that it runs, below the build directory or beside it; the instrument
    itself apart. A run goes on while these are what they were."""
    response_times: bool
    """Whether a session is a series of response times, written as samples: its statistics are
    computed from them, and it can be asked for deadlines, and for what its operations cost. The
    trials of other workloads hold values instead."""
    paper: str = "B"
    """The letter of the paper that its experiments can replay."""
    figures: tuple[str, ...] = ()
    """Figures of the report that are its own, by their names there."""
    shown: tuple[str, ...] = ()
    """Statistics of which a terminal shows every cell's value, beside those that are judged."""
    fields: tuple[str, ...] = ()
    """Fields of an experiment file that mean something for it alone."""

    def of(self, asked: Mapping[str, Any]) -> Made:
        """Take what is a user's own, such as factors and statistics, from an experiment file.

        Args:
            asked: its content, or an experiment's fields.
        """
        return Made(self, asked)

    def subject(self, levels: L) -> str:
        """What sentences about a cell speak of, such as "A response through UDP"."""
        ...

    def applicable(self, levels: L) -> frozenset[str]:
        """Names of the factors that mean something for a cell with these levels.

        A factor that does not apply is left out of the cell, so that cells that differ in it
        alone are one cell (ICMP knows no reception mode).
        """
        ...

    def refused(self, levels: L, asked: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
        """Say why no cell can be what these levels ask for together, wherever it is run.

        Args:
            levels: one of every factor.
            asked: all the levels of every factor.

        Returns:
            The factor that has to change, and a sentence on its level; None where all is well.
        """
        return None

    def link_rate(self, plot: L) -> int | None:
        """Rate of the wire that a plot asks for, bits a second; None without a limit."""
        row: Factor[int | None] | None = self.levels.rows.get("link")
        return None if row is None else plot.read(row)

    def environment(self, plot: L) -> Environment:
        """Where a plot is measured."""
        ...

    def placement(self, plot: L) -> Placement:
        """Processors and priority that a plot asks for: where the kernel puts it, by itself.

        Raises:
            UnavailableError: this machine does not offer them.
        """
        return Placement()

    def setup_seconds(self, plot: L) -> float:
        """Expected duration of setting an environment up."""
        ...

    def seconds(self, levels: L, settings: S) -> float:
        """Expected duration of a trial, for the plan's estimate."""
        ...

    def lacking(self, levels: L, settings: S, programs: Path) -> str | None:
        """Say what a cell needs that its environment cannot do or this machine has not.

        Args:
            levels: the cell's.
            settings: of its sessions.
            programs: the build directory.

        Returns:
            What is lacking and what to do, in sentences; None where nothing is. Cheap: a plan asks.
        """
        ...

    def disturbs(self, levels: L) -> str | None:
        """Say what a cell changes or takes of the machine that no bounds could hold, if anything.

        Returns:
            What, and what to ask for instead, in sentences; None where nothing.
        """
        return None

    def machine(self, levels: L) -> Machine | None:
        """The other machine that a trial is wholly on; None where this one takes part in it.

        Here such a trial only waits, so that those of several machines may be measured at once
        (`rounds.py`), each in a thread of its own. `Bench.measure` may then use nothing that it
        shares with other benches, such as the site's stopwatch.
        """
        return None

    def called(self, levels: L, settings: S) -> Iterable[Path]:
        """The user's own programs that a cell runs and files that it names, by absolute path.

        A run goes on while these are what they were, too.
        """
        return ()

    def secrets(self, settings: S) -> Mapping[str, str | None]:
        """Variables whose values of the moment programs are given, and no file may hold.

        Returns:
            Name -> value; None where it is not set. A run goes on while they are what they were.
        """
        return {}

    def room(self, levels: L, settings: S) -> Room:
        """Tell how much disk a trial takes: next to none where it is some numbers."""
        return Room()

    def enter(self, plot: L, site: Site, settings: S) -> AbstractContextManager[Bench[L, S]]:
        """Set up where a plot is measured; leaving undoes it.

        Raises:
            TrialError: it cannot be set up; the run goes on without it.
        """
        ...

    def numbers(self, levels: L) -> Mapping[str, tuple[float, object]]:
        """What varies as a number, over which a cost can grow.

        Returns:
            Name, such as a factor's -> the number, and what cells that differ in it alone share.
        """
        return {}

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """The paper's figures of which a result has the like."""
        return ()

    def remarks(self, found: Findings) -> tuple[str, ...]:
        """What a reader must know before he believes a number, in sentences."""
        return ()

    def model(self, found: Findings) -> Scaling | None:
        """What a result predicts beyond this machine, by a model; None where it lacks figures."""
        return None


AnyWorkload = Workload[Any, Any]
AnyBench = Bench[Any, Any]


@cache
def by_name() -> Mapping[str, AnyWorkload]:
    """Every workload of this version, by its name in experiment files."""
    found: list[AnyWorkload] = [*discovery.offered(__name__, "WORKLOAD")]
    return {workload.name: workload for workload in found}


@cache
def own_fields() -> frozenset[str]:
    """Fields of an experiment file that only some workloads have."""
    return frozenset(name for workload in by_name().values() for name in workload.fields)


def made(asked: Mapping[str, Any]) -> AnyWorkload:
    """The workload that an experiment's fields ask for, with what is its user's own.

    Raises:
        KeyError: this version has none of the name.
    """
    return by_name()[asked["workload"]].of(asked).workload


def about(name: str) -> str:
    """What a workload measures, in a line: its file says so first."""
    said = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").__doc__ or ""
    return said.partition("\n")[0]
