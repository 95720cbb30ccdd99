"""A published figure, and numbers of ours that stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tare.cell import Cell
from tare.published import Figure
from tare.stats import Interval


@dataclass(frozen=True)
class Ours:
    """One of this run's numbers, in the unit of the figure that it stands beside."""

    cell: Cell
    estimate: float
    low: float | None
    """None where the blocks give no interval."""
    high: float | None


@dataclass(frozen=True)
class Beside:
    """A published figure and ours."""

    figure: Figure
    what: str
    """What ours is: the same quantity, or the nearest that was measured."""
    ours: tuple[Ours, ...]


def measured(rows: Iterable[Beside]) -> tuple[Beside, ...]:
    """Leave out the figures of which nothing was measured."""
    return tuple(row for row in rows if row.ours)


def each(
    found: Iterable[tuple[Cell, Interval]], scale: Callable[[float], float]
) -> tuple[Ours, ...]:
    """What was found of each cell, brought to a figure's unit by a function that rises."""
    return tuple(
        Ours(
            cell,
            scale(one.estimate),
            None if one.low is None else scale(one.low),
            None if one.high is None else scale(one.high),
        )
        for cell, one in found
        if one.estimate is not None
    )


def saved(ratios: Iterable[tuple[Cell, Interval]]) -> tuple[Ours, ...]:
    """Ratios of costs as what is saved, in percent."""
    # The more it takes, the less it saves: the ends change places.
    found = each(ratios, lambda ratio: 100 * (1 - ratio))
    return tuple(Ours(one.cell, one.estimate, one.high, one.low) for one in found)
