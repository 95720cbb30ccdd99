"""Operations times what one of them costs: their share of a response, and of its change.

Uncertainties are carried to first order (the delta method), session by session, since the cost and
the count of a session hang together: a slow boot makes all of its costs dear at once. What is added
up is independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from tare.stats.arrays import BlockValues, FloatArray, complete_blocks, to_array
from tare.stats.interval import (
    Interval,
    Method,
    check_confidence,
    mean_interval,
    ratio_ends,
    sum_of_means,
)
from tare.stats.shares import Share, Shares


@dataclass(frozen=True)
class Operation:
    """An operation's unit cost and how often a request needs it, each measured by itself."""

    name: str
    """Such as "datagram send" or "thread wake-up"."""
    unit_cost_ns: Sequence[float | None]
    """Mean cost of one operation in each counting session, ns, at least two: repeats over restarts,
    since batches of one process share its luck. In the order of the response's sessions, None where
    absent, if `beside_response`."""
    count_per_request: Sequence[float]
    """Operations for each request in the same counting sessions; one where the count is known
    exactly."""
    overlaps: tuple[str, ...] = ()
    """Other operations of the list whose cost holds part of this one's."""
    beside_response: bool = False
    """Whether the cost was read in the very sessions whose response is explained."""


@dataclass(frozen=True)
class Cost(Share):
    """What an operation makes up of a response: cost times count, ns for each request."""

    unit_cost_ns: float
    """Mean cost of one, in ns."""
    count: float
    """Mean number for each request."""
    overlaps: tuple[str, ...]
    """Operations with which it overlaps: their sum counts something twice."""


def costs_of(
    operations: Sequence[Operation], response_ns: BlockValues, confidence: float = 0.95
) -> Shares[Cost]:
    """Multiply unit costs by counts and hold the sum against the mean response.

    Each counting session gives one value, what it adds to the sum, and each session of the response
    another, what was read in it less its response, since what was read beside a response rises with
    it; variances are those of such values, whatever costs, counts and responses do together.
    Counting sessions and those of the response are different settings-up, and independent. The
    interval is Student's, that of the share of all together on the log scale; the share of one
    operation has none.

    What the interval does not hold: whether a hot loop's unit cost is what the operation costs cold
    in the middle of a request.

    Args:
        operations: at least one, with unique names; those that were counted, over the same
            counting sessions in the same order.
        response_ns: mean response of each session, shape (sessions,), positive; absent as None.
        confidence: nominal coverage.

    Raises:
        ValueError: no operation, no response, a name twice, an overlap with an operation that is
            not in the list, different numbers of sessions, or a cost or count that is negative,
            infinite or missing.
    """
    check_confidence(confidence)
    _check_names(operations)
    columns, _ = complete_blocks(
        response=response_ns,
        **{f"of {one.name}": list(one.unit_cost_ns) for one in operations if one.beside_response},
    )
    response = columns["response"]
    if not response.size or response.min() <= 0.0:
        raise ValueError("explaining a response needs sessions with a positive mean response")
    base = float(response.mean())
    products = [_product(one, columns.get(f"of {one.name}")) for one in operations]
    counted, read = (
        [
            p.values
            for p, one in zip(products, operations, strict=True)
            if one.beside_response is beside
        ]
        for beside in (False, True)
    )
    if len({values.size for values in counted}) > 1:
        raise ValueError("operations were counted in different numbers of sessions")
    total = sum(product.mean for product in products)
    sums = [np.sum(some, axis=0) for some in (counted, read) if some]
    relative = []
    if total:
        beside = np.sum(read, axis=0) if read else 0.0
        relative = [sums[0] / total] if counted else []
        relative.append(beside / total - response / base)
    return Shares(
        whole=mean_interval(response, confidence, Method.T),
        parts=tuple(
            Cost(
                one.name,
                _interval(product.mean, [product.values], confidence),
                Interval(product.mean / base, None, None, confidence, Method.T, 0),
                product.cost,
                product.count,
                one.overlaps,
            )
            for one, product in zip(operations, products, strict=True)
        ),
        together=Share(
            "all together",
            _interval(total, sums, confidence),
            _share(total / base, relative, confidence, int(response.size)),
        ),
        n_used=int(response.size),
    )


@dataclass(frozen=True)
class _Product:
    """Cost times count of one operation, and what each session adds to it, to first order."""

    mean: float
    cost: float
    count: float
    values: FloatArray
    """Shape (sessions,): their mean's variance is the product's."""


