"""How a cost grows with a number that was varied: ranks, file size, vertices, simulated nodes.

In each block, least squares through log(cost) over log(level) gives an exponent: 1 is in
proportion, 0 not at all. The interval is over blocks, as everywhere (docs/method.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import linear_regression

import numpy as np

from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.plan import Plan
from tare.stats import Interval, mean_interval


@dataclass(frozen=True)
class Growth:
    """The cost of otherwise like cells over one factor."""

    factor: str
    cells: tuple[tuple[float, Cell], ...]
    """(level as a number, cell), by level; two levels or more."""
    exponent: Interval
    """Of cost = constant x level ^ exponent, without unit."""


def growths(plan: Plan, sessions: Sessions, statistic: str) -> tuple[Growth, ...]:
    """Every growth that a plan lets one see, for every factor that it varies as a number."""
    groups: dict[str, dict[object, list[tuple[float, Cell]]]] = {}
    for cell in plan.cells:
        if cell.replica == 1:
            for factor, (number, rest) in plan.workload.numbers(cell.levels).items():
                groups.setdefault(factor, {}).setdefault(rest, []).append((number, cell))
    found = []
    for factor, alike in groups.items():
        for group in (sorted(one, key=itemgetter(0)) for one in alike.values()):
            numbers = [number for number, _ in group]
            if len(set(numbers)) == 1:  # of several cells too, as of `nvio` and `nvio nodes=1`
                continue
            columns = [sessions.column(cell.id, statistic) for _, cell in group]
            exponents = (_exponent(numbers, costs) for costs in zip(*columns, strict=True))
            known = [one for one in exponents if one is not None]
            if known:
                found.append(Growth(factor, tuple(group), mean_interval(np.array(known))))
    return tuple(found)


def _exponent(levels: Sequence[float], costs: Sequence[float | None]) -> float | None:
    """Least squares on both logarithms; None where a trial of the block is absent."""
    if any(cost is None for cost in costs):
        return None
    known = [math.log(cost) for cost in costs if cost is not None]
    return linear_regression([math.log(level) for level in levels], known).slope
