"""From what was planned to what can be done here: a plan without what is absent, and in the time.

Whatever is taken away is said in the plan (`Plan.cuts`). Pure, as the plan is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare import answerable, repetition
from tare.errors import UnavailableError, UsageError
from tare.plan import ALPHA, Comparison, Plan
from tare.stats.family import family_resolvable


def fit(plan: Plan, budget_s: float) -> Plan:
    """Cut a plan down until it is expected to end within a budget, and say what was cut.

    First the blocks beyond the minimum go, then the sessions that count operations, then those of
    cheap cells beyond one in a block, then requests of each session down to a quarter, then blocks
    down to the fewest that still resolve the family. What decides verdicts goes last.

    Args:
        budget_s: seconds.

    Raises:
        UsageError: even the smallest sensible plan takes longer, or could decide nothing.
    """
    cuts: list[str] = []
    most = len(plan.blocks)
    wanted = most
    while wanted > plan.min_blocks and plan.seconds(wanted) > budget_s:
        wanted -= 1
    if wanted < most:
        cuts.append(f"at most {wanted} blocks instead of {most}")
        plan = plan.model_copy(update={"blocks": plan.blocks[:wanted]})
    causes = plan.causes
    while plan.causes and plan.seconds() > budget_s:
        plan = plan.model_copy(update={"causes": plan.causes - 1})
    if plan.causes < causes:
        few = ", too few for the budget by operation" if plan.causes == 1 else ""
        cuts.append(f"operations are counted {plan.causes} times instead of {causes}{few}")
    fewer = repetition.planned(_limited(plan, budget_s))
    if sum(fewer.sessions.values()) < sum(plan.sessions.values()):
        cuts.append("fewer sessions of cheap cells in a block: intervals will be wider")
        plan = fewer
    if plan.seconds() > budget_s:
        plan, cut = _shorten_sessions(plan, budget_s)
        cuts += cut
    fewest = _fewest_blocks(plan)
    wanted = plan.min_blocks
    while wanted > fewest and plan.seconds(wanted) > budget_s:
        wanted -= 1
    if wanted < plan.min_blocks:
        cuts.append(f"{wanted} blocks instead of {plan.min_blocks}: intervals will be wider")
        plan = plan.model_copy(update={"blocks": plan.blocks[:wanted], "min_blocks": wanted})
    if plan.seconds() > budget_s:
        raise UsageError(
            f"a budget of {budget_s:.0f} s is too short: {fewest} blocks of {len(plan.cells)}"
            f" cells, the fewest that give a verdict, take about {plan.seconds():.0f} s",
            "give it more time, or fewer levels",
        )
    plan.refuse_blind_gate()
    return _limited(plan.model_copy(update={"cuts": (*plan.cuts, *cuts)}), budget_s)


@dataclass(frozen=True)
class Absent:
    """Cells that cannot be had here."""

    what: str
    """What they have in common, such as a level."""
    why: str
    cells: frozenset[str]


def without(plan: Plan, absent: Sequence[Absent]) -> Plan:
    """Go on without cells that cannot be had here, saying so.

    Raises:
        UnavailableError: nothing is left that could be compared.
        UsageError: what is left could decide nothing.
    """
    if not absent:
        return plan
    sentences = tuple(f"without {one.what}: {one.why}" for one in absent)
    gone = frozenset().union(*(one.cells for one in absent))
    kept = tuple(c for c in plan.cells if c.id not in gone)
    ids = {c.id for c in kept}
    comparisons = tuple(c for c in plan.comparisons if c.cell in ids and c.against in ids)
    if _has_effects(plan.comparisons) and not _has_effects(comparisons):
        raise UnavailableError(
            "nothing is left to compare here: " + "; ".join(sentences),
            "`tare doctor` shows what each needs",
        )
    blocks = (
        (
            visit.model_copy(update={"cells": tuple(c for c in visit.cells if c in ids)})
            for visit in b
        )
        for b in plan.blocks
    )
    left = plan.model_copy(
        update={
            "cells": kept,
            "comparisons": comparisons,
            "blocks": tuple(tuple(visit for visit in block if visit.cells) for block in blocks),
            "cuts": (*plan.cuts, *sentences),
        }
    )
    left.refuse_blind_gate()
    return repetition.planned(left)


def without_causes(plan: Plan, why: str) -> Plan:
    """Go on without sessions in which operations are counted, saying so."""
    said = f"operations are not counted: {why}"
    return plan.model_copy(update={"causes": 0, "cuts": (*plan.cuts, said)})


def _has_effects(comparisons: Sequence[Comparison]) -> bool:
    return any(comparison.kind == "effect" for comparison in comparisons)


def _limited(plan: Plan, budget_s: float) -> Plan:
    """Keep to the budget where the pilot blocks will decide how long a block takes."""
    if plan.experiment.blocks.sessions != "auto":
        return plan
    a_block = (budget_s - plan.causes_seconds()) / max(1, len(plan.blocks))
    return plan.model_copy(update={"block_limit_s": a_block})


def _fewest_blocks(plan: Plan) -> int:
    if not plan.family:
        return min(plan.min_blocks, 2)
    needed = family_resolvable(plan.min_blocks, len(plan.family), ALPHA).blocks_needed
    return min(plan.min_blocks, needed or plan.min_blocks)


def _shorten_sessions(plan: Plan, budget_s: float) -> tuple[Plan, list[str]]:
    """Take a share of the requests of every session, no less than a quarter.

    Nor less than resolve what is judged: all values would be absent.
    """
    if "requests" not in plan.session:
        return plan, []
    declared = int(plan.session["requests"])
    fewest = answerable.fewest_requests(plan.workload, plan.experiment.statistic, plan.cells)
    if fewest >= declared:
        return plan, []

    def with_requests(count: int) -> Plan:
        return plan.model_copy(update={"session": plan.session.but(requests=str(count))})

    for percent in range(95, 20, -5):
        shorter = with_requests(max(fewest, declared * percent // 100))
        if percent == 25 or shorter.seconds() <= budget_s:
            count = shorter.session["requests"]
            return shorter, [f"{count} requests a session instead of {declared}"]
    return plan, []
