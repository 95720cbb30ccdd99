"""Paper C's savings, each with what this run's cache saved of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tare.analysis.beside import Beside, Ours
from tare.analysis.questions import Question
from tare.published import papers
from tare.workloads.mpi_io_job import Cache

__all__ = ["beside_paper_c"]

_ASYNCHRONOUS = ("write", "async")


def beside_paper_c(questions: Iterable[Question]) -> tuple[Beside, ...]:
    """Set the figures of paper C beside this run's; those of which it measured nothing stay out.

    That it scales to 600 processes is beyond one machine and stands beside no measurement.
    """
    paper = papers()["C"]
    walks = [q for q in questions if q.cell.levels.get("program") == "walks"]
    against_plain = [q for q in walks if _plain(q) and q.cell.levels["result"] == "kept"]
    rows = [
        Beside(
            paper.figure("power-2"),
            "time saved at power 2, result written back, row by row unless named",
            _saved(against_plain, lambda q: q.cell.levels["power"] == "2"),
        ),
        Beside(
            paper.figure("larger-powers"),
            "time saved at larger powers, result written back",
            _saved(against_plain, lambda q: q.cell.levels["power"] != "2"),
        ),
        Beside(
            paper.figure("synchronous-writes"),
            "time saved by synchronous against asynchronous writes under nvio",
            _saved(walks, _against_asynchronous),
        ),
    ]
    return tuple(row for row in rows if row.ours)


def _plain(question: Question) -> bool:
    return Cache.parse(question.against.levels["cache"]).settings is None


def _against_asynchronous(question: Question) -> bool:
    ours = Cache.parse(question.cell.levels["cache"]).settings
    theirs = Cache.parse(question.against.levels["cache"]).settings
    return theirs is not None and _ASYNCHRONOUS in theirs and _ASYNCHRONOUS not in (ours or ())


def _saved(questions: Iterable[Question], wanted: Callable[[Question], bool]) -> tuple[Ours, ...]:
    found = []
    for question in questions:
        ratio = question.others["time"].ratio
        if wanted(question) and ratio.estimate is not None:
            # The more it takes, the less it saves: the ends change places.
            low, high = (None if e is None else 100 * (1 - e) for e in (ratio.high, ratio.low))
            found.append(Ours(question.cell, 100 * (1 - ratio.estimate), low, high))
    return tuple(found)
