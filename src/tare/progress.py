"""How far a run got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tare.record import Record, Trial


def unfinished(record: Record, trials: Sequence[Trial]) -> str | None:
    """Say so of a run that has not ended: it was killed, or goes on. None of one that has.

    Args:
        record: the result.
        trials: of it, all that are on record.

    Raises:
        UsageError: the course of the run cannot be read.
    """
    plan, courses = record.plan, record.courses()
    tried = Counter((trial.block, trial.cell) for trial in trials)

    def whole(block: int) -> bool:
        course = next(found for found in reversed(courses) if found.block <= block)
        cells = [cell.id for cell in plan.cells if cell.id not in course.stopped]
        return all(tried[block, cell] >= course.sessions.get(cell, 1) for cell in cells)

    blocks = sum(map(whole, {trial.block for trial in trials}))
    if blocks >= plan.min_blocks:
        return None
    return f"the run has not ended: {blocks} of at least {plan.min_blocks} blocks are on record"
