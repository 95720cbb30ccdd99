"""Means that carry their uncertainty through sums and products, to first order.

Variances add; degrees of freedom are Welch and Satterthwaite's (Welch 1947, Biometrika 34:28). What
is added is taken as independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from tare.stats.arrays import FloatArray
from tare.stats.interval import Interval, Method

__all__ = ["Uncertain", "combine", "mean_of", "quantile", "student"]


@dataclass(frozen=True)
class Uncertain:
    """A mean with the variance of that mean and its degrees of freedom."""

    mean: float
    variance: float
    freedom: float


def mean_of(values: FloatArray) -> Uncertain:
    """Mean of independent repeats, shape (n,); one value alone is taken as exact."""
    n = values.size
    if n < 2:
        return Uncertain(float(values.mean()), 0.0, math.inf)
    return Uncertain(float(values.mean()), float(values.var(ddof=1)) / n, n - 1.0)


def combine(mean: float, terms: Sequence[Uncertain]) -> Uncertain:
    """Give a mean the variances of its terms, added up."""
    variance = sum(term.variance for term in terms)
    spread = sum(term.variance**2 / term.freedom for term in terms)
    return Uncertain(mean, variance, variance**2 / spread if spread > 0.0 else math.inf)


def student(value: Uncertain, confidence: float, n: int) -> Interval:
    """Student's interval of a mean; `n` is what the interval says it rests on."""
    reach = quantile(value.freedom, confidence) * math.sqrt(value.variance)
    return Interval(value.mean, value.mean - reach, value.mean + reach, confidence, Method.T, n)


def quantile(freedom: float, confidence: float) -> float:
    """How many standard errors an interval reaches to each side."""
    upper = (1.0 + confidence) / 2.0
    return float(stats.norm.ppf(upper) if math.isinf(freedom) else stats.t.ppf(upper, freedom))
