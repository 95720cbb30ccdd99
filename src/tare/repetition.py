"""How many sessions of each cell a block of a plan holds, and which cells are still visited. Pure.

An experiment says a number for all, or `auto`: then cheap cells run several, by what the plan
expects everything to cost at first, and from the pilot blocks on by what it did cost and by how
much sessions and settings-up were seen to differ (`stats/repetition.py`). A cell and the second
arm of its A/A pair have the same number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping

from tare.plan import Plan, Visit
from tare.stats.repetition import GUESS, Spread, allot

_MOST = 12
"""Sessions of a cell in a block: beyond, what differs between settings-up is most of the rest."""
_BOOT_S = 2.0
"""What takes so long to be set up is a guest, or a file system of jobs: one session in each, since
boots differ more than sessions in them."""

Pairs = Mapping[tuple[str, str], Spread | None]
"""(cell, against) -> how they were seen to differ; None where it cannot be told."""


def planned(plan: Plan) -> Plan:
    """Give a plan the numbers that it begins with."""
    asked = plan.experiment.blocks.sessions
    if asked != "auto":
        many = {cell.id: asked for cell in plan.cells} if asked > 1 else {}
        return plan.model_copy(update={"sessions": many})
    once = plan.model_copy(update={"sessions": {}})
    seconds = {c.id: plan.workload.seconds(c.levels, plan.session) for c in plan.cells}
    booted = {c.id for c in plan.cells if plan.workload.setup_seconds(c.levels) >= _BOOT_S}
    cheap = {cell: cost for cell, cost in seconds.items() if cell not in booted}
    pairs = {(c.cell, c.against): GUESS for c in plan.watched}
    many = _allotted(plan, cheap, once.block_seconds(), pairs)
    return plan.model_copy(update={"sessions": many})


def adapted(
    plan: Plan, costs: Mapping[str, float], block_seconds: float, pairs: Pairs
) -> dict[str, int]:
    """Numbers once the pilot blocks have run.

    Only cells that the plan repeats already: of others nobody knows how their sessions differ.

    Args:
        plan: with the numbers that the pilot blocks had.
        costs: cell -> seconds of a session, as measured; cells that failed throughout are absent.
        block_seconds: as measured, of a block with those numbers.
        pairs: of every comparison that is watched.
    """
    several = {cell: cost for cell, cost in costs.items() if plan.sessions.get(cell, 1) > 1}
    beyond = sum(cost * (plan.sessions[cell] - 1) for cell, cost in several.items())
    known = {pair: spread or GUESS for pair, spread in pairs.items()}
    return _allotted(plan, several, block_seconds - beyond, known)


def _allotted(
    plan: Plan,
    costs: Mapping[str, float],
    once_seconds: float,
    pairs: Mapping[tuple[str, str], Spread],
) -> dict[str, int]:
    """Allot sessions, where the first ones of all cells take `once_seconds` together."""
    second_arm = {c.against: c.cell for c in plan.comparisons if c.kind == "a/a"}
    compared = {cell for pair in pairs for cell in pair}
    with_arms = {
        cell: cost + costs.get(second_arm.get(cell, ""), 0.0)
        for cell, cost in costs.items()
        if cell in compared
    }
    fixed = max(0.0, once_seconds - sum(with_arms.values()))
    limit = math.inf if plan.block_limit_s is None else plan.block_limit_s
    found = allot(with_arms, fixed, pairs, most=_MOST, most_seconds=limit)
    arms = {second_arm[cell]: number for cell, number in found.items() if cell in second_arm}
    return {cell: number for cell, number in {**found, **arms}.items() if number > 1}


def order(
    plan: Plan, block: int, visit: Visit, sessions: Mapping[str, int], without: Collection[str] = ()
) -> tuple[tuple[str, int], ...]:
    """The trials of one setting up in order: (cell, which of its sessions).

    In rounds, each in an order of its own: the first session of every cell, then the second of
    those that have one. So a cell's sessions lie apart, and as many of each as another has, the
    first ones, lie as evenly as they would alone.
    """
    found = [(cell, 0) for cell in visit.cells]
    for number in range(1, max(sessions.get(cell, 1) for cell in visit.cells)):
        again = [cell for cell in visit.cells if sessions.get(cell, 1) > number]
        seed = f"{plan.seed} {block} {number} {visit.cells}"
        random.Random(seed).shuffle(again)  # noqa: S311 - an order, not a secret
        found += [(cell, number) for cell in again]
    return tuple(trial for trial in found if trial[0] not in without)


def finished(plan: Plan, wide: Collection[str]) -> frozenset[str]:
    """Cells that need no more blocks: each of their comparisons has met the target.

    A baseline goes on while any comparison with it does. The second arm of an A/A pair goes with
    its first. What no target is asked of goes on while the setting up that it shares does.

    Args:
        plan: of the run.
        wide: ids of the watched comparisons that have not met the target.
    """
    watched = {cell for c in plan.watched for cell in (c.cell, c.against)}
    going_on = {cell for c in plan.watched if c.id in wide for cell in (c.cell, c.against)}
    originals = {cell.id for cell in plan.cells if cell.replica == 1}
    for visit in plan.blocks[0]:
        if going_on & set(visit.cells):
            going_on |= originals.intersection(visit.cells) - watched
    going_on |= {c.cell for c in plan.comparisons if c.kind == "a/a" and c.against in going_on}
    return frozenset(cell.id for cell in plan.cells) - going_on
