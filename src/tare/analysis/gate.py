"""A gate's answer: is anything of the family slower, or is a slow-down ruled out?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tare.analysis.sessions import Sessions, instrument_floor
from tare.plan import Comparison, Plan
from tare.stats.arrays import FloatArray
from tare.stats.bounds import POWER
from tare.stats.gating import Gate, Gated, blocks_that_tell, decide, most_spread
from tare.stats.repetition import mean_log
from tare.stats.sequential import cautious, needed
from tare.stats.stopping import Action, Decision
from tare.stats.verdict import Verdict, below_floor


@dataclass(frozen=True)
class Answer:
    """What the gate says of one comparison, or of one over all replicas of its versions."""

    name: str
    comparisons: tuple[Comparison, ...]
    found: Gated
    finds: float | None
    """The smallest slow-down, as a fraction, that all blocks of the plan would find 80 times in 100
    at a spread that is as large as it may well be; None where it is not known."""
    found_by: int | None
    """Blocks by which the slow-down that the gate is for is found 80 times in 100, likewise;
    None where the plan's do not suffice, or it is not known."""
    passed_by: int | None
    """Blocks by which an equal version passes 80 times in 100, likewise."""
    below: str | None = None
    """Why what was found is below what the instrument can tell, where it is: more blocks do not
    help."""


@dataclass(frozen=True)
class Gating:
    """The answer of a whole run."""

    gate: Gate
    answers: tuple[Answer, ...]
    verdict: Verdict
    """SLOWER where anything is; NO_WORSE where everything is; else INCONCLUSIVE, also where
    what was found is below what the instrument can tell."""


@dataclass(frozen=True)
class Reach:
    """What so many blocks can tell, before any was measured."""

    blocks: int
    seconds: float
    """Expected duration of them."""
    finds: float | None
    """The spread of a ratio from block to block, as a fraction, up to which the slow-down that the
    gate is for is found 80 times in 100; None where so few blocks find nothing."""
    passes: float | None
    """The spread up to which an equal version passes 80 times in 100, likewise."""


def reaches(plan: Plan) -> tuple[Reach, ...]:
    """What a gate can tell at its first look and at its last.

    Nothing where replicas are counted: how much they differ, no block shows.
    """
    gate, declared = plan.gate, plan.experiment.gate
    if gate is None or declared is None or declared.over is not None:
        return ()
    return tuple(
        Reach(
            blocks,
            plan.seconds(blocks),
            most_spread(declared.finds_share, blocks, gate.looks),
            most_spread(gate.margin, blocks, gate.passing),
        )
        for blocks in sorted({gate.looks.least, gate.looks.most})
    )


def answer(sessions: Sessions, *, bounds: bool = True) -> Gating:
    """Look at every gated comparison after each of its blocks, as if they were just arriving.

    Args:
        sessions: of a plan with a gate.
        bounds: find bounds and what would be found too, which costs some tenths of a second each.
    """
    plan = sessions.plan
    gate, declared = plan.gate, plan.experiment.gate
    assert gate is not None
    assert declared is not None
    reach = needed(gate.looks.most, gate.looks, POWER) if bounds else math.inf
    answers = []
    for name, group in plan.gated.items():
        found = decide(_log_ratios(sessions, group), gate, bounds=bounds)
        below = _below(sessions, group, found, gate)
        if below is not None:
            found = replace(found, verdict=Verdict.BELOW_INSTRUMENT)
        finds = None
        if found.spread is not None and reach < math.inf:
            finds = math.expm1(reach * cautious(found.spread, found.blocks))
        found_by = blocks_that_tell(found, declared.finds_share, gate.looks)
        passed_by = blocks_that_tell(found, gate.margin, gate.passing)
        answers.append(Answer(name, group, found, finds, found_by, passed_by, below))
    verdicts = {one.found.verdict for one in answers}
    verdict = Verdict.NO_WORSE if verdicts == {Verdict.NO_WORSE} else Verdict.INCONCLUSIVE
    if Verdict.SLOWER in verdicts:
        verdict = Verdict.SLOWER
    return Gating(gate, tuple(answers), verdict)


def _below(sessions: Sessions, group: Sequence[Comparison], found: Gated, gate: Gate) -> str | None:
    """As a verdict: of the difference where it is slower, of the margin where it is no worse."""
    share = {Verdict.SLOWER: (found.ratio or 1.0) - 1.0, Verdict.NO_WORSE: gate.margin}
    levels = [sessions.level(one.against, sessions.plan.experiment.statistic) for one in group]
    base = mean_log([level for level in levels if level is not None])
    if found.verdict not in share or base is None:
        return None
    floor = instrument_floor((sessions, cell) for one in group for cell in (one.cell, one.against))
    return below_floor(found.verdict, share[found.verdict] * base, floor)


def _log_ratios(sessions: Sessions, group: Iterable[Comparison]) -> FloatArray:
    """Shape (blocks, comparisons), above 0 where the cell is the worse one."""
    plan = sessions.plan
    statistic = plan.experiment.statistic
    worse = -1.0 if plan.workload.statistics[statistic].better == "higher" else 1.0
    columns = []
    for comparison in group:
        a, b = sessions.columns(comparison.cell, comparison.against, statistic=statistic)
        with np.errstate(invalid="ignore"):
            values = np.array([a, b], dtype=np.float64)
        columns.append(worse * (np.log(values[0]) - np.log(values[1])))
    return np.array(columns, dtype=np.float64).T


def stop(sessions: Sessions, blocks: int) -> Decision:
    """Whether a gated run goes on after a block: until it is slower, or nothing is undecided.

    Args:
        sessions: of all that is on record.
        blocks: complete blocks so far.

    Returns:
        `wide` holds the ids of undecided comparisons.
    """
    looks = sessions.plan.gate.looks if sessions.plan.gate else None
    assert looks is not None
    if blocks < looks.least:
        wide = tuple(c.id for group in sessions.plan.gated.values() for c in group)
        return Decision(Action.CONTINUE, None, wide)
    found = answer(sessions, bounds=False)
    undecided = [a for a in found.answers if a.found.verdict is Verdict.INCONCLUSIVE]
    if found.verdict is not Verdict.INCONCLUSIVE or not undecided:
        return Decision(Action.STOP, blocks, ())
    return Decision(
        Action.CAP_REACHED if blocks >= looks.most else Action.CONTINUE,
        max(a.passed_by or looks.most for a in undecided),
        tuple(c.id for one in undecided for c in one.comparisons),
    )
