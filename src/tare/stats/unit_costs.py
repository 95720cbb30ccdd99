"""Where a response's time goes, by cause: operations times what one of them costs.

Costs and counts are measured by themselves and nothing is got by subtracting the rest, so the sum
can fall short of the response or exceed it, and both are shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tare.stats.arrays import BlockValues, FloatArray, complete_blocks
from tare.stats.interval import Interval, Method, check_confidence, mean_interval
from tare.stats.uncertain import Uncertain, combine, mean_of, quantile, student

__all__ = ["CostLine", "Explanation", "Operation", "explain"]


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

    Uncertainties are carried to first order (the delta method), session by session: a slow boot
    makes all of its costs dear at once, and what was read beside a response rises with it. So each
    counting session gives one value, what it adds to the sum, and each session of the response
    another, what was read in it less its response; variances are those of such values, whatever
    costs, counts and responses do together. Counting sessions and those of the response are
    different settings-up, and independent. The interval is Student's with Welch and Satterthwaite's
    degrees of freedom (Welch 1947, Biometrika 34:28), that of the share on the log scale.

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
    response, beside = _beside(operations, response_ns)
    n = int(response.size)
    parts = [_part(one, beside.get(one.name)) for one in operations]
    counted = [part for part, one in zip(parts, operations, strict=True) if not one.beside_response]
    read = [part for part, one in zip(parts, operations, strict=True) if one.beside_response]
    if len({part.values.size for part in counted}) > 1:
        raise ValueError("operations were counted in different numbers of sessions")
    total = sum(part.mean for part in parts)
    sums = [mean_of(_added(some)) for some in (counted, read) if some]
    explained = combine(total, sums)
    relative = [mean_of(_added(counted) / total)] if counted and total else []
    if total:
        relative.append(
            mean_of((_added(read) if read else 0.0) / total - response / response.mean())
        )
    return Explanation(
        lines=tuple(
            CostLine(
                name=one.name,
                unit_cost_ns=part.cost,
                count=part.count,
                time=_student(combine(part.mean, [mean_of(part.values)]), confidence, part.values),
                share=part.mean / float(response.mean()),
                overlaps=one.overlaps,
            )
            for one, part in zip(operations, parts, strict=True)
        ),
        explained_ns=_student(explained, confidence, *(_added(some) for some in (counted, read))),
        response_ns=mean_interval(response, confidence, Method.T),
        share=_share(total / float(response.mean()), relative, confidence, n),
        overlapping=any(one.overlaps for one in operations),
    )


@dataclass(frozen=True)
class _Part:
    """One operation's product, and what each session adds to it, to first order."""

    mean: float
    cost: float
    count: float
    values: FloatArray
    """Shape (sessions,): their mean's variance is the product's."""


def _part(operation: Operation, beside: FloatArray | None) -> _Part:
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
    known = counts.size == 1
    return _Part(cost * count, cost, count, costs * count + (0.0 if known else cost * counts))


def _beside(
    operations: Sequence[Operation], response_ns: BlockValues
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """The responses of complete sessions, and what was read beside them."""
    columns, _ = complete_blocks(
        response=response_ns,
        **{f"of {one.name}": list(one.unit_cost_ns) for one in operations if one.beside_response},
    )
    response = columns.pop("response")
    if not response.size or response.min() <= 0.0:
        raise ValueError("explaining a response needs sessions with a positive mean response")
    return response, {name.removeprefix("of "): values for name, values in columns.items()}


def _added(parts: Sequence[_Part]) -> FloatArray:
    return np.asarray(np.sum([part.values for part in parts], axis=0), dtype=np.float64)


def _student(value: Uncertain, confidence: float, *sessions: FloatArray) -> Interval:
    """Student's interval; none where any source of the value is a single session."""
    sizes = [one.size for one in sessions if one.ndim]
    n = min(sizes)
    if n < 2:
        return Interval(value.mean, None, None, confidence, Method.T, n)
    return student(value, confidence, n)


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


def _share(estimate: float, relative: Sequence[Uncertain], confidence: float, n: int) -> Interval:
    if not relative or n < 2:
        return Interval(estimate, None, None, confidence, Method.T, n)
    of = combine(0.0, relative)
    reach = quantile(of.freedom, confidence) * math.sqrt(of.variance)
    low, high = estimate * math.exp(-reach), estimate * math.exp(reach)
    return Interval(estimate, low, high, confidence, Method.T, n)
