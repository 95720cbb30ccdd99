"""What was found of a paper's claims: each cell's interval, over the bound that it has to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.replay import Judged
from tare.report.figures.axis import Axis
from tare.stats.bounds import Bound

WIDTH, LEFT, HEAD = 760, 236, 44
"""Of the picture, of the labels beside the axis, and of what stands above the rows."""
_ROW, _CELL, _APART = 22, 6, 12
"""Height of a row of one cell, of each more, and what is free between rows."""


@dataclass(frozen=True)
class Row:
    """A claim: places from left to right, and its cells from top to bottom."""

    name: str
    where: str
    style: str
    top: int
    height: int
    band: tuple[float, float]
    """From the least to the most that is asked."""
    cells: tuple[tuple[float, float, float, float], ...]
    """Height, lower end, estimate, upper end."""


@dataclass(frozen=True)
class Claims:
    """The whole picture."""

    rows: tuple[Row, ...]
    marks: tuple[tuple[float, str], ...]
    one: float
    """Where both of what is compared are equal."""
    height: int


def claims(letter: str, answers: Sequence[Judged]) -> Claims | None:
    """Lay out the claims whose figures are ratios or shares; None where there is none.

    Args:
        letter: the paper's.
        answers: all its claims, in order.
    """
    shown = {f"{letter}{number}": one for number, one in enumerate(answers, 1)
             if one.bounds and not one.claim.difference}  # fmt: skip
    if not shown:
        return None
    seen = [
        value for one in shown.values() for bound in one.bounds for value in _values(one, bound)
    ]
    axis = Axis([1.0, *seen], lambda value: f"{value:g}")
    rows, top = [], HEAD
    for name, one in shown.items():
        height = _ROW + _CELL * (len(one.bounds) - 1)
        rows.append(_row(name, one, axis, top, height))
        top += height + _APART
    marks = tuple((_place(share), text) for share, text in axis.marks)
    return Claims(tuple(rows), marks, _place(axis.at(1.0)), top)


def _row(name: str, one: Judged, axis: Axis, top: int, height: int) -> Row:
    _, _, _, least, most = _values(one, one.bounds[0])
    band = (
        _place(0.0 if least is None else axis.at(least)),
        _place(100.0 if most is None else axis.at(most)),
    )
    each = height / len(one.bounds)
    cells = []
    for number, bound in enumerate(one.bounds):
        found, low, high, *_ = _values(one, bound)
        first, middle, last = (_place(axis.at(end or found or 0.0)) for end in (low, found, high))
        cells.append((top + (number + 0.5) * each, first, middle, last))
    style = one.verdict.replace(" ", "-")
    return Row(name, one.claim.where, style, top, height, band, tuple(cells))


def _values(one: Judged, bound: Bound) -> tuple[float | None, ...]:
    """Estimate and interval, and the ends of what is asked: as ratios, also where in percent."""
    whole = 100.0 if one.claim.figure else 1.0
    values = (bound.found.estimate, bound.found.low, bound.found.high, bound.least, bound.most)
    return tuple(None if value is None else value / whole for value in values)


def _place(share: float) -> float:
    return round(LEFT + share / 100.0 * (WIDTH - LEFT), 1)
