"""From sessions to verdicts: every comparison of the plan, and the noise that it must exceed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.gate import Gating
from tare.analysis.sessions import Sessions, instrument_floor
from tare.cell import Cell
from tare.plan import ALPHA, Comparison, Plan
from tare.stats import Judgement, Ratio, Verdict, family_resolvable, judge_family, paired_ratio
from tare.stats.bounds import Bound
from tare.workloads import Statistic

DESCRIPTIVE = ("p50", "mean", "p99")
"""Statistics whose ratios stand beside the declared one's, without a verdict."""


@dataclass(frozen=True)
class Question:
    """One comparison, answered."""

    comparison: Comparison
    cell: Cell
    """The numerator: the layer in question, or the second replica."""
    against: Cell
    """The denominator: the baseline, or the first replica."""
    ratio: Ratio
    """Of the declared statistic, paired by block; in its unit."""
    judgement: Judgement | None
    """None where the comparison is outside of the family: its interval is descriptive."""
    others: Mapping[str, Ratio]
    """Statistic -> ratio, descriptive."""
    blocks_more: int | None = None
    """Blocks that would probably end an inconclusive verdict, if estimate and spread stay as they
    are; None where there is nothing to end, or no number in reach would."""


def ask(
    sessions: Sessions, confidence: float = 0.95, gating: Gating | None = None
) -> tuple[Question, ...]:
    """Answer every comparison of a plan, in its order; A/A pairs included.

    Args:
        sessions: of the plan.
        confidence: of the intervals.
        gating: the answer that stands for the verdicts where the run was a gate.
    """
    plan = sessions.plan
    workload, statistic, margin = (
        plan.workload,
        plan.experiment.statistic,
        plan.experiment.margin_share,
    )
    descriptive = DESCRIPTIVE if workload.response_times else tuple(workload.statistics)
    ratios = {c.id: _ratio(sessions, c, statistic, confidence) for c in plan.comparisons}
    ends = {c.id: ((sessions, c.cell), (sessions, c.against)) for c in plan.family}
    judgements = (
        judge_declared(plan, {name: ratios[name] for name in ends}, ends)
        if gating is None
        else _gated(gating, workload.statistics[statistic])
    )
    cells = {cell.id: cell for cell in plan.cells}
    return tuple(
        Question(
            comparison=comparison,
            cell=cells[comparison.cell],
            against=cells[comparison.against],
            ratio=ratios[comparison.id],
            judgement=judgements.get(comparison.id),
            others={name: _ratio(sessions, comparison, name, confidence) for name in descriptive},
            blocks_more=None
            if gating is not None
            else _blocks_more(
                ratios[comparison.id], judgements.get(comparison.id), margin, len(plan.family)
            ),
        )
        for comparison in plan.comparisons
    )


def _blocks_more(
    ratio: Ratio, judgement: Judgement | None, margin: float | None, family: int
) -> int | None:
    """Until the interval excludes 1 at the family's level, or lies within the margin."""
    found = ratio.ratio
    if judgement is None or judgement.verdict is not Verdict.INCONCLUSIVE:
        return None
    # Each way to an end, with the number of comparisons that its test is adjusted over.
    ways = [(Bound("different", found, most=1.0).at(1.0 - ALPHA / family), family)]
    if margin is not None and found.estimate is not None:
        equivalent = Bound("equivalent", found, 1.0 / (1.0 + margin), 1.0 + margin)
        if abs(math.log(found.estimate)) < math.log1p(margin):
            ways.append((equivalent, 1))
    enough = (
        max(1, bound.blocks_more, (family_resolvable(0, size, ALPHA).blocks_needed or 0) - found.n)
        for bound, size in ways
        if bound.blocks_more is not None
    )
    return min(enough, default=None)


def _gated(gating: Gating, statistic: Statistic) -> dict[str, Judgement]:
    """Verdicts of a gate, whose looks a fixed test knows nothing of; none of single replicas."""
    worse = worse_of(statistic)
    found = {}
    for answer in gating.answers:
        seen = answer.found
        verdict = worse if seen.verdict is Verdict.SLOWER else seen.verdict
        bounds = [
            f"{name} {value:.3f}"
            for name, value in (("at least", seen.at_least), ("at most", seen.at_most))
            if value is not None
        ]
        looked = f"the gate looked {seen.blocks} blocks long: {' and '.join(bounds) or 'too few'}"
        reason = answer.below or looked
        if len(answer.comparisons) == 1:
            found[answer.comparisons[0].id] = Judgement(verdict, reason, None)
    return found


def judge_declared(
    plan: Plan,
    ratios: Mapping[str, Ratio],
    ends: Mapping[str, Sequence[tuple[Sessions, str]]],
) -> dict[str, Judgement]:
    """Judge a family of comparisons of the declared statistic, by its unit and direction.

    Args:
        plan: whose statistic and margin are declared.
        ratios: name -> ratio.
        ends: name -> the cells at both ends, each of some result.
    """
    experiment, workload = plan.experiment, plan.workload
    declared = workload.statistics[experiment.statistic]
    return judge_family(
        ratios,
        alpha=ALPHA,
        margin=experiment.margin_share,
        floors={name: instrument_floor(of) for name, of in ends.items()},
        above_below=above_below(declared),
    )


def above_below(statistic: Statistic) -> tuple[Verdict, Verdict]:
    """What a ratio of a statistic above 1 is called, and one below."""
    if statistic.unit in ("B", "1"):
        return Verdict.MORE, Verdict.LESS
    if statistic.better == "higher":
        return Verdict.FASTER, Verdict.SLOWER
    return Verdict.SLOWER, Verdict.FASTER


def worse_of(statistic: Statistic) -> Verdict:
    """Which of the two is the worse."""
    above, below = above_below(statistic)
    return below if statistic.better == "higher" else above


def half_widths(plan: Plan, sessions: Sessions, statistic: str) -> dict[str, float | None]:
    """Half-width in percent of every comparison that the stopping rule watches."""
    return {c.id: _ratio(sessions, c, statistic).half_width_percent for c in plan.watched}


def ratio_of(
    sessions: Sessions, cell: str, against: str, statistic: str, confidence: float = 0.95
) -> Ratio:
    """One cell over another, block by block, from as many sessions of each."""
    a, b = sessions.tried(cell, against, statistic=statistic)
    return paired_ratio(a, b, confidence)


def _ratio(
    sessions: Sessions, comparison: Comparison, statistic: str, confidence: float = 0.95
) -> Ratio:
    return ratio_of(sessions, comparison.cell, comparison.against, statistic, confidence)
