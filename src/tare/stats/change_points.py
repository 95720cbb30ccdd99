"""Where the level of a series of runs changes: divisive, each change by a permutation test.

Runs are split where their ranks differ most, and the parts again, as long as a split is found that
runs in random order would show at most as often as declared (E-divisive: Matteson and James 2014,
JASA 109:334). In place of its energy distance stands the standardised rank sum (Pettitt 1979,
Applied Statistics 28:126): it asks for a change of level and not for any change of the
distribution, one run that stands apart is no change, and a test is linear in the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tare.stats.arrays import FloatArray

FEWEST = 4
"""Runs on either side of a change."""
_MOST = 256
"""More runs than these are permuted in so many stretches of neighbours."""
_FIRST, _HOPELESS = 99, 10
"""Permutations after which a test is given up, where so many of them split as well."""
_BATCH = 1 << 21
"""Numbers that are permuted at once, 8 bytes each."""


@dataclass(frozen=True)
class ChangePoint:
    """One change of level."""

    at: int
    """Index of the first run of the new level."""
    p: float
    """Share of random orders of the runs about it that split as well."""


def change_points(values: FloatArray, alpha: float) -> tuple[ChangePoint, ...]:
    """Find the changes of level of a series, in its order.

    Assumes that between changes runs are exchangeable: nothing else about their distribution. Then
    a series without a change shows one with a probability of at most alpha. The same series gives
    the same answer.

    Args:
        values: shape (runs,), in the order of time.
        alpha: level of each test; over m series, the m-th part of the family's.
    """
    return tuple(_split_up(values, alpha, 0, np.random.default_rng(1)))


def _split_up(
    values: FloatArray, alpha: float, first: int, rng: np.random.Generator
) -> Iterator[ChangePoint]:
    if values.size < 2 * FEWEST:
        return
    ranks = _ranks(values)
    p = _p(ranks, alpha, rng)
    if p > alpha:
        return
    # Ranks tell whether, not quite where: what lies in between counts as much as what is beyond.
    # What stands apart does not draw the change to itself, but a level that the fewest runs hold is
    # kept: they are most of some window.
    levels = np.median(sliding_window_view(values, 2 * FEWEST - 1), axis=1)
    kept = np.clip(values, levels.min(), levels.max())
    if np.ptp(kept) == 0.0:  # of few numbers, each of which is the most of no window
        kept = ranks
    at = FEWEST + int(np.argmax(_split(kept - kept.mean(), FEWEST)))
    yield from _split_up(values[:at], alpha, first, rng)
    yield ChangePoint(first + at, p)
    yield from _split_up(values[at:], alpha, first + at, rng)


def _ranks(values: FloatArray) -> FloatArray:
    """Midranks about their mean: what is equal has one rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    ranks: FloatArray = (upper - (counts - 1) / 2.0)[which]
    ranks -= ranks.mean()
    return ranks


def _split(ranks: FloatArray, fewest: int) -> FloatArray:
    """How far what lies before and from each place differs, in units of a random order's spread.

    Args:
        ranks: or values, shape (..., n), about their mean.
        fewest: of either side.

    Returns:
        Shape (..., n - 2 fewest + 1), for the places from `fewest` on; up to a constant factor.
    """
    n = ranks.shape[-1]
    before = np.arange(fewest, n - fewest + 1)
    sums = np.cumsum(ranks, axis=-1)[..., fewest - 1 : n - fewest]
    return np.asarray(np.abs(sums) / np.sqrt(before * (n - before)))


def _p(ranks: FloatArray, alpha: float, rng: np.random.Generator) -> float:
    """Share of random orders whose best split is at least as good; 1 where it is soon seen."""
    # Runs in random order leave whole stretches in random order too: the test stays exact. The
    # oldest few, which fill no stretch, are left out of it.
    stretch = -(-ranks.size // _MOST)
    kept = ranks[ranks.size % stretch :]
    sums = kept.reshape(-1, stretch).sum(axis=1)
    sums -= sums.mean()
    fewest = -(-FEWEST // stretch)
    best = _split(sums, fewest).max()
    if best == 0.0:
        return 1.0
    # Equal orders must not seem worse for how they were added up.
    reached = best * (1.0 - 1e-9)
    wanted, done, better = round(4.0 / alpha) - 1, 0, 0
    while done < wanted:
        more = min(_FIRST if done == 0 else max(1, _BATCH // sums.size), wanted - done)
        orders = rng.permuted(np.broadcast_to(sums, (more, sums.size)), axis=1)
        better += int(np.count_nonzero(_split(orders, fewest).max(axis=1) >= reached))
        done += more
        if better > max(_HOPELESS, 2.0 * alpha * wanted):
            return 1.0
    return (1.0 + better) / (1.0 + done)
