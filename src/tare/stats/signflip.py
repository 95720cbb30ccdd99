"""The sign-flip test of paired differences, and the interval that it implies.

Under the null hypothesis the two arms of a block are exchangeable, so each difference could as
well have had the other sign (Fisher 1935, The Design of Experiments, section 21). The interval is
the set of shifts that the test does not reject. Its ends are order statistics of the means of the
subsets of the differences (Hartigan 1969, JASA 64:1303, typical value theorem), and it covers the
centre of *any* symmetric distribution at exactly its nominal rate: normal, heavy tailed, or the
difference of two programs that each start in one of two modes.

Symmetry is the one assumption. It holds by randomisation when both arms share a distribution up to
a shift; it fails where one arm alone is skewed (`docs/method.md` shows by how much).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tare.stats.arrays import FloatArray

EXACT_BLOCKS = 16
"""Up to here all 2^n sign vectors are tried; beyond, a seeded sample of as many."""

_DRAWS = 2**EXACT_BLOCKS
_CHUNK = 12  # blocks; 4096 sums fit a core's nearest cache
_SEED = 20090318  # any fixed number: the same data must give the same answer every time
_ROUNDING = 1e-12  # of the sum of magnitudes: equal sums may differ in their last bits


def smallest_p(blocks: int) -> float:
    """Return the smallest two-sided p-value that this many blocks can give; 1 without blocks."""
    if blocks <= 0:
        return 1.0
    return 2.0 / float(2**blocks if blocks <= EXACT_BLOCKS else _DRAWS + 2)


def _all_subset_sums(differences: FloatArray) -> FloatArray:
    """Sums over all 2^n subsets; bit i of the index says whether block i is in."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums, sums + difference])
    return sums


@lru_cache(maxsize=4)  # of 1000 blocks it is 11 MB
def _sampled_subsets(blocks: int) -> tuple[npt.NDArray[np.uint16], ...]:
    """Random subsets, their complements, the empty and the full set, as bits of each chunk.

    Complements make the two tails mirror images, as they are in the whole set.
    """
    random = np.random.default_rng(_SEED)
    chunks = []
    for start in range(0, blocks, _CHUNK):
        full = 2 ** min(_CHUNK, blocks - start) - 1
        half = np.append(random.integers(0, full + 1, size=_DRAWS // 2), 0).astype(np.uint16)
        chunks.append(np.concatenate([half, full ^ half]))
    return tuple(chunks)


def _subset_sums(differences: FloatArray) -> FloatArray:
    """Sums over subsets, the empty and the full one included, shape (number of subsets,)."""
    blocks = differences.size
    if blocks <= EXACT_BLOCKS:
        return _all_subset_sums(differences)
    sums = np.zeros(_DRAWS + 2)
    for i, subsets in enumerate(_sampled_subsets(blocks)):
        # A chunk's sums are few enough to be tabled, so a sample costs one look-up a chunk.
        sums += _all_subset_sums(differences[i * _CHUNK : (i + 1) * _CHUNK])[subsets]
    return sums


@lru_cache(maxsize=32)
def _non_empty(blocks: int) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """Which of the subsets are not empty, and their sizes."""
    sizes = _subset_sums(np.ones(blocks))
    some = np.flatnonzero(sizes)
    return some, sizes[some]


def p_value(differences: FloatArray) -> float:
    """Return the two-sided p-value of "the differences are symmetric about zero".

    Exact up to `EXACT_BLOCKS` blocks, otherwise Monte Carlo with the observed signs counted among
    the draws, so that it is valid and never 0 (Phipson & Smyth 2010, SAGMB 9:39).

    Args:
        differences: shape (blocks,), finite, any unit. Without blocks the answer is 1.
    """
    if differences.size == 0:
        return 1.0
    sums = _subset_sums(differences)
    # Flipping a subset's signs changes the sum T to T - 2 * (the subset's sum), so the flipped sum
    # is at least as extreme as |T|, on T's own side, exactly where the subset's sum has T's
    # opposite sign or is zero. The other side mirrors it.
    slack = _ROUNDING * np.abs(differences).sum()
    positive = differences.sum() >= 0
    extreme = np.count_nonzero(sums <= slack if positive else sums >= -slack)
    return float(min(1.0, 2.0 * extreme / sums.size))


def interval(differences: FloatArray, confidence: float) -> tuple[float, float] | None:
    """Return the shifts that the two-sided test at level 1 - confidence does not reject.

    Args:
        differences: shape (blocks,), finite, any unit; the result has the same unit.
        confidence: between 0 and 1.

    Returns:
        (low, high), or None where the blocks are too few to exclude anything
        (5 or fewer at 95 %).
    """
    if differences.size == 0:
        return None
    sums = _subset_sums(differences)
    some, sizes = _non_empty(differences.size)
    means = sums[some] / sizes
    # The test's tail for a shift holds the subsets whose mean lies beyond it, and the empty ones.
    tail = int((1.0 - confidence) * sums.size / 2.0 + _ROUNDING)
    cut = tail - (sums.size - some.size)
    if cut < 0:
        return None
    ranked = np.partition(means, [cut, means.size - 1 - cut])
    return float(ranked[cut]), float(ranked[means.size - 1 - cut])
