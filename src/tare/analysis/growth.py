"""How a cost grows with a number that was varied: ranks, file size, vertices, simulated nodes.

In each block, least squares through log(cost) over log(level) gives an exponent: 1 is in
proportion, 0 not at all. The interval is over blocks, as everywhere (docs/method.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import linear_regression

import numpy as np

from tare import units
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import UsageError
from tare.plan import Plan
from tare.stats import Interval, mean_interval
from tare.workloads.mpi_io_job import Cache

__all__ = ["Growth", "growths"]

_COUNTED = ("ranks", "vertices", "power")
_SIZED = ("size",)
_NODES = "nodes"
"""No factor of its own, but one of the settings in a level of `cache`."""


@dataclass(frozen=True)
class Growth:
    """The cost of otherwise like cells over one factor."""

    factor: str
    cells: tuple[tuple[float, Cell], ...]
    """(level as a number, cell), by level; two or more."""
    exponent: Interval
    """Of cost = constant x level ^ exponent, without unit."""


def growths(plan: Plan, sessions: Sessions, statistic: str) -> tuple[Growth, ...]:
    """Every growth that a plan lets one see, for every factor that it varies as a number."""
    cells = [cell for cell in plan.cells if cell.replica == 1]
    found = []
    for factor in (*_COUNTED, *_SIZED, _NODES):
        for group in _alike(cells, factor):
            numbers = [number for number, _ in group]
            columns = {cell.id: sessions.column(cell.id, statistic) for _, cell in group}
            exponents = [
                _exponent(numbers, [columns[cell.id][i] for _, cell in group])
                for i in range(len(sessions.blocks))
            ]
            known = [one for one in exponents if one is not None]
            if known:
                found.append(Growth(factor, group, mean_interval(np.array(known))))
    return tuple(found)


def _alike(cells: Iterable[Cell], factor: str) -> list[tuple[tuple[float, Cell], ...]]:
    """Group the cells that differ in this factor alone, ordered by its level."""
    groups: dict[object, list[tuple[float, Cell]]] = {}
    for cell in cells:
        number = _number(factor, cell.levels)
        if number is not None:
            groups.setdefault(_rest(cell, factor), []).append((number, cell))
    return [
        tuple(sorted(group, key=lambda pair: pair[0]))
        for group in groups.values()
        if len(group) > 1
    ]


def _rest(cell: Cell, factor: str) -> object:
    """What like cells have in common."""
    if factor != _NODES:
        return cell.without(factor)
    settings = Cache.parse(cell.levels["cache"]).settings or ()
    return cell.without("cache"), tuple(pair for pair in settings if pair[0] != _NODES)


def _number(factor: str, levels: Mapping[str, str]) -> float | None:
    if factor == _NODES:
        cache = Cache.parse(levels.get("cache", "plain"))
        return None if cache.settings is None else float(cache.setting(_NODES, "1"))
    if factor not in levels:
        return None
    try:
        return float(units.size(levels[factor]) if factor in _SIZED else levels[factor])
    except (UsageError, ValueError):
        return None


def _exponent(levels: list[float], costs: list[float | None]) -> float | None:
    """Least squares on both logarithms; None where a trial of the block is absent."""
    if any(cost is None for cost in costs):
        return None
    known = [math.log(cost) for cost in costs if cost is not None]
    return linear_regression([math.log(level) for level in levels], known).slope
