"""Intervals for counts: how often did it happen, of how many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from tare.stats.interval import check_confidence


@dataclass(frozen=True)
class Proportion:
    """A share of counted events with its interval."""

    count: int
    """Events that happened."""
    of: int
    """Events that could have happened."""
    share: float | None
    """count / of, 0 to 1; None of nothing."""
    low: float
    """Lower end, 0 to 1."""
    high: float
    """Upper end, 0 to 1."""
    confidence: float
    """Least coverage, 0 to 1."""
    effective: float
    """Independent events that the count is worth: `of`, or fewer where sessions differ."""


def _bounds(count: float, of: float, confidence: float) -> tuple[float, float]:
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if count <= 0 else float(scipy.special.betaincinv(count, of - count + 1.0, tail))
    high = (
        1.0 if count >= of else float(scipy.special.betaincinv(count + 1.0, of - count, 1.0 - tail))
    )
    return low, high


def proportion(count: int, of: int, confidence: float = 0.95) -> Proportion:
    """Return the share of independent events with its exact interval (Clopper & Pearson 1934).

    Raises:
        ValueError: count outside 0 to `of`.
    """
    check_confidence(confidence)
    if not 0 <= count <= of:
        raise ValueError(f"a count of {count} does not lie between 0 and {of}")
    low, high = _bounds(count, of, confidence)
    return Proportion(count, of, count / of if of else None, low, high, confidence, float(of))


def upper_bound(count: int, of: int, confidence: float = 0.95) -> float:
    """Return the one-sided upper confidence bound of a share of independent events, 0 to 1."""
    return proportion(count, of, 2.0 * confidence - 1.0).high if of else 1.0


def clustered_proportion(
    counts: npt.ArrayLike, of: npt.ArrayLike, confidence: float = 0.95
) -> Proportion:
    """Return the share of events that cluster in sessions.

    Clopper-Pearson on the effective number of events: the number divided by the design effect,
    which is the variance between sessions over what independence would give, and corrected for
    the few sessions that it is estimated from (Korn & Graubard 1998, Survey Methodology 24:193).
    Never narrower than independence. One session alone, or no event at all, tells nothing of the
    clustering: then the events count as independent and the bound is optimistic.

    Args:
        counts: events that happened, shape (sessions,).
        of: events that could have, shape (sessions,), each at least its count.
        confidence: nominal coverage.

    Raises:
        ValueError: shapes that differ, or a count outside 0 to its `of`.
    """
    happened, possible = np.asarray(counts), np.asarray(of)
    if happened.shape != possible.shape or happened.ndim != 1:
        raise ValueError(
            f"counts and of must be one number a session, not {happened.shape}, {possible.shape}"
        )
    if (happened < 0).any() or (happened > possible).any():
        raise ValueError("a session's count lies outside 0 to the events it could have had")
    happened, possible = happened[possible > 0], possible[possible > 0]
    total, sessions = int(possible.sum()), int(possible.size)
    plain = proportion(int(happened.sum()), total, confidence)
    if plain.share is None or sessions < 2 or plain.count in (0, total):
        return plain
    residual = happened - plain.share * possible
    variance = sessions / (sessions - 1.0) * float((residual**2).sum()) / total**2
    binomial = plain.share * (1.0 - plain.share) / total
    tail = (1.0 + confidence) / 2.0
    few = float(
        (scipy.special.stdtrit(total - 1, tail) / scipy.special.stdtrit(sessions - 1, tail)) ** 2
    )
    effective = float(min(total, total / max(variance / binomial, 1e-12) * few))
    low, high = _bounds(plain.share * effective, effective, confidence)
    return Proportion(plain.count, total, plain.share, low, high, confidence, effective)
