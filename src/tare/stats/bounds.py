"""Does a figure keep a bound? Its whole interval decides, and it may decide nothing.

"No slower" and "costs nothing" are such bounds with a margin: a test of non-inferiority, or of
equivalence where there are two (two one-sided tests, Schuirmann 1987). That no loss was found shows
nothing by itself, so a bound also tells how large a loss would have been found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import scipy

from tare.stats.arrays import FloatArray
from tare.stats.interval import Interval, exponential, ratio_ends

POWER = 0.8
"""Chance with which what is said here comes true."""
_MOST_BLOCKS = 10_000
LOOKS = 4
"""Times that a figure to which blocks are added is judged at most, the first time included."""


class Kept(StrEnum):
    """What may be said of a promise."""

    HOLDS = "holds"
    FAILS = "does not hold"
    INCONCLUSIVE = "inconclusive"

    @classmethod
    def counted(cls, kept: bool) -> Kept:
        """Of what was counted, and has no interval."""
        return cls.HOLDS if kept else cls.FAILS


def all_kept(found: Iterable[Kept]) -> Kept:
    """What may be said of several promises made at once; of none at all, nothing."""
    every = set(found)
    if Kept.FAILS in every:
        return Kept.FAILS
    return Kept.HOLDS if every == {Kept.HOLDS} else Kept.INCONCLUSIVE


@dataclass(frozen=True)
class Bound:
    """A figure, and what its whole interval has to keep."""

    name: str
    found: Interval
    least: float | None = None
    most: float | None = None
    ratio: bool = True
    """Whether the figure is a ratio, whose interval is even on the logarithmic scale."""

    @property
    def kept(self) -> Kept:
        """Inconclusive where the interval straddles an end of the bound, or is missing."""
        low, high = self.found.low, self.found.high
        if low is None or high is None or math.isnan(low) or math.isnan(high):
            return Kept.INCONCLUSIVE
        least = -math.inf if self.least is None else self.least
        most = math.inf if self.most is None else self.most
        if least <= low and high <= most:
            return Kept.HOLDS
        return Kept.FAILS if high < least or low > most else Kept.INCONCLUSIVE

    @property
    def blocks_more(self) -> int | None:
        """Blocks to add that would probably decide, if estimate and spread stay as they are.

        0 where it is decided; None where no number in reach would, or there is no interval.
        """
        if self.kept is not Kept.INCONCLUSIVE:
            return 0
        error, n = self._error, self.found.n
        if error is None or self.found.estimate is None:
            return None
        ends = [self._scale(end) for end in (self.least, self.most) if end is not None]
        distance = min(abs(self._scale(self.found.estimate) - end) for end in ends)
        sizes = np.arange(n + 1, _MOST_BLOCKS, dtype=np.float64)
        reach = self._reach(sizes - 1.0) * error * math.sqrt(n) / np.sqrt(sizes)
        enough = np.flatnonzero(reach <= distance)
        return int(sizes[enough[0]]) - n if enough.size else None

    @property
    def would_be_found(self) -> float | None:
        """The smallest figure above `most` that would have been found to break it, 80 times in 100.

        At the spread and the number of blocks of this one; None without `most` or interval.
        """
        if self.most is None or self._error is None:
            return None
        reach = float(self._reach(np.array([self.found.n - 1.0]))[0]) * self._error
        if not self.ratio:
            return self.most + reach
        factor = exponential(reach)
        return None if factor is None else self.most * factor

    def at(self, confidence: float) -> Bound:
        """The same ratio, with its interval as wide as another confidence takes, by Student's t."""
        error, estimate = self._error, self.found.estimate
        if error is None or estimate is None or confidence == self.found.confidence:
            return self
        reach = error * float(scipy.special.stdtrit(self.found.n - 1, (1.0 + confidence) / 2.0))
        low, high = ratio_ends(math.log(estimate) - reach, math.log(estimate) + reach)
        return replace(self, found=replace(self.found, low=low, high=high, confidence=confidence))

    def _scale(self, value: float) -> float:
        return math.log(value) if self.ratio else value

    @property
    def _error(self) -> float | None:
        """Standard error on the scale on which the interval is even; None where it has none."""
        low, high, n = self.found.low, self.found.high, self.found.n
        if low is None or high is None or n < 2 or (self.ratio and low <= 0.0):
            return None
        reach = float(scipy.special.stdtrit(n - 1, (1.0 + self.found.confidence) / 2.0))
        return (self._scale(high) - self._scale(low)) / 2.0 / reach

    def _reach(self, freedom: FloatArray) -> FloatArray:
        """Standard errors between truth and bound at which `POWER` of the intervals clear it."""
        clear = scipy.special.stdtrit(freedom, (1.0 + self.found.confidence) / 2.0)
        return np.asarray(clear + scipy.special.stdtrit(freedom, POWER), dtype=np.float64)


def look_confidence(confidence: float) -> float:
    """Confidence of the interval at each of `LOOKS` looks.

    Whoever judges a figure anew as blocks are added, and stops at the first decision, errs more
    often than one look does. The chance of an error is spent evenly over all looks that may come
    (Bonferroni): whatever is decided at any of them is wrong no more often than at `confidence` by
    one look, and the number of blocks of each look is fixed before the first.
    """
    return 1.0 - (1.0 - confidence) / LOOKS


def look_blocks(least: int, most: int, look: int) -> int:
    """Blocks at a look, 1 to `LOOKS`: evenly from the fewest to the most."""
    return least + round(max(0, most - least) * (look - 1) / (LOOKS - 1))
