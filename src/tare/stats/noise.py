"""What the A/A cells say of the instrument: its noise floor and its false positives.

An A/A pair is the same cell run twice in each block, under two names. Whatever differs between the
two is noise: it is what an effect must exceed, and every finding among them is false.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from tare.stats import signflip
from tare.stats.bounds import POWER
from tare.stats.compare import Ratio
from tare.stats.interval import check_confidence, exponential
from tare.stats.proportion import Proportion, proportion, upper_bound


@dataclass(frozen=True)
class NoiseFloor:
    """The noise of one run, from its A/A pairs."""

    pairs: int
    """A/A pairs with at least two complete blocks."""
    sd_percent: float | None
    """Standard deviation of one block's log-ratio, pooled over the pairs, in percent; None without
    pairs."""
    largest_percent: float | None
    """The largest ratio that an A/A pair showed, as percent away from 1 on the log scale."""
    half_width_percent: float | None
    """The widest interval among them, as half-width in percent."""
    detectable_percent: float | None
    """The effect that a comparison over as many blocks finds with 80 % power at level alpha,
    unadjusted, in percent (t approximation)."""
    false_positives: Proportion
    """Pairs with p at most alpha, of those whose blocks can give such a p (6 at 5 %)."""
    false_positive_upper: float
    """One-sided 95 % upper bound of the false-positive rate. With few pairs it is large: no false
    positive in two pairs bounds the rate by 0.78 only."""
    alpha: float
    """The nominal rate, for each comparison by itself."""


def noise_floor(pairs: Sequence[Ratio], alpha: float = 0.05, power: float = POWER) -> NoiseFloor:
    """Summarise the A/A pairs of one run.

    Args:
        pairs: `paired_ratio` of the two names of each A/A cell.
        alpha: level at which a pair counts as a finding.
        power: chance to find the `detectable_percent` effect.

    Raises:
        ValueError: alpha or power outside (0, 1).
    """
    check_confidence(alpha)
    check_confidence(power)
    usable = [pair for pair in pairs if pair.sd_log is not None]
    # A pair of too few blocks cannot be wrong, so it is no evidence of being right.
    able = [pair for pair in usable if signflip.smallest_p(pair.n_used) <= alpha]
    found = sum(pair.p <= alpha for pair in able)
    false_positives = proportion(found, len(able))
    upper = upper_bound(found, len(able))
    if not usable:
        return NoiseFloor(0, None, None, None, None, false_positives, upper, alpha)
    freedom = np.array([pair.n_used - 1 for pair in usable])
    variances = np.array([pair.sd_log or 0.0 for pair in usable]) ** 2
    sd = float(np.sqrt((freedom * variances).sum() / freedom.sum()))
    blocks = min(pair.n_used for pair in usable)
    reach = scipy.special.stdtrit(blocks - 1, 1.0 - alpha / 2.0) + scipy.special.stdtrit(
        blocks - 1, power
    )
    shifts = [abs(math.log(pair.ratio.estimate)) for pair in usable if pair.ratio.estimate]
    widths = [pair.half_width_percent for pair in usable if pair.half_width_percent is not None]
    return NoiseFloor(
        pairs=len(usable),
        sd_percent=_percent(sd),
        largest_percent=_percent(max(shifts)),
        half_width_percent=max(widths, default=None),
        detectable_percent=_percent(float(reach) * sd / math.sqrt(blocks)),
        false_positives=false_positives,
        false_positive_upper=upper,
        alpha=alpha,
    )


def _percent(log: float) -> float | None:
    """None where a float does not hold it."""
    return None if exponential(log) is None else 100.0 * math.expm1(log)
