"""Where a response's time goes, by cause: operations times what one of them costs.

Costs and counts are measured by themselves and nothing is got by subtracting the rest, so the sum
can fall short of the response or exceed it, and both are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats.arrays import BlockValues, to_array
from tare.stats.interval import Interval, Method, check_confidence, mean_interval
from tare.stats.uncertain import Uncertain, combine, mean_of, quantile, student

__all__ = ["CostLine", "Explanation", "Operation", "explain"]


@dataclass(frozen=True)
class Operation:
    """An operation's unit cost and how often a request needs it, each measured by itself."""

    name: str
    """Such as "datagram send" or "thread wake-up"."""
    unit_cost_ns: Sequence[float]
    """Mean cost of one operation in each of several repeated batches, ns, at least two: repeats
    over restarts, since batches of one process share its luck."""
    count_per_request: Sequence[float]
    """Operations for each request in each of several counting sessions; one where the count is
    known exactly."""
    overlaps: tuple[str, ...] = ()
    """Other operations of the list whose cost holds part of this one's."""


@dataclass(frozen=True)
class CostLine:
    """One operation's part in the response."""

    name: str
    """The operation."""
    unit_cost_ns: float
    """Mean cost of one, in ns."""
    count: float
    """Mean number for each request."""
    time: Interval
    """Cost times count, in ns for each request."""
    share: float
    """That over the mean response."""
    overlaps: tuple[str, ...]
    """Operations with which it overlaps: their sum counts something twice."""


@dataclass(frozen=True)
class Explanation:
    """How much of the mean response the operations' costs add up to."""

    lines: tuple[CostLine, ...]
    """One an operation, in the order given."""
    explained_ns: Interval
    """Their sum, in ns for each request."""
    response_ns: Interval
    """The mean response, in ns."""
    share: Interval
    """Explained over response: above 1 is shown as it is, never clipped."""
    overlapping: bool
    """Whether any two operations of the list overlap, so that the share counts something twice."""

    def explains_at_least(self, share: float) -> bool:
        """Whether the whole interval lies at or above the share (a fraction)."""
        return self.share.low is not None and self.share.low >= share


def explain(
    operations: Sequence[Operation], response_ns: BlockValues, confidence: float = 0.95
) -> Explanation:
    """Multiply unit costs by counts and hold the sum against the mean response.

    Both uncertainties are carried to first order (the delta method): the variance of a product is
    count² Var(cost) + cost² Var(count), variances add over operations, and the interval is
    Student's with Welch and Satterthwaite's degrees of freedom (Welch 1947, Biometrika 34:28).
    Costs, counts and response are taken as independent, which they are where they come from
    separate sessions. The interval of the share is on the log scale.

    What the interval does not hold: whether a hot loop's unit cost is what the operation costs cold
    in the middle of a request.

    Args:
        operations: at least one, with unique names.
        response_ns: mean response of each session, shape (sessions,), positive; absent as None.
        confidence: nominal coverage.

    Raises:
        ValueError: no operation, no response, a name twice, an overlap with an operation that is
            not in the list, or a cost or count that is negative, infinite or missing.
    """
    check_confidence(confidence)
    _check_names(operations)
    responses = to_array(response_ns, "response_ns")
    responses = responses[~np.isnan(responses)]
    if not responses.size or responses.min() <= 0.0:
        raise ValueError("explaining a response needs sessions with a positive mean response")
    response = mean_of(responses)
    products = [_product(operation) for operation in operations]
    total = combine(sum(cost.mean for cost in products), products)
    lines = tuple(
        CostLine(
            name=operation.name,
            unit_cost_ns=float(np.mean(operation.unit_cost_ns)),
            count=float(np.mean(operation.count_per_request)),
            time=student(product, confidence, len(operation.unit_cost_ns)),
            share=product.mean / response.mean,
            overlaps=operation.overlaps,
        )
        for operation, product in zip(operations, products, strict=True)
    )
    return Explanation(
        lines=lines,
        explained_ns=student(total, confidence, int(responses.size)),
        response_ns=mean_interval(responses, confidence, Method.T),
        share=_share(total, response, confidence, int(responses.size)),
        overlapping=any(operation.overlaps for operation in operations),
    )


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


def _product(operation: Operation) -> Uncertain:
    costs = np.array(operation.unit_cost_ns, dtype=np.float64)
    counts = np.array(operation.count_per_request, dtype=np.float64)
    for what, values, fewest in (("unit cost", costs, 2), ("count", counts, 1)):
        if values.ndim != 1 or values.size < fewest:
            raise ValueError(f"the {what} of {operation.name} needs {fewest} or more values")
        if not np.isfinite(values).all() or (values < 0.0).any():
            raise ValueError(f"the {what} of {operation.name} is missing, infinite or negative")
    cost, count = mean_of(costs), mean_of(counts)
    return combine(
        cost.mean * count.mean,
        [
            Uncertain(0.0, count.mean**2 * cost.variance, cost.freedom),
            Uncertain(0.0, cost.mean**2 * count.variance, count.freedom),
        ],
    )


def _share(part: Uncertain, whole: Uncertain, confidence: float, n: int) -> Interval:
    estimate = part.mean / whole.mean
    if part.mean == 0.0 or n < 2:
        return Interval(estimate, None, None, confidence, Method.T, n)
    relative = combine(
        0.0,
        [Uncertain(0.0, value.variance / value.mean**2, value.freedom) for value in (part, whole)],
    )
    reach = quantile(relative.freedom, confidence) * math.sqrt(relative.variance)
    low, high = estimate * math.exp(-reach), estimate * math.exp(reach)
    return Interval(estimate, low, high, confidence, Method.T, n)
