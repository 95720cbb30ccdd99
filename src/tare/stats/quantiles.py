"""Percentiles with distribution-free intervals, or the word "unresolved".

The k-th smallest of n independent samples exceeds a quantile exactly when fewer than k samples lie
below it, which is a binomial event whatever the distribution (Conover 1999, Practical Nonparametric
Statistics, section 3.2; David & Nagaraja 2003, Order Statistics, section 7.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from tare.stats.effective import effective_samples
from tare.stats.interval import check_confidence


@dataclass(frozen=True)
class Percentile:
    """One percentile of one session's samples."""

    percent: float
    """Which one, 0 to 100."""
    value: float | None
    """The sample quantile (an observed value, never interpolated), in the samples' unit; None
    where the samples cannot resolve it."""
    low: float | None
    """Lower end of its interval, an observed value; None where unresolved."""
    high: float | None
    """Upper end of its interval, an observed value; None where unresolved, or beyond them all."""
    confidence: float
    """Least coverage of the interval, 0 to 1."""
    effective: float
    """Independent samples that the series is worth for this percentile."""

    @property
    def resolved(self) -> bool:
        """Whether the samples can tell this percentile from their own extremes."""
        return self.value is not None


def samples_needed(percent: float, confidence: float = 0.95) -> int:
    """Return the fewest independent samples whose range covers the quantile.

    The quantile p escapes above all n samples with probability p^n and below all with (1-p)^n. For
    p at 0.99 or higher the second is nothing and the condition is n >= log(1-confidence) / log(p):
    299 for p99, 2 995 for p99.9, 29 956 for p99.99 at 95 %.

    Raises:
        ValueError: percent outside (0, 100) or confidence outside (0, 1).
    """
    if not 0.0 < percent < 100.0:
        raise ValueError(f"a percentile lies between 0 and 100, not at {percent}")
    check_confidence(confidence)
    p = percent / 100.0
    escape = 1.0 - confidence
    n = max(1, math.ceil(math.log(escape) / math.log(max(p, 1.0 - p)) - 1e-9))
    while p**n + (1.0 - p) ** n > escape:
        n += 1
    return n


def percentiles(
    samples: npt.NDArray[np.integer | np.floating],
    percents: Sequence[float],
    confidence: float = 0.95,
    ordered: npt.NDArray[np.integer | np.floating] | None = None,
    lost: int = 0,
) -> tuple[Percentile, ...]:
    """Estimate percentiles of one session.

    Args:
        samples: shape (n,), in time order, any unit.
        percents: which percentiles, each between 0 and 100.
        confidence: least coverage of each interval.
        ordered: the same samples sorted, if the caller has them.
        lost: so many of them, the largest, were not observed: it is known only that they are.

    Returns:
        One `Percentile` for each of `percents`; unresolved where the effective samples, which are
        counted for each percentile by itself, are fewer than `samples_needed`, or it would be one
        that was not observed.
    """
    ordered = np.sort(samples) if ordered is None else ordered
    return tuple(_percentile(samples, ordered, lost, percent, confidence) for percent in percents)


def _percentile(
    samples: npt.NDArray[np.integer | np.floating],
    ordered: npt.NDArray[np.integer | np.floating],
    lost: int,
    percent: float,
    confidence: float,
) -> Percentile:
    n, needed = ordered.size, samples_needed(percent, confidence)
    rank = min(n, math.ceil(n * percent / 100.0 - 1e-9))
    if n < needed or rank > n - lost:
        return Percentile(percent, None, None, None, confidence, float(n))
    value = ordered[rank - 1]
    effective = effective_samples((samples <= value).astype(np.float32))
    if effective < needed:
        return Percentile(percent, None, None, None, confidence, effective)
    low, high = _ranks(int(effective), percent / 100.0, confidence)
    # Ranks among the effective samples become ranks among all, rounded outwards.
    first = max(math.floor(low * n / effective), 1)
    last = min(math.ceil(high * n / effective), n)
    return Percentile(
        percent,
        float(value),
        float(ordered[first - 1]),
        float(ordered[last - 1]) if last <= n - lost else None,
        confidence,
        effective,
    )


def _ranks(n: int, p: float, confidence: float) -> tuple[int, int]:
    """Return 1-based ranks whose order statistics cover the p-quantile.

    The tails are equal where the samples allow; near the extremes, the range's own end takes what
    it must and leaves the rest of the error to the other tail.
    """
    escape = 1.0 - confidence
    above, below = p**n, (1.0 - p) ** n
    upper_tail = max(above, escape / 2.0)
    lower_tail = escape - upper_tail
    if below > lower_tail:
        lower_tail, upper_tail = below, escape - below
    low = _binomial(lower_tail, n, p)
    high = _binomial(1.0 - upper_tail, n, p) + 1
    return max(low, 1), min(high, n)


def _binomial(share: float, n: int, p: float) -> int:
    """Return the least number of successes that is not exceeded with probability `share`.

    As `scipy.stats.binom.ppf`: importing that takes longer than most commands do.
    """
    count = math.ceil(scipy.special.bdtrik(share, n, p))
    fewer = max(count - 1, 0)  # where rounding has lifted it over a whole number
    return fewer if scipy.special.bdtr(fewer, n, p) >= share else count
