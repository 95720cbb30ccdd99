"""What a workload sees of an analysed result, where it adds what is its own: no more than this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tare.cell import Cell
from tare.machine import Fingerprint
from tare.stats import Estimate, Ratio
from tare.stats.shares import Share, Shares
from tare.told import Told


class TrialSeen(Protocol):
    """One trial on record."""

    cell: str
    status: Any
    values: Mapping[str, float]
    counters: Mapping[str, int]
    settings: Told


class ViewSeen(Protocol):
    """What is known of one cell."""

    @property
    def cell(self) -> Cell: ...  # noqa: D102
    @property
    def estimates(self) -> Mapping[str, Estimate]: ...  # noqa: D102


class QuestionSeen(Protocol):
    """One comparison, answered."""

    @property
    def cell(self) -> Cell: ...  # noqa: D102
    @property
    def against(self) -> Cell: ...  # noqa: D102
    @property
    def others(self) -> Mapping[str, Ratio]: ...  # noqa: D102


class ContrastSeen(Protocol):
    """One mean response split by contrast."""

    @property
    def cell(self) -> Cell: ...  # noqa: D102
    @property
    def shares(self) -> Shares[Share]: ...  # noqa: D102


class SessionsSeen(Protocol):
    """Every session that was measured."""

    def tried(self, *cells: str, statistic: str) -> tuple[list[float | None], ...]:
        """Columns of cells that are compared, one value a block; None is a failure."""
        ...


class Findings(Protocol):
    """An analysis (`tare.analysis.Analysis`)."""

    @property
    def fingerprint(self) -> Fingerprint: ...  # noqa: D102
    @property
    def sessions(self) -> SessionsSeen: ...  # noqa: D102
    @property
    def trials(self) -> Sequence[TrialSeen]: ...  # noqa: D102
    @property
    def cells(self) -> Sequence[ViewSeen]: ...  # noqa: D102
    @property
    def questions(self) -> Sequence[QuestionSeen]: ...  # noqa: D102
    @property
    def contrasts(self) -> Sequence[ContrastSeen]: ...  # noqa: D102
