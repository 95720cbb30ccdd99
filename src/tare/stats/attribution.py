"""What a difference between two cells can be put down to.

An effect is a difference of means, paired by block. A part is the same difference of something that
was measured beside it, in the same unit, so that part over effect is a share. Parts of one list add
up where they do not overlap; nothing is got by subtraction, so what is missing stays missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats.arrays import BlockValues, FloatArray, complete_blocks, to_array
from tare.stats.budget import fieller
from tare.stats.interval import Interval, Method, mean_interval
from tare.stats.uncertain import Uncertain, combine, mean_of, student

__all__ = ["Attribution", "Part", "ProductChange", "attribute", "product_change"]


@dataclass(frozen=True)
class Part:
    """One thing that differs, and how much of the effect it makes up."""

    name: str
    here: Interval
    """Its mean in the cell in question, in the effect's unit."""
    there: Interval
    """Its mean in the cell that it is compared with."""
    change: Interval
    """Here less there, paired by block."""
    share: Interval
    """That over the effect, by Fieller: unbounded where the effect cannot be told from zero."""


@dataclass(frozen=True)
class Attribution:
    """An effect and its parts, the largest change first."""

    effect: Interval
    """Here less there, paired by block, in the unit of the input."""
    parts: tuple[Part, ...]
    together: Interval
    """Sum of the parts' changes over the same blocks."""
    share: Interval
    """That over the effect: 1 where the parts account for all of it."""
    n_used: int
    """Blocks in which the effect and every part have a value in both cells."""
    n_dropped: int
    """Blocks in which only some have."""

    @property
    def found(self) -> bool:
        """Whether there is an effect to explain: its interval excludes zero."""
        return self.effect.excludes(0.0)


def attribute(
    here: BlockValues,
    there: BlockValues,
    parts: Mapping[str, tuple[BlockValues, BlockValues]],
    confidence: float = 0.95,
) -> Attribution:
    """Hold the differences of parts against the difference of the whole.

    Args:
        here: mean of the cell in question, shape (blocks,), None where absent.
        there: mean of the cell that it is compared with, same blocks and unit.
        parts: name -> (here, there), same blocks and unit.
        confidence: nominal coverage of each interval by itself.

    Raises:
        ValueError: no part, different lengths, or an infinite value.
    """
    if not parts:
        raise ValueError("an effect cannot be put down to no part at all")
    columns, dropped = complete_blocks(
        here=here,
        there=there,
        **{f"here {i}": values for i, (values, _) in enumerate(parts.values())},
        **{f"there {i}": values for i, (_, values) in enumerate(parts.values())},
    )
    effect = columns["here"] - columns["there"]
    found = []
    total = np.zeros_like(effect)
    for i, name in enumerate(parts):
        one, other = columns[f"here {i}"], columns[f"there {i}"]
        total += one - other
        found.append(
            Part(
                name,
                mean_interval(one, confidence),
                mean_interval(other, confidence),
                mean_interval(one - other, confidence),
                fieller(one - other, effect, confidence),
            )
        )
    return Attribution(
        effect=mean_interval(effect, confidence),
        parts=tuple(sorted(found, key=lambda part: -abs(part.change.estimate or 0.0))),
        together=mean_interval(total, confidence),
        share=fieller(total, effect, confidence),
        n_used=int(effect.size),
        n_dropped=dropped,
    )


@dataclass(frozen=True)
class ProductChange:
    """What changes of a cost times a count, split into the two."""

    by_cost: Interval
    """What the change of the unit cost adds, at the mean of both counts."""
    by_count: Interval
    """What the change of the count adds, at the mean of both costs."""
    change: Interval
    """Both together: exactly the change of the product."""


def product_change(
    costs: tuple[Sequence[float | None], Sequence[float | None]],
    counts: tuple[Sequence[float], Sequence[float]],
    confidence: float = 0.95,
    *,
    paired: bool = False,
) -> ProductChange:
    """Split the change of a product symmetrically (Kitagawa 1955, J. Am. Statist. Assoc. 50:1168).

    c₁n₁ - c₀n₀ = (c₁ - c₀)(n₁ + n₀)/2 + (n₁ - n₀)(c₁ + c₀)/2. Variances are carried to first order,
    session by session, since cost and count of a session hang together; here and there are
    independent, unless they are paired.

    Args:
        costs: (here, there), the unit cost in each session, at least one each; None is left out.
        counts: (here, there), the count in the same sessions, or one that is known exactly.
        confidence: nominal coverage.
        paired: here and there are columns over the same blocks.

    Raises:
        ValueError: a list is empty, holds what is not finite, or has another length.
    """
    sides = [_whole(*side) for side in zip(costs, counts, strict=True)]
    if paired:
        both = np.isfinite(sides[0][0]) & np.isfinite(sides[1][0])
        sides = [(c[both], n if n.size == 1 else n[both]) for c, n in sides]
    else:
        sides = [(c[np.isfinite(c)], n if n.size == 1 else n[np.isfinite(c)]) for c, n in sides]
    if any(not c.size for c, _ in sides):
        raise ValueError("a cost or a count needs finite repeats, and has none")
    (c1, n1), (c0, n0) = ((float(c.mean()), float(n.mean())) for c, n in sides)
    cost_step, count_step = c1 - c0, n1 - n0
    cost_middle, count_middle = (c1 + c0) / 2.0, (n1 + n0) / 2.0
    fewest = min(c.size for c, _ in sides)

    def interval(value: float, *slopes: tuple[float, float]) -> Interval:
        """Of a value with these derivatives by (cost, count), here and there."""
        here, there = (
            slope[0] * c + (slope[1] * n if n.size > 1 else 0.0)
            for slope, (c, n) in zip(slopes, sides, strict=True)
        )
        terms = [here + there] if paired else [here, there]
        return _interval(combine(value, [mean_of(term) for term in terms]), confidence, fewest)

    return ProductChange(
        interval(
            cost_step * count_middle,
            (count_middle, cost_step / 2.0),
            (-count_middle, cost_step / 2.0),
        ),
        interval(
            count_step * cost_middle,
            (count_step / 2.0, cost_middle),
            (count_step / 2.0, -cost_middle),
        ),
        interval(c1 * n1 - c0 * n0, (n1, c1), (-n0, -c0)),
    )


def _whole(costs: Sequence[float | None], counts: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """One side as arrays, absent costs as NaN."""
    cost, count = to_array(costs, "costs"), to_array(counts, "counts")
    if not count.size or np.isnan(count).any() or count.size not in (1, cost.size):
        raise ValueError(f"a cost or a count needs finite repeats, not {costs} and {counts}")
    return cost, count


def _interval(value: Uncertain, confidence: float, n: int) -> Interval:
    if n < 2:
        return Interval(value.mean, None, None, confidence, Method.T, n)
    return student(value, confidence, n)
