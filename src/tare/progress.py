"""How far a run got."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tare.errors import UsageError
from tare.record import Record, Trial


def complete_blocks(record: Record, trials: Sequence[Trial]) -> int:
    """How many blocks have every session that they were to have.

    Args:
        record: the result.
        trials: of it, all that are on record.

    Raises:
        UsageError: the course of the run cannot be read.
    """
    plan, courses = record.plan, record.courses()
    tried = Counter((trial.block, trial.cell) for trial in trials)

    def complete(block: int) -> bool:
        course = next(found for found in reversed(courses) if found.block <= block)
        cells = [cell.id for cell in plan.cells if cell.id not in course.stopped]
        return all(tried[block, cell] >= course.sessions.get(cell, 1) for cell in cells)

    return sum(map(complete, {trial.block for trial in trials}))


def unfinished(record: Record, trials: Sequence[Trial]) -> str | None:
    """Say so of a run with fewer blocks than it has at least: it was killed, or goes on.

    Args:
        record: the result.
        trials: of it, all that are on record.
    """
    least = record.plan.min_blocks
    try:
        blocks = complete_blocks(record, trials)
    except UsageError as error:
        return f"how far it got cannot be told: {error.what}"
    if blocks >= least:
        return None
    return f"the run has not ended: {blocks} of at least {least} blocks are on record"
