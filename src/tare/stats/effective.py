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

_LAGS = 32
_BATCH = 16
_FEWEST_BATCHES = 8


def long_run_variance(series: npt.NDArray[np.floating]) -> float:
    """Estimate n * Var(mean of n samples) for large n: the variance, corrected for correlation.

    Args:
        series: shape (n,), in time order, any unit; the result has its square.

    Returns:
        At least the plain variance: samples that repel each other are not counted as worth more
        than independent ones. 0 for a constant series or fewer than two samples.
    """
    return _variances(series)[1]


def _variances(series: npt.NDArray[np.floating]) -> tuple[float, float]:
    """Return the plain variance and the long-run variance, equal where nothing is correlated."""
    n = series.size
    # Asked of the values themselves: rounding in the mean gives a constant series a variance.
    if n < 2 or series.min() == series.max():
        return 0.0, 0.0
    centred = series - series.mean(dtype=np.float64)
    variance = _autocovariance(centred, 0)
    total = -variance
    for lag in range(0, min(_LAGS, n - 1), 2):
        pair = _autocovariance(centred, lag) + _autocovariance(centred, lag + 1)
        if pair <= 0.0:
            return variance, max(total, variance)
        total += 2.0 * pair
    if n >= _BATCH * _FEWEST_BATCHES:
        batches = centred[: n - n % _BATCH].reshape(-1, _BATCH).mean(axis=1, dtype=np.float64)
        total = max(total, _BATCH * _variances(batches)[1])
    return variance, max(total, variance)


def _autocovariance(centred: npt.NDArray[np.floating], lag: int) -> float:
    n = centred.size
    # Not np.dot: its threads spin for each other, which cost ten times the work on busy cores.
    return float(np.einsum("i,i->", centred[: n - lag], centred[lag:])) / n


def effective_samples(series: npt.NDArray[np.floating]) -> float:
    """Return the number of independent samples whose mean would be as precise as the series' mean.

    Args:
        series: shape (n,), in time order. For a percentile give the indicator of lying at or
            below it: what counts there is how lateness clusters.

    Returns:
        Between 1 and n; n for a constant series, 0 for an empty one.
    """
    n = series.size
    variance, long_run = _variances(series)
    return float(n if long_run == 0.0 else max(n * (variance / long_run), 1.0))
