"""From a record to what may be said of it: estimates, verdicts, budgets, accounts, remarks.

`analyse` reads every session once and hands plain numbers to `tare.stats`; it draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tare import machine
from tare.analysis.cells import CellView, over_the_run, view_cell
from tare.analysis.contrast import Contrast, contrasts
from tare.analysis.difference import Difference, difference_between
from tare.analysis.gate import Answer, Gating, stop
from tare.analysis.gate import answer as _gate_answer
from tare.analysis.growth import Growth, growths
from tare.analysis.operations import CellOperations, operations_of
from tare.analysis.questions import Question, ask
from tare.analysis.questions import half_widths as _half_widths
from tare.analysis.sessions import Session, Sessions, summarise_session
from tare.analysis.threads import CellThreads, threads_of
from tare.experiment import Experiment
from tare.plan import Plan
from tare.progress import complete_blocks
from tare.published.beside import Beside
from tare.record import Loss, Record, Trial
from tare.stats import Decision, Verdict
from tare.stats.noise import NoiseFloor, noise_floor
from tare.stats.repetition import Spread, spread
from tare.workloads import AnyWorkload, Statistic
from tare.workloads.mpi_io_scaling import Scaling

__all__ = [
    "analyse",
    "Analysis",
    "half_widths",
    "gate_stop",
    "Gating",
    "Answer",
    "spreads",
    "summarise_session",
    "Session",
    "CellView",
    "Question",
    "Contrast",
    "CellThreads",
    "CellOperations",
    "Difference",
    "Beside",
]


@dataclass(frozen=True)
class Analysis:
    """Everything that a report says of one result."""

    folder: Path
    experiment: Experiment
    plan: Plan
    fingerprint: machine.Fingerprint
    resumptions: Mapping[str, Mapping[str, tuple[Any, Any]]]
    """When the run was resumed -> what differed from the fingerprint: (at its beginning, then)."""
    sessions: Sessions
    trials: tuple[Trial, ...]
    """In the order of the record, failed ones included."""
    losses: tuple[Loss, ...]
    """Settings-up that failed once their trials were on record."""
    complete_blocks: int
    """Blocks in which every cell that was to be visited has its trials, failed ones included."""
    cells: tuple[CellView, ...]
    """In the order of the plan; A/A replicas last."""
    questions: tuple[Question, ...]
    """Every comparison but the A/A pairs."""
    pairs: tuple[Question, ...]
    """The A/A pairs."""
    noise: NoiseFloor
    contrasts: tuple[Contrast, ...]
    threads: tuple[CellThreads, ...]
    operations: tuple[CellOperations, ...]
    """Of cells whose operations were counted."""
    differences: tuple[Difference, ...]
    """What differs, for every comparison of the family that was found different."""
    gating: Gating | None
    """The gate's answer, where the run was one."""

    @property
    def workload(self) -> AnyWorkload:
        """What was measured."""
        return self.plan.workload

    @cached_property
    def growths(self) -> tuple[Growth, ...]:
        """How the cost grows with what was varied as a number."""
        return growths(self.plan, self.sessions, self.experiment.statistic)

    @cached_property
    def model(self) -> Scaling | None:
        """What the workload's model makes of it."""
        return self.workload.model(self)

    @cached_property
    def beside(self) -> tuple[Beside, ...]:
        """Published figures beside this run's, where the experiment replays a paper's."""
        return self.workload.beside(self) if self.experiment.replays else ()

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        """What the workload measures; the declared one is `experiment.statistic`."""
        return self.workload.statistics

    @property
    def response_times(self) -> bool:
        """Whether sessions are series of response times (`Workload.response_times`)."""
        return self.workload.response_times

    @property
    def subjects(self) -> Mapping[str, str]:
        """Cell id -> what sentences about it speak of."""
        return {cell.id: self.workload.subject(cell.levels) for cell in self.plan.cells}

    @property
    def statistic(self) -> Statistic:
        """The declared statistic."""
        return self.statistics[self.experiment.statistic]

    @property
    def failures(self) -> tuple[Trial, ...]:
        """Trials that could not be measured."""
        return tuple(trial for trial in self.trials if trial.status == "failed")

    def view(self, cell_id: str) -> CellView:
        """Look a cell's view up by its id."""
        return next(view for view in self.cells if view.cell.id == cell_id)


