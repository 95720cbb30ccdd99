"""Many comparisons at once: Holm's adjustment, and whether the blocks can resolve the family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats import signflip

_MOST_BLOCKS = 1000


@dataclass(frozen=True)
class Resolvability:
    """Whether a family's strictest test could ever succeed with its blocks."""

    resolvable: bool
    """True where the smallest possible p is at most the strictest threshold."""
    smallest_p: float
    """Smallest two-sided sign-flip p-value that the blocks can give."""
    threshold: float
    """Holm's first threshold, alpha over the number of comparisons."""
    blocks_needed: int | None
    """Fewest blocks that would do; None where no number would."""


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values so that rejecting those at most alpha bounds the family-wise error by alpha.

    Holm 1979, Scand. J. Statist. 6:65. Valid under any dependence. A NaN stands for a test that
    could not be made: it counts as a member of the family with p = 1 and comes back as 1, so that
    a failure is never significant and never makes another test easier.

    Args:
        p_values: shape (comparisons,), 0 to 1 or NaN.

    Returns:
        Adjusted p-values in the order given.

    Raises:
        ValueError: a p-value outside 0 to 1.
    """
    p = np.array(p_values, dtype=np.float64)
    p[np.isnan(p)] = 1.0
    if ((p < 0.0) | (p > 1.0)).any():
        raise ValueError(f"p-values must lie between 0 and 1: {list(p_values)}")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return tuple(float(value) for value in adjusted)


def family_resolvable(blocks: int, comparisons: int, alpha: float = 0.05) -> Resolvability:
    """Say whether so many blocks can give any verdict in a family of so many comparisons.

    Args:
        blocks: complete blocks planned or present.
        comparisons: size of the family, at least 1.
        alpha: family-wise error rate, 0 to 1.

    Raises:
        ValueError: no comparison, a negative number of blocks, or alpha outside (0, 1).
    """
    if comparisons < 1:
        raise ValueError(f"a family has at least one comparison, not {comparisons}")
    if blocks < 0:
        raise ValueError(f"the number of blocks cannot be {blocks}")
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha must lie between 0 and 1, but is {alpha}")
    threshold = alpha / comparisons
    smallest = signflip.smallest_p(blocks)
    needed = next((n for n in range(1, _MOST_BLOCKS) if signflip.smallest_p(n) <= threshold), None)
    return Resolvability(smallest <= threshold, smallest, threshold, needed)
