"""Compare two cells over blocks: how many times slower, and how sure.

Assumptions: a block holds one fresh session of each cell, in random order; blocks are independent.
Samples within a session never enter, only the session's summary (Georges, Buytaert & Eeckhout
2007, OOPSLA; Kalibera & Jones 2013, ISMM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tare.stats import signflip
from tare.stats.arrays import BlockValues, FloatArray, complete_blocks
from tare.stats.interval import Interval, Method, mean_interval

_BLOCKS_A_DROPPED_ONE = 8
"""A promise bears one block without one of its sides among so many: who fails may be the slow."""


@dataclass(frozen=True)
class Ratio:
    """Cell a over cell b, with the absolute values behind it."""

    ratio: Interval
    """Geometric mean of a/b over blocks, without unit."""
    difference: Interval
    """Arithmetic mean of a - b over the same blocks, in the unit of the input."""
    a: Interval
    """Geometric mean of a over the same blocks, in the unit of the input."""
    b: Interval
    """Geometric mean of b over the same blocks, in the unit of the input."""
    p: float
    """Two-sided sign-flip p-value of the log-ratios; 1 without blocks."""
    sd_log: float | None
    """Standard deviation of the log-ratios over blocks; None below two blocks."""
    n_used: int
    """Blocks in which both cells have a value."""
    n_dropped: int
    """Blocks in which one or both have none."""
    paired: bool = True
    """By block, so that the interval inverts the sign-flip test wherever the blocks allow it; False
    where the two cells share no block."""

    @property
    def allows_verdict(self) -> bool:
        """Whether blocks are enough for a sign-flip interval, where Student's stands in."""
        return not self.paired or signflip.smallest_p(self.ratio.n) <= 1.0 - self.ratio.confidence

    @property
    def promised(self) -> Ratio:
        """What a promise is judged by: no interval where no verdict may follow from it.

        Nor where more than one block of eight lacks one of the cells, or both.
        """
        few = self.n_dropped * _BLOCKS_A_DROPPED_ONE <= self.n_used + self.n_dropped
        if self.allows_verdict and few:
            return self
        ratio, difference = (replace(i, low=None, high=None) for i in (self.ratio, self.difference))
        return replace(self, ratio=ratio, difference=difference)

    @property
    def percent(self) -> float | None:
        """By how much a exceeds b, in percent."""
        return None if self.ratio.estimate is None else 100.0 * (self.ratio.estimate - 1.0)

    @property
    def half_width_percent(self) -> float | None:
        """Half the interval's width on the log scale, as percent: 3 means about ±3 %."""
        if self.ratio.low is None or self.ratio.high is None:
            return None
        return 100.0 * math.expm1(0.5 * math.log(self.ratio.high / self.ratio.low))


def _logs(values: FloatArray, name: str) -> FloatArray:
    low = np.flatnonzero(values <= 0.0)
    if low.size:
        raise ValueError(
            f"{name} holds {values[low[0]]:g}; ratios need positive values "
            "(a failed trial is absent: give None, not 0)"
        )
    return np.log(values)


def paired_ratio(
    a: BlockValues,
    b: BlockValues,
    confidence: float = 0.95,
    method: Method = Method.SIGN_FLIP,
) -> Ratio:
    """Estimate how many times a is b, block by block.

    The estimate is the mean of log(a/b) over blocks in which both are present. With the default
    method the interval excludes 1 exactly where p <= 1 - confidence.

    For simultaneous intervals over m comparisons give `confidence = 1 - alpha / m` (Bonferroni)
    and label them so.

    Args:
        a: the cell in question, shape (blocks,), positive, one session summary a block.
        b: the cell it is compared with, same shape and unit.
        confidence: nominal coverage of each interval.
        method: see `Method`; the p-value is the sign-flip test's whichever is chosen.

    Raises:
        ValueError: different lengths, a value that is infinite, zero or negative, or a confidence
            outside (0, 1).
    """
    columns, dropped = complete_blocks(a=a, b=b)
    kept_a, kept_b = columns["a"], columns["b"]
    log_a, log_b = _logs(kept_a, "a"), _logs(kept_b, "b")
    log_ratio = log_a - log_b
    return Ratio(
        ratio=mean_interval(log_ratio, confidence, method).exponential,
        difference=mean_interval(kept_a - kept_b, confidence, method),
        a=mean_interval(log_a, confidence, Method.T).exponential,
        b=mean_interval(log_b, confidence, Method.T).exponential,
        p=signflip.p_value(log_ratio),
        sd_log=float(log_ratio.std(ddof=1)) if log_ratio.size > 1 else None,
        n_used=int(log_ratio.size),
        n_dropped=dropped,
    )
