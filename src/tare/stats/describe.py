"""Describe the samples of one session, and one cell over its sessions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tare.stats.arrays import BlockValues, present
from tare.stats.drift import SessionDrift, session_drift
from tare.stats.effective import effective_samples
from tare.stats.interval import Method, mean_interval
from tare.stats.quantiles import Percentile, percentiles

PERCENTS = (50.0, 90.0, 99.0, 99.9, 99.99)


@dataclass(frozen=True)
class Summary:
    """One session's response times. Nothing in it is dropped or trimmed."""

    n: int
    """Samples, that is, replies received in the measured part of the session."""
    effective: float | None
    """Independent samples that they are worth for their mean; None without samples."""
    min_ns: float | None
    """Shortest response time in ns, as are all below; None without samples."""
    mean_ns: float | None
    """Arithmetic mean. Means of layers add; medians do not."""
    max_ns: float | None
    """Longest response time."""
    jitter_ns: float | None
    """Mean absolute difference between the response times of successive replies (the quantity that
    RFC 3550, section 6.4.1, smooths); None below two samples. Unlike the standard deviation it does
    not count slow drift and is not ruled by a few outliers."""
    percentiles: tuple[Percentile, ...]
    """p50, p90, p99, p99.9 and p99.99 of the requests in ns, lost ones ranking as the longest;
    unresolved where they are too few, or the rank is a lost one's."""
    throughput_per_s: float | None
    """Replies a second over the duration given; None without a duration."""
    drift: SessionDrift | None
    """First half against second half; None where the session is too short to tell."""

    def percentile(self, percent: float) -> Percentile:
        """Return one of the percentiles by its number.

        Raises:
            KeyError: the summary does not hold it.
        """
        for entry in self.percentiles:
            if entry.percent == percent:
                return entry
        held = [entry.percent for entry in self.percentiles]
        raise KeyError(f"no p{percent:g} in this summary, only {held}")


def summarise(
    samples_ns: npt.NDArray[np.integer | np.floating],
    duration_ns: float | None = None,
    confidence: float = 0.95,
    lost: int = 0,
) -> Summary:
    """Summarise one session's response times.

    Linear but for one sort; needs about three times the memory of the samples.

    Args:
        samples_ns: shape (n,), response times in ns, in the order of the requests.
        duration_ns: from the first measured send to the last receipt, for the throughput.
        confidence: least coverage of the percentiles' intervals.
        lost: so many of the samples stand for lost requests: the largest of all.

    Raises:
        ValueError: samples that are not one-dimensional, not finite, or negative.
    """
    samples = np.asarray(samples_ns)
    if samples.ndim != 1:
        raise ValueError(f"samples must be one-dimensional, but have shape {samples.shape}")
    if samples.size and not np.isfinite(samples).all():
        raise ValueError("a response time is not finite; leave lost requests out")
    ordered = np.sort(samples)
    found = percentiles(samples, PERCENTS, confidence, ordered, lost)
    n = int(samples.size) - lost
    if n == 0:
        return Summary(0, None, None, None, None, None, found, None, None)
    if lost:
        samples, ordered = samples[samples <= ordered[n - 1]], ordered[:n]
    if ordered[0] < 0:
        raise ValueError(
            f"a response time is negative ({ordered[0]} ns): the two clocks it comes from disagree"
        )
    throughput = None
    if duration_ns is not None:
        if not duration_ns > 0.0:
            raise ValueError(f"a session's duration must be positive, but is {duration_ns} ns")
        throughput = n * 1e9 / duration_ns
    return Summary(
        n=n,
        effective=effective_samples(samples),
        min_ns=float(ordered[0]),
        mean_ns=float(samples.mean(dtype=np.float64)),
        max_ns=float(ordered[-1]),
        jitter_ns=_mean_absolute_step(samples) if n > 1 else None,
        percentiles=found,
        throughput_per_s=throughput,
        drift=session_drift(samples, ordered),
    )


def _mean_absolute_step(samples: npt.NDArray[np.integer | np.floating]) -> float:
    steps = np.diff(samples)
    return float(np.abs(steps, out=steps).mean(dtype=np.float64))


@dataclass(frozen=True)
class Estimate:
    """One cell over its sessions: an absolute value with its interval."""

    value: float | None
    """Geometric mean over sessions, in the unit of the input; None without sessions."""
    low: float | None
    """Lower end of the t interval on the log scale; None below two sessions."""
    high: float | None
    """Upper end of the same."""
    confidence: float
    """Nominal coverage, 0 to 1."""
    min: float | None
    """Smallest of the values that it is estimated from: of a block's sessions, their mean."""
    max: float | None
    """Largest of them."""
    n: int
    """How many they are. An absent one is never zero."""


def across(session_values: BlockValues, confidence: float = 0.95) -> Estimate:
    """Estimate a cell's level from one value a session.

    Student's t on the logarithms: sessions of response times are skewed, their logarithms less so.

    Args:
        session_values: shape (sessions,), positive; None or NaN where a session is absent.
        confidence: nominal coverage.

    Raises:
        ValueError: a value that is infinite, zero or negative.
    """
    values = present(session_values)
    n = values.size
    over = mean_interval(np.log(values), confidence, Method.T).exponential
    least, most = (float(values.min()), float(values.max())) if n else (None, None)
    return Estimate(over.estimate, over.low, over.high, confidence, least, most, n)
