"""Where a response's time goes, by contrast: switch each layer on by itself and subtract.

Four cells of a two-by-two factorial, each once a block: the baseline environment and the one in
question, each with the floor transport and with the middleware.

    floor           = (base, floor)
    virtualisation  = (env, floor) - (base, floor)
    middleware      = (base, middleware) - (base, floor)
    interaction     = (env, middleware) - (env, floor) - (base, middleware) + (base, floor)
    total           = (env, middleware)

The four parts sum to the total by construction, in every block: the sum proves nothing, and the
interaction is a measured contrast with its own interval, not a remainder that hides errors. It says
how much more (or less) the middleware costs in this environment than in the baseline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tare.stats.arrays import BlockValues, FloatArray, complete_blocks
from tare.stats.interval import Interval, Method, mean_interval

__all__ = ["ContrastBudget", "Part", "contrast_budget", "fieller"]


@dataclass(frozen=True)
class Part:
    """One part of the budget."""

    name: str
    """Which: floor, virtualisation, middleware or interaction."""
    time: Interval
    """Arithmetic mean over blocks, in ns. May be negative: an interaction can save time."""
    share: Interval
    """Ratio of the part's mean to the total's mean, without unit. The shares sum to 1."""


@dataclass(frozen=True)
class ContrastBudget:
    """A response split by contrast."""

    parts: tuple[Part, ...]
    """Floor, virtualisation, middleware, interaction, in this order."""
    total: Interval
    """The response of the environment in question with the middleware, in ns."""
    n_used: int
    """Blocks in which all four cells have a value."""
    n_dropped: int
    """Blocks in which only some of them have."""


def contrast_budget(
    *,
    base_floor: BlockValues,
    env_floor: BlockValues,
    base_middleware: BlockValues,
    env_middleware: BlockValues,
    confidence: float = 0.95,
    method: Method = Method.SIGN_FLIP,
) -> ContrastBudget:
    """Split the total by contrasts within blocks.

    Args:
        base_floor: shape (blocks,), ns, one summary a session; means add exactly, medians of a
            skewed session only as far as the sessions' shapes agree.
        env_floor: same shape.
        base_middleware: same shape.
        env_middleware: same shape.
        confidence: nominal coverage of each interval by itself.
        method: of the intervals in ns. Shares have Fieller's.

    Raises:
        ValueError: different lengths, or an infinite value.
    """
    cells, dropped = complete_blocks(
        base_floor=base_floor,
        env_floor=env_floor,
        base_middleware=base_middleware,
        env_middleware=env_middleware,
    )
    floor, total = cells["base_floor"], cells["env_middleware"]
    virtualisation = cells["env_floor"] - floor
    middleware = cells["base_middleware"] - floor
    parts = {
        "floor": floor,
        "virtualisation": virtualisation,
        "middleware": middleware,
        "interaction": total - cells["env_floor"] - cells["base_middleware"] + floor,
    }
    return ContrastBudget(
        parts=tuple(
            Part(name, mean_interval(part, confidence, method), fieller(part, total, confidence))
            for name, part in parts.items()
        ),
        total=mean_interval(total, confidence, method),
        n_used=int(total.size),
        n_dropped=dropped,
    )


def fieller(part: FloatArray, whole: FloatArray, confidence: float = 0.95) -> Interval:
    """Estimate mean(part) / mean(whole) over paired blocks (Fieller 1954, JRSS B 16:175).

    The interval holds the shares s for which Student's test does not reject that part - s * whole
    has mean zero. It assumes that these differences are normal.

    Args:
        part: shape (blocks,), finite.
        whole: same shape and unit.
        confidence: nominal coverage.

    Returns:
        An unresolved interval below two blocks, or where the whole's mean cannot be told from
        zero (the set of shares is then unbounded).
    """
    n = int(part.size)
    if n == 0 or whole.mean() == 0.0:
        return Interval(None, None, None, confidence, Method.T, n)
    mean, base = float(part.mean()), float(whole.mean())
    estimate = mean / base
    if n == 1:
        return Interval(estimate, None, None, confidence, Method.T, 1)
    covariance = np.cov(part, whole, ddof=1) / n
    t2 = float(stats.t.ppf((1.0 + confidence) / 2.0, n - 1)) ** 2
    a = base**2 - t2 * float(covariance[1, 1])
    b = mean * base - t2 * float(covariance[0, 1])
    c = mean**2 - t2 * float(covariance[0, 0])
    if a <= 0.0:
        return Interval(estimate, None, None, confidence, Method.T, n)
    root = math.sqrt(max(b * b - a * c, 0.0))
    low, high = (b - root) / a, (b + root) / a
    return Interval(estimate, min(low, estimate), max(high, estimate), confidence, Method.T, n)
