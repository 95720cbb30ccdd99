"""How many sessions of a cell a block holds, and what several of them say together.

A guest's boot, a container's start, is one level of restarting; a session within it is another.
The variance of a mean falls with the number of restarts at each, at the cost of each (Kalibera &
Jones 2013, ISMM, section 5). Theirs is one benchmark; here the cells of a block share its time, so
that the numbers of all comparisons are chosen together.

Assumptions: sessions of one setting up are exchangeable, and settings-up independent. Numbers come
from costs and from spreads within cells and over blocks, never from what a comparison found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

PILOT_BLOCKS = 3
"""The first blocks of a run, after which the numbers are decided, once."""
_PRIOR_SHARE = 0.1
"""Variance between settings-up over that within, before any was seen: sessions differ more."""
_PRIOR_BLOCKS = 2.0
"""Blocks' worth of evidence that it counts for: three pilot blocks alone often show none."""

Blocks = Sequence[Sequence[float]]
"""Of one cell: its sessions' values in each block, in their order, those that failed left out."""


@dataclass(frozen=True)
class Spread:
    """Variances of the logarithm of one comparison's ratio, by the level of restarting."""

    within: float
    """From session to session within the settings-up; more sessions lower it."""
    between: float
    """From block to block beyond that, of which more sessions lower nothing."""

    def of(self, sessions: int) -> float:
        """Variance of a block's log-ratio, where either cell has so many sessions in it."""
        return self.between + self.within / sessions


GUESS = Spread(1.0, _PRIOR_SHARE)
"""Before any block was measured; only the ratio of both matters to `allot`."""


def mean_log(values: Sequence[float]) -> float | None:
    """One cell's value of a block: the geometric mean of its sessions; None without any.

    Args:
        values: positive, of one unit, which is the result's.
    """
    if len(values) < 2:
        return values[0] if values else None  # as it is: a logarithm and back would round it
    return math.exp(math.fsum(map(math.log, values)) / len(values))


Mean = Callable[[Sequence[float]], float | None]
"""One value of several sessions: `mean_log`, or fmean where they are parts of a whole."""


def even(*cells: Blocks, mean: Mean = mean_log) -> tuple[list[float | None], ...]:
    """Bring cells to one value a block each, from as many sessions of either.

    Of a cell with more, the first ones count. With unlike numbers the two means would have
    unlike distributions even where the cells are the same, and the difference no symmetric one:
    where one session in ten starts in a slow mode, one session against eight are found different
    19 times in 100 (`tests/stats/test_sessions_a_block.py`). With like numbers the arms of a block
    are exchangeable whatever the distribution, which is all that the sign-flip test asks.

    Args:
        cells: of each its blocks, the same for all; sessions positive, of one unit.
        mean: of a block's sessions, of which there is one at least.
    """
    fewest = [min(map(len, filter(None, block)), default=0) for block in zip(*cells, strict=True)]
    return tuple(
        [mean(block[:n]) if block else None for n, block in zip(fewest, cell, strict=True)]
        for cell in cells
    )


def spread(a: Blocks, b: Blocks) -> Spread | None:
    """Estimate a comparison's variances from pilot blocks.

    Within: pooled over blocks, of both cells together. Between: what the variance of the blocks'
    log-ratios exceeds the sessions' share of it by, drawn towards a tenth of the variance within,
    since few blocks tell it badly; it never gets to zero.

    Returns:
        None where no setting up held two sessions that differ, or fewer than two blocks hold both
        cells.
    """
    found = [_within(cell) for cell in (a, b)]
    ratios, inverse = [], []
    for one, other in zip(a, b, strict=True):
        if n := min(len(one), len(other)):
            ratios.append(np.log(one[:n]).mean() - np.log(other[:n]).mean())
            inverse.append(1.0 / n)
    if any(variance is None for variance in found) or len(ratios) < 2:
        return None
    within = math.fsum(variance or 0.0 for variance in found)
    if within == 0.0:
        return None
    beyond = max(0.0, float(np.var(ratios, ddof=1)) - within * float(np.mean(inverse)))
    seen = len(ratios) - 1.0
    between = _PRIOR_BLOCKS * _PRIOR_SHARE * within + seen * beyond
    return Spread(within, between / (_PRIOR_BLOCKS + seen))


def _within(cell: Blocks) -> float | None:
    """Variance of the logarithm within settings-up, pooled; None where none holds two sessions."""
    several = [np.log(block) for block in cell if len(block) > 1]
    if not several:
        return None
    squares = math.fsum(float(((logs - logs.mean()) ** 2).sum()) for logs in several)
    return squares / sum(logs.size - 1 for logs in several)


def allot(
    costs: Mapping[str, float],
    fixed: float,
    pairs: Mapping[tuple[str, str], Spread],
    *,
    most: int,
    most_seconds: float = math.inf,
) -> dict[str, int]:
    """Give every cell its number of sessions a block, so that equal time yields the most.

    The intervals' widths at the end of a run of given length go as the root of a block's variance
    times its cost. The product of all of them is brought down, so that each comparison counts by
    how much narrower it gets, however noisy it is: one more session for the comparison that gains
    most, again and again, until none gains. What a baseline costs may be too much for any one of
    its comparisons, so then those of a baseline are tried together, and all.

    Args:
        costs: cell -> seconds of one more session of it; of the cells that may be repeated.
        fixed: seconds of a block beside those: settings-up, and a session of every other cell.
        pairs: (cell, against) -> its spread, of every comparison. Where either cannot be repeated
            it gains nothing, and loses by what a longer block costs.
        most: sessions of a cell in a block.
        most_seconds: of a block.

    Returns:
        Cell -> at least 1, for the cells in `costs`.
    """

    def seconds(numbers: Mapping[str, int]) -> float:
        return fixed + sum(cost * numbers[cell] for cell, cost in costs.items())

    def loss(numbers: Mapping[str, int]) -> float:
        variances = (s.of(min(numbers.get(c, 1) for c in pair)) for pair, s in pairs.items())
        return sum(map(math.log, variances)) + len(pairs) * math.log(seconds(numbers))

    found = dict.fromkeys(costs, 1)
    alone = [{*pair} for pair in pairs if all(cell in costs for cell in pair)]
    baselines = dict.fromkeys(against for _, against in pairs)
    together = [{c for pair in alone if one in pair for c in pair} for one in baselines]
    together.append({c for pair in alone for c in pair})

    def best(groups: Sequence[Set[str]]) -> dict[str, int]:
        candidates = [found]
        for group in filter(None, groups):
            fewest = min(found[cell] for cell in group)
            more = {**found, **{c: fewest + 1 for c in group if found[c] == fewest}}
            if fewest < most and seconds(more) <= most_seconds:
                candidates.append(more)
        return min(candidates, key=loss)

    while (more := best(alone)) is not found or (more := best(together)) is not found:
        found = more
    return found