def _product(operation: Operation, beside: FloatArray | None) -> _Product:
    costs = np.array(operation.unit_cost_ns, dtype=np.float64) if beside is None else beside
    counts = np.array(operation.count_per_request, dtype=np.float64)
    fewest = 2 if beside is None else 1
    for what, values, least in (("unit cost", costs, fewest), ("count", counts, 1)):
        if values.ndim != 1 or values.size < least:
            raise ValueError(f"the {what} of {operation.name} needs {least} or more values")
        if not np.isfinite(values).all() or (values < 0.0).any():
            raise ValueError(f"the {what} of {operation.name} is missing, infinite or negative")
    if counts.size not in (1, costs.size):
        raise ValueError(f"{operation.name} has {costs.size} costs and {counts.size} counts")
    cost, count = float(costs.mean()), float(counts.mean())
    return _Product(cost * count, cost, count, _moved(costs, counts, count, cost))


def _moved(costs: FloatArray, counts: FloatArray, by_cost: float, by_count: float) -> FloatArray:
    """What sessions move of a value with these derivatives; a single count is known exactly."""
    return by_cost * costs + (by_count * counts if counts.size > 1 else 0.0)


def _check_names(operations: Sequence[Operation]) -> None:
    if not operations:
        raise ValueError("explaining a response needs at least one operation")
    names = [operation.name for operation in operations]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"operations stand in the list twice: {', '.join(twice)}")
    for operation in operations:
        for other in operation.overlaps:
            if other not in names:
                raise ValueError(f"{operation.name} overlaps {other}, which is not in the list")


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

    c₁n₁ - c₀n₀ = (c₁ - c₀)(n₁ + n₀)/2 + (n₁ - n₀)(c₁ + c₀)/2. Here and there are independent,
    unless they are paired.

    Args:
        costs: (here, there), the unit cost in each session, at least one each; None is left out.
        counts: (here, there), the count in the same sessions, or one that is known exactly.
        confidence: nominal coverage.
        paired: here and there are columns over the same blocks.

    Raises:
        ValueError: a list is empty, holds what is not finite, or has another length.
    """
    whole = [_columns(*side) for side in zip(costs, counts, strict=True)]
    known = [np.isfinite(cost) for cost, _ in whole]
    if paired:
        known = [known[0] & known[1]] * 2
    sides = [
        (cost[there], count if count.size == 1 else count[there])
        for (cost, count), there in zip(whole, known, strict=True)
    ]
    if any(not cost.size for cost, _ in sides):
        raise ValueError("a cost or a count needs finite repeats, and has none")
    (c1, n1), (c0, n0) = ((float(c.mean()), float(n.mean())) for c, n in sides)
    cost_step, count_step = c1 - c0, n1 - n0
    cost_middle, count_middle = (c1 + c0) / 2.0, (n1 + n0) / 2.0

    def interval(value: float, *slopes: tuple[float, float]) -> Interval:
        """Of a value with these derivatives by (cost, count), here and there."""
        terms = [_moved(*side, *slope) for side, slope in zip(sides, slopes, strict=True)]
        return _interval(value, [terms[0] + terms[1]] if paired else terms, confidence)

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


def _columns(
    costs: Sequence[float | None], counts: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """One side as arrays, absent costs as NaN."""
    cost, count = to_array(costs, "costs"), to_array(counts, "counts")
    if not count.size or np.isnan(count).any() or count.size not in (1, cost.size):
        raise ValueError(f"a cost or a count needs finite repeats, not {costs} and {counts}")
    return cost, count


def _interval(value: float, terms: Sequence[FloatArray], confidence: float) -> Interval:
    """Student's interval of a sum of means; none where any of them is of a single session."""
    n = min(term.size for term in terms)
    if n < 2:
        return Interval(value, None, None, confidence, Method.T, n)
    reach = _reach(terms, confidence)
    return Interval(value, value - reach, value + reach, confidence, Method.T, n)


def _share(estimate: float, relative: Sequence[FloatArray], confidence: float, n: int) -> Interval:
    """Likewise of a quotient, on the log scale; `relative` are its terms over their means."""
    if not relative or n < 2:
        return Interval(estimate, None, None, confidence, Method.T, n)
    reach = _reach(relative, confidence)
    low, high = ratio_ends(math.log(estimate) - reach, math.log(estimate) + reach)
    return Interval(estimate, low, high, confidence, Method.T, n)


def _reach(terms: Sequence[FloatArray], confidence: float) -> float:
    """How far the interval of a sum of independent means reaches to each side."""
    variance, freedom = sum_of_means(terms)
    return float(scipy.special.stdtrit(freedom, (1.0 + confidence) / 2.0)) * math.sqrt(variance)
