"""Does a program start in one of two modes, which only restarts show?

The statistic is the widest gap between neighbouring sessions, over the spread within the two groups
that it separates. Its null distribution is that of sessions with normal logarithms, by simulation.
A screen, not a proof: a skewed but single mode raises it too, fewer than 8 sessions cannot show two
modes, and a mode that one session in ten takes will mostly be missed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tare.stats.arrays import BlockValues, FloatArray, present

_FEWEST_SESSIONS = 8
_FEWEST_IN_A_MODE = 2
_DRAWS = 9999
_BATCH = 1 << 17
"""Numbers that are drawn at once, 8 bytes each."""
_SEED = 5840
_ALPHA = 0.01


@dataclass(frozen=True)
class Modes:
    """Two groups of sessions, with how likely chance alone would part them so."""

    flagged: bool
    """True where p <= 0.01: read the cell as a mixture, and its mean as depending on the mix."""
    p: float
    """Chance that normal logarithms of as many sessions show as wide a gap (Monte Carlo)."""
    low: float
    """Geometric mean of the lower group, in the unit of the input."""
    high: float
    """Geometric mean of the upper group, in the unit of the input."""
    share_high: float
    """Share of sessions in the upper group, 0 to 1."""
    n: int
    """Sessions."""


def two_modes(session_values: BlockValues, among: int = 1) -> Modes | None:
    """Look for two modes among a cell's sessions.

    Args:
        session_values: shape (sessions,), positive; None or NaN where a session is absent. They
            have to be independent: one of each block.
        among: so many cells, over which p is adjusted: it can be small enough for that.

    Returns:
        None below 8 sessions, or where all are equal.

    Raises:
        ValueError: a value that is infinite, zero or negative.
    """
    values = present(session_values)
    n = int(values.size)
    if n < _FEWEST_SESSIONS or np.ptp(values) == 0.0:
        return None
    logs = np.sort(np.log(values))[np.newaxis, :]
    statistic, split = _widest_gap(logs)
    null = _null_gaps(n, max(_DRAWS, math.ceil(among / _ALPHA)))
    p = (1.0 + np.count_nonzero(null >= statistic[0])) / (null.size + 1.0)
    cut = int(split[0])
    return Modes(
        flagged=bool(p <= _ALPHA),
        p=float(p),
        low=float(np.exp(logs[0, :cut].mean())),
        high=float(np.exp(logs[0, cut:].mean())),
        share_high=(n - cut) / n,
        n=n,
    )


def _widest_gap(ordered: FloatArray) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Return, for each row of sorted values, gap over spread within groups, and the split."""
    n = ordered.shape[1]
    # Centred, so that the differences of squares below lose no more than their last digits.
    ordered = ordered - ordered.mean(axis=1, keepdims=True)
    splits = np.arange(_FEWEST_IN_A_MODE, n - _FEWEST_IN_A_MODE + 1)
    gaps = np.diff(ordered, axis=1)[:, splits - 1]
    sums, squares = np.cumsum(ordered, axis=1), np.cumsum(ordered**2, axis=1)
    below = squares[:, splits - 1] - sums[:, splits - 1] ** 2 / splits
    rest, rest_squares = (
        sums[:, -1:] - sums[:, splits - 1],
        squares[:, -1:] - squares[:, splits - 1],
    )
    above = rest_squares - rest**2 / (n - splits)
    # Groups of equal values would divide by zero, and rounding may leave less than that.
    within = np.sqrt(np.maximum(below + above, 1e-12 * squares[:, -1:]) / (n - 2))
    ratio = gaps / within
    best = np.argmax(ratio, axis=1)
    rows = np.arange(ordered.shape[0])
    return ratio[rows, best], splits[best]


@lru_cache(maxsize=32)
def _null_gaps(n: int, draws: int) -> FloatArray:
    rng = np.random.default_rng(_SEED)
    rows = max(1, _BATCH // n)
    sizes = ((min(rows, draws - done), n) for done in range(0, draws, rows))
    return np.concatenate(
        [_widest_gap(np.sort(rng.normal(size=size), axis=1))[0] for size in sizes]
    )
