"""Predictions of positive quantities: intervals from what earlier ones missed by, and scores.

Errors are ratios, so everything is on the logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from tare.stats.arrays import FloatArray
from tare.stats.interval import check_confidence


def prediction_factor(missed: Sequence[float], groups: int, confidence: float = 0.90) -> float:
    """By what factor a new response may miss its prediction, up and down.

    Errors within a group (one environment) hang together, so that the groups and
    not the responses count as degrees of freedom; the errors' root mean square stands for their
    spread, since a prediction that is wrong in the mean is as wrong as one that scatters.

    Args:
        missed: logarithms of measured over predicted, each predicted without its own group.
        groups: how many groups they come from, at least two.
        confidence: nominal coverage of the interval [predicted / factor, predicted * factor].

    Raises:
        ValueError: no errors, or fewer than two groups.
    """
    check_confidence(confidence)
    errors = np.asarray(missed, dtype=np.float64)
    if not errors.size or not np.isfinite(errors).all():
        raise ValueError("a prediction interval needs finite errors of earlier predictions")
    if groups < 2:
        raise ValueError("a prediction interval needs errors from at least two groups")
    spread = math.sqrt(float(np.mean(errors**2)))
    return math.exp(float(scipy.special.stdtrit(groups - 1, (1.0 + confidence) / 2.0)) * spread)


@dataclass(frozen=True)
class Score:
    """How good predictions were."""

    n: int
    median_error: float
    """Median of |predicted / measured - 1|."""
    within_two: float
    """Share of predictions within a factor of 2 of what was measured."""
    covered: float | None
    """Share of measured values within their intervals; None where there were none."""


def score(
    predicted: Sequence[float],
    measured: Sequence[float],
    intervals: Sequence[tuple[float, float]] = (),
) -> Score:
    """Score predictions.

    Args:
        predicted: shape (n,), positive.
        measured: same shape and unit, positive.
        intervals: (low, high) of each prediction, or none at all.

    Raises:
        ValueError: nothing to score, different lengths, or a value that is not positive.
    """
    one, other = _positive(predicted), _positive(measured)
    if one.size != other.size or (intervals and len(intervals) != one.size):
        raise ValueError("predictions, measurements and intervals must be as many as each other")
    covered = [low <= value <= high for (low, high), value in zip(intervals, other, strict=False)]
    return Score(
        n=int(one.size),
        median_error=float(np.median(np.abs(one / other - 1.0))),
        within_two=float(np.mean(np.abs(np.log(one / other)) <= math.log(2.0))),
        covered=float(np.mean(covered)) if covered else None,
    )


def _positive(values: Sequence[float]) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if not array.size or not np.isfinite(array).all() or (array <= 0.0).any():
        raise ValueError("scores are of positive, finite values, at least one")
    return array
