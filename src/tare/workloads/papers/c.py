"""Paper C's savings, each with what this run's cache saved of the same kind."""

from __future__ import annotations

from collections.abc import Iterable

from tare.cell import Cell
from tare.published import papers
from tare.published.beside import Beside, Ours, measured, saved
from tare.workloads.findings import Findings, QuestionSeen
from tare.workloads.mpi_io_rows import MpiLevels

_ASYNCHRONOUS = ("write", "async-manager")
"""The paper's: a node's manager queues what it is sent."""


def beside(found: Findings) -> tuple[Beside, ...]:
    """Set the figures of paper C beside a run's; those of which it measured nothing stay out.

    That it scales to 600 processes is beyond one machine and stands beside no measurement.
    """
    paper = papers()["C"]
    walks = [q for q in found.questions if q.cell.levels.get("program") == "walks"]
    kept = [q for q in walks if _settings(q.against) is None and q.cell.levels["result"] == "kept"]
    return measured(
        (
            Beside(
                paper.figure("power-2"),
                "time saved at power 2, result written back, row by row unless named",
                _saved(q for q in kept if q.cell.levels["power"] == "2"),
            ),
            Beside(
                paper.figure("larger-powers"),
                "time saved at larger powers, result written back",
                _saved(q for q in kept if q.cell.levels["power"] != "2"),
            ),
            Beside(
                paper.figure("synchronous-writes"),
                "time saved by synchronous against asynchronous writes under nvio",
                _saved(q for q in walks if _against_asynchronous(q)),
            ),
        )
    )


def _settings(cell: Cell) -> tuple[tuple[str, str], ...] | None:
    """Those of nvio; None for plain MPI-IO."""
    return cell.levels.read(MpiLevels.cache).settings


def _against_asynchronous(question: QuestionSeen) -> bool:
    ours, theirs = _settings(question.cell), _settings(question.against)
    if theirs is None or _ASYNCHRONOUS not in theirs:
        return False
    return dict(ours or ()).get("write", "sync") == "sync"


def _saved(questions: Iterable[QuestionSeen]) -> tuple[Ours, ...]:
    return saved((q.cell, q.others["time"].promised.ratio) for q in questions)
