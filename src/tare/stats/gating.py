"""May the new version pass? Two sequential tests at once, of which the first to reject decides.

*Slower*: that the new one is no slower is rejected. *No worse*: that it is slower by the margin, or
more, is rejected. Each has the declared error over all looks (`sequential`), so that equal versions
are called slower, and versions slower by the margin called no worse, no more often than declared.
Between the two either may come first, and both would be true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from tare.stats.arrays import FloatArray
from tare.stats.bounds import POWER
from tare.stats.sequential import Looks, blocks_to_find, bound, cautious, needed, rejected_at
from tare.stats.verdict import Verdict


@dataclass(frozen=True)
class Gate:
    """What is declared before the first block."""

    looks: Looks
    """When, and the error of one comparison's *slower*."""
    margin: float
    """A slow-down of so much must not pass, as a fraction."""
    pass_alpha: float
    """The error of *no worse*: not shared among comparisons, since all of them have to pass."""

    @classmethod
    def of(cls, looks: Looks, margin: float, comparisons: int) -> Gate:
        """For a family: its error is shared, and each comparison may make its part.

        Args:
            looks: with the family's error.
            margin: as a fraction.
            comparisons: how many are judged together.
        """
        return cls(replace(looks, alpha=looks.alpha / comparisons), margin, looks.alpha)

    @property
    def passing(self) -> Looks:
        """The looks of the other test."""
        return replace(self.looks, alpha=self.pass_alpha)


@dataclass(frozen=True)
class Gated:
    """What the blocks so far say of one comparison."""

    verdict: Verdict
    """SLOWER, NO_WORSE or INCONCLUSIVE."""
    blocks: int
    """Complete blocks that it rests on."""
    ratio: float | None
    """New over old, above 1 where new is worse: the geometric mean over blocks."""
    at_least: float | None
    """Lower bound of the ratio, at the error of *slower*, valid however early the run stopped."""
    at_most: float | None
    """Upper bound, at the error of *no worse*."""
    spread: float | None
    """Standard deviation of the log-ratio from block to block; None below two, or of replicas."""


def decide(log_ratios: FloatArray, gate: Gate, *, bounds: bool = True) -> Gated:
    """Look after every block, and stop at the first that decides.

    Args:
        log_ratios: shape (blocks, replicas), log(new / old), above 0 where new is worse; NaN where
            absent.
        gate: as declared.
        bounds: find the bounds too, which costs some tenths of a second.
    """
    kept = log_ratios[~np.isnan(log_ratios).all(axis=1)]
    verdict = Verdict.INCONCLUSIVE
    if (slower := rejected_at(kept, gate.looks)) is not None:
        verdict, kept = Verdict.SLOWER, kept[:slower]
    if (no_worse := rejected_at(math.log1p(gate.margin) - kept, gate.passing)) is not None:
        verdict, kept = Verdict.NO_WORSE, kept[:no_worse]  # the margin says what matters
    several = len(kept) > 1 and kept.shape[1] == 1
    low = bound(kept, gate.looks) if bounds else None
    high = bound(-kept, gate.passing) if bounds else None
    return Gated(
        verdict=verdict,
        blocks=len(kept),
        ratio=math.exp(float(np.nanmean(kept))) if len(kept) else None,
        at_least=None if low is None else math.exp(low),
        at_most=None if high is None else math.exp(-high),
        spread=float(kept.std(ddof=1)) if several else None,
    )


def blocks_that_tell(found: Gated, effect: float, looks: Looks) -> int | None:
    """Blocks by which an effect is told 80 times in 100, at no more than the spread seen so far.

    Args:
        found: two blocks or more; the spread is taken as large as it may well be.
        effect: between the truth and what the test would reject, as a fraction.
        looks: of the test.

    Returns:
        None where the blocks do not suffice, or no spread is known.
    """
    if found.spread is None:
        return None
    spread = max(cautious(found.spread, found.blocks), 1e-9)
    return blocks_to_find(math.log1p(effect) / spread, looks, POWER)


def most_spread(effect: float, blocks: int, looks: Looks) -> float | None:
    """The spread from block to block, as a fraction, up to which an effect is told by a block.

    Args:
        effect: as a fraction.
        blocks: by when.
        looks: of the test.

    Returns:
        None where so many blocks tell nothing.
    """
    reach = needed(blocks, looks, POWER)
    return math.expm1(math.log1p(effect) / reach) if reach < math.inf else None
