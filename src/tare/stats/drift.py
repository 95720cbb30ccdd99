"""Does a session warm up, and does the machine drift from block to block?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from tare.stats.arrays import BlockValues, present, to_array
from tare.stats.effective import long_run_variance

_FEWEST_SAMPLES = 64
_FEWEST_BLOCKS = 5
_ALPHA = 0.01
_MATERIAL_PERCENT = 1.0


@dataclass(frozen=True)
class SessionDrift:
    """The first half of one session against its second half."""

    p: float
    """Two-sided p-value of "both halves lie equally often below the session's median"."""
    flagged: bool
    """True where p < 0.01 and the medians differ by more than 1 %: the session is still warming
    up, or was disturbed. A flag excludes nothing."""


def session_drift(
    samples: npt.NDArray[np.integer | np.floating],
    ordered: npt.NDArray[np.integer | np.floating] | None = None,
) -> SessionDrift | None:
    """Compare the halves of a session.

    The test compares how often each half lies at or below the session's median, with the variance
    of each half corrected for autocorrelation (as Geweke 1992 compares means of two stretches of
    one series). Indicators rather than values, so that a few outliers decide nothing.

    Args:
        samples: shape (n,), in time order, any unit.
        ordered: the same samples sorted, if the caller has them.

    Returns:
        None below 64 samples.
    """
    n = samples.size
    if n < _FEWEST_SAMPLES:
        return None
    ordered = np.sort(samples) if ordered is None else ordered
    median = ordered[(n - 1) // 2]
    halves = samples[: n // 2], samples[n // 2 :]
    below = [(half <= median).astype(np.float32) for half in halves]
    variance = sum(long_run_variance(half) / half.size for half in below)
    shift = float(below[0].mean(dtype=np.float64) - below[1].mean(dtype=np.float64))
    if variance == 0.0:  # each half lies wholly on one side
        p = 0.0 if shift else 1.0
    else:
        p = float(2.0 * scipy.special.ndtr(-abs(shift) / math.sqrt(variance)))
    first, second = (float(np.median(half)) for half in halves)
    material = abs(second - first) > _MATERIAL_PERCENT / 100.0 * first
    return SessionDrift(p, bool(p < _ALPHA and material))


@dataclass(frozen=True)
class BlockTrend:
    """Whether a cell's sessions rise or fall with the order of the blocks."""

    percent_per_block: float | None
    """Theil-Sen slope of the logarithm, in percent a block; None below 5 blocks."""
    p: float | None
    """Two-sided p-value of "no monotone trend"; None below 5 blocks, or where all values are
    equal."""
    flagged: bool
    """True where p < 0.01. Pairing within blocks cancels a trend that all cells share."""
    n: int
    """Blocks used."""


def block_trend(values: BlockValues) -> BlockTrend:
    """Test one cell for a trend over blocks (Mann 1945; Kendall; slope by Theil and Sen 1968).

    Args:
        values: shape (blocks,), in the order in which the blocks ran, positive; absent where the
            trial is.

    Raises:
        ValueError: a value that is infinite, zero or negative.
    """
    known = present(values)
    order = np.flatnonzero(~np.isnan(to_array(values)))
    n = int(known.size)
    if n < _FEWEST_BLOCKS:
        return BlockTrend(None, None, False, n)
    slope = float(scipy.stats.theilslopes(np.log(known), order).slope)
    if np.ptp(known) == 0.0:
        return BlockTrend(0.0, None, False, n)
    p = float(scipy.stats.kendalltau(order, known).pvalue)
    return BlockTrend(100.0 * math.expm1(slope), p, p < _ALPHA, n)
