"""What of a whole each part makes up: by layer, by thread, by operation, or of a difference.

Whole and parts are means over the same blocks, since means add and medians do not. Every part is
measured by itself and nothing is got by subtracting the rest, so the sum can fall short of the
whole (something is missing) or exceed it (something is counted twice), and both are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import scipy

from tare.stats.arrays import BlockValues, FloatArray, complete_blocks
from tare.stats.interval import Interval, Method, mean_interval


@dataclass(frozen=True)
class Share:
    """One part of a whole."""

    name: str
    """Such as "middleware", "vcpu on CPU" or "send, server"."""
    amount: Interval
    """Its mean, in the unit of the whole; negative where it takes away."""
    share: Interval
    """That over the whole's mean, without unit."""


@dataclass(frozen=True)
class Change(Share):
    """One part of a difference: the amount is here less there, paired by block."""

    here: Interval
    """Its mean in the cell in question."""
    there: Interval
    """Its mean in the cell that it is compared with."""


P_co = TypeVar("P_co", bound=Share, covariant=True)


@dataclass(frozen=True)
class Shares(Generic[P_co]):
    """A whole and its parts."""

    whole: Interval
    parts: tuple[P_co, ...]
    together: Share
    """Their sum: a share of 1 accounts for all of the whole. Above 1 parts overlap, such as threads
    that ran at the same time, which nothing corrects; below 1 something is missing."""
    n_used: int
    """Blocks in which the whole and every part have a value."""


def shares_of(
    parts: Mapping[str, BlockValues], whole: BlockValues, confidence: float = 0.95
) -> Shares[Share]:
    """Hold parts against their whole, in the order given.

    Args:
        parts: name -> one value a block, shape (blocks,), in the unit of the whole.
        whole: same blocks.
        confidence: nominal coverage of each interval by itself; shares have Fieller's.

    Raises:
        ValueError: no part, different lengths, or an infinite value.
    """
    if not parts:
        raise ValueError("a whole needs at least one part")
    # Keyed by position, since a part may bear any name, the whole's included.
    columns, _ = complete_blocks(
        whole=whole, **{f"part {i}": values for i, values in enumerate(parts.values())}
    )
    all_of_it = columns.pop("whole")

    def share(name: str, values: FloatArray) -> Share:
        return Share(
            name, mean_interval(values, confidence), fieller(values, all_of_it, confidence)
        )

    return Shares(
        whole=mean_interval(all_of_it, confidence),
        parts=tuple(share(*part) for part in zip(parts, columns.values(), strict=True)),
        together=share("all together", np.sum(list(columns.values()), axis=0)),
        n_used=int(all_of_it.size),
    )


def changes_of(
    parts: Mapping[str, tuple[BlockValues, BlockValues]],
    whole: tuple[BlockValues, BlockValues],
    confidence: float = 0.95,
) -> Shares[Change]:
    """Hold the differences of parts against the difference of the whole, the largest first.

    Args:
        parts: name -> (here, there), each as in `shares_of`.
        whole: the same of the whole.
        confidence: as in `shares_of`; a share is unbounded where the difference of the whole cannot
            be told from zero.

    Raises:
        ValueError: as `shares_of`.
    """
    pairs = (whole, *parts.values())
    columns, _ = complete_blocks(
        **{f"here {i}": here for i, (here, _) in enumerate(pairs)},
        **{f"there {i}": there for i, (_, there) in enumerate(pairs)},
    )
    sides = [(columns[f"here {i}"], columns[f"there {i}"]) for i in range(len(pairs))]
    effect, *steps = (here - there for here, there in sides)
    found = shares_of(dict(zip(parts, steps, strict=True)), effect, confidence)
    changes = (
        Change(
            part.name, part.amount, part.share, *(mean_interval(side, confidence) for side in ends)
        )
        for part, ends in zip(found.parts, sides[1:], strict=True)
    )
    largest_first = sorted(changes, key=lambda change: -abs(change.amount.estimate or 0.0))
    return Shares(found.whole, tuple(largest_first), found.together, found.n_used)


def by_contrast(
    *,
    base_floor: BlockValues,
    env_floor: BlockValues,
    base_middleware: BlockValues,
    env_middleware: BlockValues,
    confidence: float = 0.95,
) -> Shares[Share]:
    """Split a response by switching each layer on by itself: a two-by-two factorial in each block.

        floor           = (base, floor)
        virtualisation  = (env, floor) - (base, floor)
        middleware      = (base, middleware) - (base, floor)
        interaction     = (env, middleware) - (env, floor) - (base, middleware) + (base, floor)
        whole           = (env, middleware)

    The four sum to the whole by construction, so that their sum proves nothing. The interaction is
    a contrast with its own interval, not a remainder that hides errors: how much more (or less) the
    middleware costs in this environment than in the baseline.

    Args:
        base_floor: shape (blocks,), ns: the floor transport in the baseline environment.
        env_floor: the same in the environment in question.
        base_middleware: the middleware in the baseline environment.
        env_middleware: the same in the environment in question.
        confidence: as in `shares_of`.

    Raises:
        ValueError: different lengths, or an infinite value.
    """
    cells, _ = complete_blocks(
        base_floor=base_floor,
        env_floor=env_floor,
        base_middleware=base_middleware,
        env_middleware=env_middleware,
    )
    floor, env, middleware, whole = cells.values()
    parts = {
        "floor": floor,
        "virtualisation": env - floor,
        "middleware": middleware - floor,
        "interaction": whole - env - middleware + floor,
    }
    return shares_of(parts, whole, confidence)


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
    t2 = float(scipy.special.stdtrit(n - 1, (1.0 + confidence) / 2.0)) ** 2
    a = base**2 - t2 * float(covariance[1, 1])
    b = mean * base - t2 * float(covariance[0, 1])
    c = mean**2 - t2 * float(covariance[0, 0])
    if a <= 0.0:
        return Interval(estimate, None, None, confidence, Method.T, n)
    root = math.sqrt(max(b * b - a * c, 0.0))
    low, high = (b - root) / a, (b + root) / a
    return Interval(estimate, min(low, estimate), max(high, estimate), confidence, Method.T, n)
