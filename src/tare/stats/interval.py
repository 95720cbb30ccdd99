"""Interval estimates of a mean over blocks: the one piece that all comparisons share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import scipy

from tare.stats import signflip
from tare.stats.arrays import FloatArray

_RESAMPLES = 1999
_SEED = 19790101


class Method(StrEnum):
    """How an interval over blocks is made.

    SIGN_FLIP inverts the permutation test: exact for symmetric differences, agrees with the
    p-value by construction. T is Student's: exact for normal ones. BOOTSTRAP_T studentises by
    resampling (Hesterberg 2015, The American Statistician 69:371): for one skewed arm.
    """

    SIGN_FLIP = "sign-flip"
    T = "t"
    BOOTSTRAP_T = "bootstrap-t"


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval; the unit is that of the values it came from."""

    estimate: float | None
    """The mean over blocks; None without any block."""
    low: float | None
    """Lower end; None where the blocks cannot give one."""
    high: float | None
    """Upper end; None where the blocks cannot give one."""
    confidence: float
    """Nominal two-sided coverage, 0 to 1."""
    method: Method
    """How it was made, which differs from what was asked where blocks were too few for that."""
    n: int
    """Blocks used."""

    @property
    def resolved(self) -> bool:
        """Whether there is an interval at all."""
        return self.low is not None and self.high is not None

    @property
    def exponential(self) -> Interval:
        """The interval of the geometric mean, where this one is of logarithms."""
        estimate = None if self.estimate is None else exponential(self.estimate)
        low, high = ratio_ends(self.low, self.high)
        return Interval(estimate, low, high, self.confidence, self.method, self.n)

    def within(self, low: float, high: float) -> bool:
        """Whether the whole interval lies in [low, high]; False where it is unresolved."""
        if self.low is None or self.high is None:
            return False
        return low <= self.low and self.high <= high

    def excludes(self, value: float) -> bool:
        """Whether the interval rules the value out; False where it is unresolved."""
        if self.low is None or self.high is None:
            return False
        return value < self.low or value > self.high


def exponential(log: float) -> float | None:
    """E to this; None where that is more than a float holds, or so little that it holds 0."""
    try:
        return math.exp(log) or None
    except OverflowError:
        return None


def ratio_ends(low: float | None, high: float | None) -> tuple[float, float] | tuple[None, None]:
    """A ratio's interval from that of its logarithm; none where a float does not hold both ends.

    Few blocks at a high confidence reach that far: two of them, 800 standard errors for one
    comparison of 65.
    """
    if low is None or high is None:
        return None, None
    ends = exponential(low), exponential(high)
    return (None, None) if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def sum_of_means(terms: Sequence[FloatArray]) -> tuple[float, float]:
    """Variance of a sum of means of independent values, and its degrees of freedom.

    Variances add; the degrees of freedom are Welch and Satterthwaite's (Welch 1947, Biometrika
    34:28); infinite where nothing varies.

    Args:
        terms: each of shape (values,), two or more.
    """
    variances = [float(term.var(ddof=1)) / term.size for term in terms]
    total = sum(variances)
    spread = sum(v**2 / (term.size - 1) for v, term in zip(variances, terms, strict=True))
    return total, total**2 / spread if spread > 0.0 else math.inf


def check_confidence(confidence: float) -> None:
    """Raise ValueError unless 0 < confidence < 1."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, but is {confidence}")


def mean_interval(
    values: FloatArray, confidence: float = 0.95, method: Method = Method.SIGN_FLIP
) -> Interval:
    """Estimate the mean of independent block values.

    Below 6 blocks the sign-flip interval does not exist at 95 %; then Student's is returned and
    says so in `method`. It leans on normality, and no verdict of a paired comparison follows from
    it (`judge`). One block has an estimate and no interval.

    Args:
        values: shape (blocks,), finite, any unit.
        confidence: nominal two-sided coverage.
        method: see `Method`.

    Raises:
        ValueError: confidence outside (0, 1), or a value is not finite.
    """
    check_confidence(confidence)
    if not np.isfinite(values).all():
        raise ValueError("mean_interval takes finite values; drop absent blocks before")
    n = int(values.size)
    if n == 0:
        return Interval(None, None, None, confidence, method, 0)
    mean = float(values.mean())
    if n == 1:
        return Interval(mean, None, None, confidence, method, 1)
    ends: tuple[float, float] | None = None
    if method is Method.SIGN_FLIP:
        ends = signflip.interval(values, confidence)
    elif method is Method.BOOTSTRAP_T:
        ends = _bootstrap_t(values, confidence)
    if ends is None:
        method, ends = Method.T, _student(values, confidence)
    # Rounding may put the mean of equal values a last bit outside of its own interval.
    return Interval(mean, min(ends[0], mean), max(ends[1], mean), confidence, method, n)


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size))


def _student(values: FloatArray, confidence: float) -> tuple[float, float]:
    """Student's t interval (Student 1908, Biometrika 6:1)."""
    quantile = float(scipy.special.stdtrit(values.size - 1, (1.0 + confidence) / 2.0))
    reach = quantile * _standard_error(values)
    mean = float(values.mean())
    return mean - reach, mean + reach


def _bootstrap_t(values: FloatArray, confidence: float) -> tuple[float, float] | None:
    """Studentised bootstrap; None where the values are too few or too alike to be studentised."""
    n, error = values.size, _standard_error(values)
    if np.unique(values).size < 4:
        return None
    mean = float(values.mean())
    samples = values[np.random.default_rng(_SEED).integers(0, n, size=(_RESAMPLES, n))]
    # A resample of one repeated value has no spread; the floor keeps its ratio finite.
    errors = np.maximum(samples.std(axis=1, ddof=1) / np.sqrt(n), 1e-9 * error)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile((samples.mean(axis=1) - mean) / errors, [tail, 1.0 - tail])
    return float(mean - high * error), float(mean - low * error)
