"""What a deadline leaves: the share that the response eats, and how often it is missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tare.stats.arrays import BlockValues
from tare.stats.describe import Estimate, across
from tare.stats.proportion import Proportion, clustered_proportion


@dataclass(frozen=True)
class DeadlineView:
    """One cell against one deadline."""

    deadline_ns: float
    """The deadline in ns, counted from the (intended) send."""
    p50_share: Estimate
    """The blocks' p50 over the deadline: 0.5 is half of it."""
    p99_share: Estimate
    """The blocks' p99 over the deadline; sessions that do not resolve it are absent."""
    late: Proportion
    """Replies that came after the deadline, of replies."""
    missed: Proportion
    """Requests answered late or not at all, of requests."""


def deadline_view(
    deadline_ns: float,
    *,
    p50_ns: BlockValues,
    p99_ns: BlockValues,
    replies: npt.ArrayLike,
    late: npt.ArrayLike,
    lost: npt.ArrayLike,
    confidence: float = 0.95,
) -> DeadlineView:
    """Set a cell's sessions against a deadline.

    Lateness clusters: one bad block holds most of the late replies. So its intervals come from the
    spread between blocks (`clustered_proportion`).

    Args:
        deadline_ns: positive.
        p50_ns: the median of each block's sessions, shape (blocks,).
        p99_ns: their p99, None where unresolved, shape (blocks,).
        replies: replies received, shape (blocks present,).
        late: of them, later than the deadline.
        lost: requests without a reply.
        confidence: nominal coverage.

    Raises:
        ValueError: a deadline that is not positive, or counts that contradict each other.
    """
    if not deadline_ns > 0.0:
        raise ValueError(f"a deadline must be positive, but is {deadline_ns} ns")
    answered, overdue, unanswered = np.asarray(replies), np.asarray(late), np.asarray(lost)

    def share(values: BlockValues) -> Estimate:
        return across(np.array(values, dtype=np.float64) / deadline_ns, confidence)

    return DeadlineView(
        deadline_ns=deadline_ns,
        p50_share=share(p50_ns),
        p99_share=share(p99_ns),
        late=clustered_proportion(overdue, answered, confidence),
        missed=clustered_proportion(overdue + unanswered, answered + unanswered, confidence),
    )
