"""How many independent samples a series of correlated samples is worth.

Requests that follow each other share queues, caches and clock ticks, so n samples say less than n.
The estimator is Geyer's initial positive sequence (1992, Statistical Science 7:473, section 3.3):
autocovariances are summed in pairs of lags until a pair is no longer positive. Correlation that
outlives `_LAGS` lags is followed on batch means of the series instead: their long-run variance
times the batch's length is the series' own. So the cost is linear whatever the correlation time.

Assumption: the series is stationary within the session (`drift` checks it).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["effective_samples", "long_run_variance"]

_LAGS = 32
_BATCH = 16
_SHORTEST = 8


def long_run_variance(series: npt.NDArray[np.floating]) -> float:
    """Estimate n * Var(mean of n samples) for large n: the variance, corrected for correlation.

    Args:
        series: shape (n,), in time order, any unit; the result has its square.

    Returns:
        At least the plain variance: samples that repel each other are not counted as worth more
        than independent ones. 0 for a constant series or fewer than two samples.
    """
    n = series.size
    if n < 2:
        return 0.0
    centred = series - series.mean(dtype=np.float64)
    variance = float(np.dot(centred, centred)) / n
    if variance == 0.0 or n < _SHORTEST:
        return variance
    total = -variance
    for lag in range(0, min(_LAGS, n - 1), 2):
        pair = _autocovariance(centred, lag) + _autocovariance(centred, lag + 1)
        if pair <= 0.0:
            return max(total, variance)
        total += 2.0 * pair
    if n < _BATCH * _SHORTEST:
        return max(total, variance)
    batches = centred[: n - n % _BATCH].reshape(-1, _BATCH).mean(axis=1, dtype=np.float64)
    return max(total, variance, _BATCH * long_run_variance(batches))


def _autocovariance(centred: npt.NDArray[np.floating], lag: int) -> float:
    n = centred.size
    return float(np.dot(centred[: n - lag], centred[lag:])) / n


def effective_samples(series: npt.NDArray[np.floating]) -> float:
    """Return the number of independent samples whose mean would be as precise as the series' mean.

    Args:
        series: shape (n,), in time order. For a percentile give the indicator of lying at or
            below it: what counts there is how lateness clusters.

    Returns:
        Between 1 and n; n for a constant series, 0 for an empty one.
    """
    n = series.size
    if n == 0:
        return 0.0
    long_run = long_run_variance(series)
    if long_run == 0.0:
        return float(n)
    return float(min(max(n * float(series.var(dtype=np.float64)) / long_run, 1.0), n))