def analyse(
    record: Record, confidence: float = 0.95, trials: Iterable[Trial] | None = None
) -> Analysis:
    """Analyse a result, finished or not.

    Linear in samples and trials; memory is that of the largest session.

    Args:
        record: a result.
        confidence: of the comparisons, the closing accounts and what operations explain.
        trials: of them; all where None.

    Raises:
        UsageError: a file of the result is damaged; the message names it.
    """
    plan, experiment = record.plan, record.experiment
    fingerprint = record.fingerprint
    sessions = Sessions(record, experiment.deadlines_ns, trials)
    gating = _gate_answer(sessions) if plan.gate is not None else None
    answered = ask(sessions, confidence, gating)
    pairs = tuple(q for q in answered if q.comparison.kind == "a/a")
    questions = tuple(q for q in answered if q.comparison.kind == "effect")
    views = tuple(view_cell(cell, sessions) for cell in plan.cells)
    by_contrast = contrasts(sessions)
    asked = [cell for cell in plan.cells if cell.replica == 1]
    threads = (threads_of(cell, sessions, confidence) for cell in asked)
    # Of a request: without requests there is nothing to share them out among.
    counted = asked if plan.workload.response_times else []
    operations = (operations_of(cell, sessions, confidence) for cell in counted)
    return Analysis(
        folder=record.folder,
        experiment=experiment,
        plan=plan,
        fingerprint=fingerprint,
        resumptions={
            one.resumed: machine.unlike(fingerprint.whole, one.fingerprint.whole)
            for one in record.resumptions()
        },
        sessions=sessions,
        trials=sessions.trials,
        losses=record.losses(),
        complete_blocks=complete_blocks(record, sessions.trials),
        cells=over_the_run(views),
        questions=questions,
        pairs=pairs,
        noise=noise_floor([pair.ratio for pair in pairs]),
        contrasts=by_contrast,
        threads=tuple(found for found in threads if found is not None),
        operations=tuple(found for found in operations if found is not None),
        differences=tuple(
            difference_between(q.cell, q.against, sessions)
            for q in questions
            if q.judgement is not None and q.judgement.verdict in _DIFFERENT
        ),
        gating=gating,
    )


_DIFFERENT = (Verdict.SLOWER, Verdict.FASTER, Verdict.MORE, Verdict.LESS)


def half_widths(record: Record, trials: Iterable[Trial] | None = None) -> dict[str, float | None]:
    """Half-width in percent of the interval of each comparison that the stopping rule watches.

    Cheap after every block: only the sessions of those comparisons are read, none that was
    summarised before, and a later `analyse` in the same process finds them ready.

    Args:
        record: the result.
        trials: those that count; all that are on record if None.

    Returns:
        Comparison id -> half-width, None where there is no interval yet.
    """
    return _half_widths(record.plan, _of(record, trials), record.experiment.statistic)


def gate_stop(record: Record, trials: Iterable[Trial], blocks: int) -> Decision:
    """Whether a gated run goes on after so many complete blocks; see `gate.stop`."""
    return stop(_of(record, trials), blocks)


def spreads(
    record: Record, trials: Iterable[Trial] | None = None
) -> dict[tuple[str, str], Spread | None]:
    """How the sessions and settings-up of each of those comparisons were seen to differ.

    Args:
        record: as `half_widths`.
        trials: likewise.

    Returns:
        (cell, against) -> its spread, None where it cannot be told.
    """
    sessions, statistic = _of(record, trials), record.experiment.statistic
    return {
        (c.cell, c.against): spread(*(sessions.by_block(x, statistic) for x in (c.cell, c.against)))
        for c in record.plan.watched
    }


def _of(record: Record, trials: Iterable[Trial] | None) -> Sessions:
    return Sessions(record, record.experiment.deadlines_ns, trials)
