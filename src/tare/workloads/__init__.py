"""What is measured: one file a workload. A workload declares its factors and measures one trial.

A setting is one row: name, parser, default, help. The experiment file is validated against these
rows, and the JSON Schema that editors use is exported from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tare.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tare.accounting import Account
    from tare.cell import Cell
    from tare.environments import Inside, Site
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


@dataclass(frozen=True)
class Measurement:
    """What a workload returns of one trial, beside the samples that it has written."""

    counters: Mapping[str, int]
    """sent, received, lost, duplicated, reordered, corrupted; late: after they counted as lost."""
    settings: Mapping[str, Any]
    """What both programs said of themselves: quality of service, transport options."""
    client: Account
    server: Account
    duration_ns: int
    """Of the measured part."""


class Workload(Protocol):
    """A kind of measurement."""

    name: str
    factors: Mapping[str, Factor]
    plot_factors: frozenset[str]
    """Factors that need an environment to be set up anew; they define the whole plot."""
    session_settings: Mapping[str, Factor]
    """Settings that every session of an experiment shares: requests, warm-up, timeout."""
    statistics: Mapping[str, str]
    """Name -> meaning of the scalars that a session can be summarised by, e.g. p50."""

    def applicable(self, levels: Mapping[str, str]) -> frozenset[str]:
        """Names of the factors that mean something for a cell with these levels.

        A factor that does not apply is left out of the cell, so that cells that differ in it
        alone are one cell (ICMP knows no reception mode).
        """
        ...

    def link_rate(self, plot: Mapping[str, str]) -> int | None:
        """Rate of the wire that a plot asks for, bits a second; None without a limit."""
        ...

    def placement(self, plot: Mapping[str, str]) -> Placement:
        """Processors and priority that a plot asks for."""
        ...

    def setup_seconds(self, plot: Mapping[str, str]) -> float:
        """Expected duration of setting an environment up."""
        ...

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:
        """Expected duration of a trial, for the plan's estimate."""
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
        """Measure one trial in an entered environment and write its raw samples to `samples`.

        `watching` is open around the measured part; it is given both ends' accounts.
        """
        ...
