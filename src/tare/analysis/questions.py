"""From sessions to verdicts: every comparison of the plan, and the noise that it must exceed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tare.analysis.sessions import Sessions
from tare.plan import ALPHA, Cell, Comparison, Plan
from tare.stats import Judgement, Ratio, judge_family, paired_ratio

__all__ = ["DESCRIPTIVE", "Question", "ask", "half_widths"]

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
    """Of the declared statistic, paired by block; times in ns."""
    judgement: Judgement | None
    """None where the comparison is outside of the family: its interval is descriptive."""
    others: Mapping[str, Ratio]
    """Statistic -> ratio, descriptive; over the blocks in which both sessions resolve it."""


def ask(
    plan: Plan,
    sessions: Sessions,
    statistic: str,
    margin: float | None,
    instrument_floor_ns: float | None,
) -> tuple[Question, ...]:
    """Answer every comparison of a plan, in its order; A/A pairs included.

    Args:
        plan: of the run.
        sessions: of the same run.
        statistic: what a session is summarised by.
        margin: of equivalence, as a fraction; None declares none.
        instrument_floor_ns: smallest difference that the calibrated instrument can tell.
    """
    ratios = {c.id: _ratio(sessions, c, statistic) for c in plan.comparisons}
    judgements = judge_family(
        {c.id: ratios[c.id] for c in plan.family},
        alpha=ALPHA,
        margin=margin,
        floor=instrument_floor_ns,
    )
    cells = {cell.id: cell for cell in plan.cells}
    return tuple(
        Question(
            comparison=comparison,
            cell=cells[comparison.cell],
            against=cells[comparison.against],
            ratio=ratios[comparison.id],
            judgement=judgements.get(comparison.id),
            others={name: _ratio(sessions, comparison, name) for name in DESCRIPTIVE},
        )
        for comparison in plan.comparisons
    )


def half_widths(plan: Plan, sessions: Sessions, statistic: str) -> dict[str, float | None]:
    """Half-width in percent of every comparison that the stopping rule watches.

    That is the family; all effects where the experiment has none.
    """
    watched = plan.family or tuple(c for c in plan.comparisons if c.kind == "effect")
    return {c.id: _ratio(sessions, c, statistic).half_width_percent for c in watched}


def _ratio(sessions: Sessions, comparison: Comparison, statistic: str) -> Ratio:
    return paired_ratio(
        sessions.column(comparison.cell, statistic),
        sessions.column(comparison.against, statistic),
    )
