"""The sign-flip test looked at after every block: may one stop as soon as it is clear?

A fixed test that is repeated after every block finds something in the end. Here the error that may
be made is spent little by little (Lan & DeMets 1983, Biometrika 70:659), in proportion to the
blocks (Kim & DeMets 1987, Biometrika 74:149, with rho = 1), and what it buys is counted among the
sign vectors themselves. All vectors, the observed one among them, go through the same looks; at
each, those with the largest sums leave, as many as the error spent by then allows. Where both arms
of a block are exchangeable, each vector was as likely to be the observed one, so that the chance
to leave at any look is at most the declared error: exactly, at every number of looks, whatever the
distribution, and however blocks hang together.

What is flipped is a unit: a block, or, where versions come in several replicas, such as builds, all
of a replica's blocks at once, since what one build has is in all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from tare.stats.arrays import FloatArray

_RESOLUTION = 200  # sign vectors that the whole error is worth, at least, where units allow them
_MOST_HEADS = 16
_SEED = 19830701  # any fixed number: the same data must give the same answer every time
_ROUNDING = 1e-12  # of the sum of magnitudes: equal sums may differ in their last bits
_WALKS = 4096
_STEPS = 24


@dataclass(frozen=True)
class Looks:
    """When a test is looked at, and what error it may make over all looks together."""

    least: int
    """Blocks before the first look."""
    most: int
    """Blocks at the last look; every block between has one too."""
    alpha: float
    """One-sided error over all looks, 0 to 1; of m comparisons, the m-th part of the whole."""

    def spent(self, blocks: int) -> float:
        """The error that may have been made by a look."""
        return self.alpha * min(1.0, blocks / self.most) if blocks >= self.least else 0.0


def smallest_p(units: int) -> float:
    """The smallest one-sided error that so many units can tell."""
    return 0.5**units


def rejected_at(differences: FloatArray, looks: Looks) -> int | None:
    """Look after every block whether the differences lie above zero; stop at the first yes.

    Args:
        differences: shape (blocks, replicas), NaN where absent, any unit. With one replica the
            units are the blocks, with more the replicas. Blocks without any value do not count.
        looks: when, and at what error.

    Returns:
        Blocks at the first look that rejects "at most zero", or None.
    """
    kept = differences[~np.isnan(differences).all(axis=1)][: looks.most]
    steps = np.nan_to_num(kept)
    several = steps.shape[1] > 1
    signs = _signs(steps.shape[1] if several else looks.most, looks.alpha)
    sums, alive, left = np.zeros(signs.shape[1]), np.ones(signs.shape[1], dtype=bool), 0
    slack = _ROUNDING * np.abs(steps).sum()
    for block, values in enumerate(steps):
        sums += values @ signs if several else values[0] * signs[block]
        budget = int(looks.spent(block + 1) * sums.size + 1e-9) - left
        if budget <= 0:
            continue
        going = sums[alive]
        # Whatever ties with the first that is beyond the budget stays, so that it is never passed.
        cut = np.partition(going, going.size - 1 - budget)[going.size - 1 - budget]
        leaving = alive & (sums > cut + slack)
        if leaving[0]:
            return block + 1
        left += int(np.count_nonzero(leaving))
        alive &= ~leaving
    return None


@lru_cache(maxsize=16)
def _signs(units: int, alpha: float) -> npt.NDArray[np.float64]:
    """Sign vectors, shape (units, vectors); the first is the observed one, all +1.

    All of the first units' combinations, each with random signs of the others: given the whole
    set, each vector is as likely as any other to be the observed one.
    """
    heads = min(units, _MOST_HEADS, math.ceil(math.log2(_RESOLUTION / alpha)))
    index = np.arange(2**heads)
    signs = np.empty((units, index.size))
    random = np.random.default_rng(_SEED)
    for unit in range(units):
        bits = index >> unit & 1 if unit < heads else random.integers(0, 2, index.size)
        signs[unit] = 1 - 2 * bits
        signs[unit, 0] = 1.0
    return signs


def bound(differences: FloatArray, looks: Looks) -> float | None:
    """The largest shift that the looks so far reject: the differences' centre is at least that.

    It holds at 1 - alpha however early the run was stopped.

    Args:
        differences: as `rejected_at`; the result has their unit.
        looks: likewise.

    Returns:
        None where the blocks are too few to reject anything.
    """
    values = differences[~np.isnan(differences)]
    if not values.size:
        return None
    low, high = float(values.min()) - 1e-9, float(values.max())
    if rejected_at(differences - low, looks) is None:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if rejected_at(differences - middle, looks) is None:
            high = middle
        else:
            low = middle
    return low


def cautious(spread: float, blocks: int) -> float:
    """The standard deviation that 95 times in 100 is no smaller than the true one, if normal.

    Args:
        spread: as so many blocks show it.
        blocks: two or more.
    """
    freedom = blocks - 1
    return spread * math.sqrt(freedom / float(scipy.special.chdtri(freedom, 0.95)))


def needed(blocks: int, looks: Looks, power: float) -> float:
    """The effect, in standard deviations of a block's difference, that is found by a block.

    Args:
        blocks: by when.
        looks: of the test.
        power: how often it is found, 0 to 1.

    Returns:
        Infinity where the blocks are too few to find anything.
    """
    low, high = 0.0, 64.0
    if _found(high, looks)[blocks - 1] < power:
        return math.inf
    for _ in range(_STEPS // 2):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _found(middle, looks)[blocks - 1] >= power else (middle, high)
    return high


def blocks_to_find(effect: float, looks: Looks, power: float) -> int | None:
    """Blocks by which an effect is found; None where not by the last.

    Args:
        effect: in standard deviations of a block's difference.
        looks: of the test.
        power: how often it is found, 0 to 1.
    """
    by = np.flatnonzero(_found(effect, looks) >= power)
    return int(by[0]) + 1 if by.size else None


def _found(effect: float, looks: Looks) -> FloatArray:
    """How often an effect is found by each block, shape (most,), of normal differences."""
    normal, limits = _walks(looks)
    share: FloatArray = np.maximum.accumulate(_t(normal + effect) > limits, axis=1).mean(axis=0)
    return share


@lru_cache(maxsize=16)
def _walks(looks: Looks) -> tuple[FloatArray, FloatArray]:
    """Normal differences, shape (walks, most), and the t at each look beyond which a walk leaves.

    Student's t stands for the sign-flip test, to which it is close for normal differences.
    """
    normal = np.random.default_rng(_SEED).standard_normal((_WALKS, looks.most))
    walks = _t(normal)
    alive, limits = np.ones(_WALKS, dtype=bool), np.full(looks.most, np.inf)
    for block in range(looks.most):
        # A look at which no vector but all + could be among the largest sums rejects nothing.
        spent = looks.spent(block + 1)
        budget = int(spent * _WALKS) - np.count_nonzero(~alive)
        if spent >= smallest_p(block + 1) and budget > 0:
            limits[block] = np.sort(walks[alive, block])[-1 - budget]
            alive &= walks[:, block] <= limits[block]
    return normal, limits


def _t(differences: FloatArray) -> FloatArray:
    """Student's t after each block, shape as given; 0 after the first."""
    n = np.arange(1, differences.shape[1] + 1)
    sums, squares = differences.cumsum(axis=1), (differences**2).cumsum(axis=1)
    variance = np.maximum(squares - sums**2 / n, 1e-300) / np.maximum(n - 1, 1)
    found: FloatArray = np.where(n > 1, sums / np.sqrt(n * variance), 0.0)
    return found
