"""Two sets of values that share no block: runs of two versions, or sessions of two runs."""

from __future__ import annotations

import math

import numpy as np
import scipy

from tare.stats.arrays import FloatArray
from tare.stats.bounds import POWER
from tare.stats.compare import Ratio
from tare.stats.interval import Interval, Method, exponential, mean_interval, sum_of_means

_CONFIDENCE = 0.95
_ROUNDING = 1e-12  # of a value: less than this is no spread
_FEWEST_STILL = 4
"""Values a side that show that they do not vary."""


def unpaired_ratio(
    a: FloatArray,
    b: FloatArray,
    confidence: float = _CONFIDENCE,
    *,
    cautious: bool = False,
) -> Ratio:
    """Compare two independent sets of runs, or of sessions.

    Assumes values that are independent and whose logarithms are about normal; their spreads may
    differ. Below two values a side there is no interval and p is 1. Where neither side varies, as
    counts may not, four values a side or more give p 0, or 1 where both are the same, and an
    interval without width; fewer give none.

    Args:
        a: the numerator's values, shape (values,), positive.
        b: the denominator's, shape (other values,), same unit.
        confidence: nominal coverage of each interval.
        cautious: take no more degrees of freedom than the smaller side has, where one has more
            values than the other: of few and skewed values, Welch's are too many.
    """
    logs = np.log(a), np.log(b)
    if _still(a) and _still(b):
        same = _still(np.concatenate((a, b)))
        ratio = _point(*logs, confidence, same=same)
        difference = _point(a, b, confidence, same=same)
        p = float(same or not ratio.resolved)
    else:
        ratio, p = _welch(*logs, confidence, cautious=cautious)
        difference, _ = _welch(a, b, confidence, cautious=cautious)
    return Ratio(
        ratio=ratio.exponential,
        difference=difference,
        a=mean_interval(logs[0], confidence, Method.T).exponential,
        b=mean_interval(logs[1], confidence, Method.T).exponential,
        p=p,
        sd_log=None,
        n_used=min(a.size, b.size),
        n_dropped=0,
        paired=False,
    )


def would_be_found(a: FloatArray, b: FloatArray, alpha: float) -> float | None:
    """The smallest ratio above 1 that as many values find 80 times in 100, at their spread.

    Args:
        a: as `unpaired_ratio`, cautious.
        b: likewise.
        alpha: level of the test, two-sided: over m cells, the m-th part of the family's.

    Returns:
        None where the values give no interval.
    """
    if (spread := _spread(np.log(a), np.log(b), cautious=True)) is None:
        return None
    error, freedom = spread
    reach = scipy.special.stdtrit(freedom, 1.0 - alpha / 2.0) + scipy.special.stdtrit(
        freedom, POWER
    )
    return exponential(float(reach) * error)


def _spread(a: FloatArray, b: FloatArray, *, cautious: bool) -> tuple[float, float] | None:
    """Standard error of the difference of means, and its degrees of freedom."""
    n = min(a.size, b.size)
    if n < 2:
        return None
    variance, freedom = sum_of_means((a, b))
    if cautious and a.size != b.size:
        freedom = min(freedom, n - 1.0)
    return math.sqrt(variance), freedom


def _still(values: FloatArray) -> bool:
    """Whether values differ by no more than rounding."""
    return not values.size or bool(np.ptp(values) <= _ROUNDING * np.abs(values).max())


def _point(a: FloatArray, b: FloatArray, confidence: float, *, same: bool) -> Interval:
    """Difference of means of values that do not vary."""
    n = min(a.size, b.size)
    estimate = float(0.0 if same else a.mean() - b.mean()) if n else None
    end = estimate if n >= _FEWEST_STILL else None
    return Interval(estimate, end, end, confidence, Method.T, n)


def _welch(
    a: FloatArray, b: FloatArray, confidence: float, *, cautious: bool
) -> tuple[Interval, float]:
    """Difference of means with its interval, and the p-value of none."""
    n = min(a.size, b.size)
    estimate = float(a.mean() - b.mean()) if n else None
    spread = _spread(a, b, cautious=cautious)
    if estimate is None or spread is None:
        return Interval(estimate, None, None, confidence, Method.T, n), 1.0
    error, freedom = spread
    reach = float(scipy.special.stdtrit(freedom, (1.0 + confidence) / 2.0)) * error
    p = float(2.0 * scipy.special.stdtr(freedom, -abs(estimate) / error))
    return Interval(estimate, estimate - reach, estimate + reach, confidence, Method.T, n), p
