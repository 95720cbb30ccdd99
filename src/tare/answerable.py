"""What of an experiment could never be answered: refused before anything is measured. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set, Sized

from tare.cell import Cell
from tare.errors import UsageError
from tare.experiment import Experiment
from tare.stats.family import Resolvability, family_resolvable
from tare.stats.gating import Gate
from tare.stats.quantiles import samples_needed
from tare.stats.sequential import smallest_p
from tare.workloads import AnyWorkload


def refuse_without_answer(experiment: Experiment, cells: Sequence[Cell], *, judged: bool) -> None:
    """Refuse what the exclusions left without an answer.

    Args:
        experiment: what is asked.
        cells: those that are left.
        judged: whether any comparison of theirs is in the family.
    """
    asked = {"baseline": experiment.baseline, "floor": experiment.floor or {}}
    for field, levels in asked.items():
        if not any(cell.has(levels) for cell in cells):
            shown = ", ".join(f"{name}: {level}" for name, level in levels.items())
            raise UsageError(
                f"{field}: no cell is left with {shown}", "exclude less, or name other levels"
            )
    if isinstance(experiment.family, Mapping) and not judged:
        shown = ", ".join(f"{n}: {' or '.join(which)}" for n, which in experiment.family.items())
        raise UsageError(
            f"family: no comparison is of a cell with {shown}, and nothing would be judged",
            "name levels that are not the baseline's, or write `family: none`",
        )


def refuse_unresolvable(experiment: Experiment, comparisons: int, alpha: float) -> None:
    """Refuse so few blocks that none of so many comparisons could be told apart at this level."""
    if comparisons == 0 or experiment.gate is not None:
        return
    found: Resolvability = family_resolvable(experiment.blocks.min, comparisons, alpha)
    if not found.resolvable:
        raise UsageError(
            f"{experiment.blocks.min} blocks cannot resolve {comparisons}"
            f" comparison{'' if comparisons == 1 else 's'}: the smallest p-value that they can give"
            f" is {found.smallest_p:.2g}, and the family needs {found.threshold:.2g}",
            f"measure {found.blocks_needed} or more (`blocks.min`, of a command --blocks), or"
            " compare fewer (a smaller `family`, fewer levels)",
        )


def fewest_requests(workload: AnyWorkload, statistic: str, cells: Sequence[Cell]) -> int:
    """Requests of each client from which on a session of every cell may resolve a statistic."""
    if not workload.response_times or not re.fullmatch(r"p[0-9.]+", statistic):
        return 1
    rows = workload.levels.rows
    clients = min(cell.levels.read(rows["clients"]) if "clients" in rows else 1 for cell in cells)
    return math.ceil(samples_needed(float(statistic[1:])) / clients)


def refuse_short_sessions(statistic: str, requests: int, fewest: int) -> None:
    """Refuse sessions that are all too short for the percentile that they are judged by."""
    if requests < fewest:
        raise UsageError(
            f"session.requests: {requests} requests of a client never resolve {statistic}, by which"
            f" its sessions are judged: that takes {fewest}",
            f"set session.requests to {fewest} or more, or name another 'statistic'",
        )


def refuse_alone(workload: str, machines: Set[object]) -> None:
    """Refuse to measure hosts at once where no two could be.

    Args:
        workload: its name.
        machines: those that cells are wholly on; None stands for what is here.
    """
    if len(machines - {None}) < 2:
        raise UsageError(
            "hosts: at-once asks for two or more machines by ssh with cells of which no part is on"
            f" this one; this experiment has fewer: {workload} has none, or runs on too few",
            "remove `hosts`, or measure cpu or memory with `mode: alone` on more machines",
        )


def refuse_blind_gate(
    experiment: Experiment, gate: Gate, gated: Mapping[str, Sized], blocks: int
) -> None:
    """Refuse a gate that could never fail: nothing to judge, or too few units for its error.

    Args:
        experiment: what is asked.
        gate: its rule.
        gated: what it judges, each with the comparisons that it is judged by.
        blocks: of the plan.
    """
    asked = experiment.gate
    assert asked is not None
    if not gated:
        raise UsageError(
            "a gate has nothing to judge: no comparison is in the family",
            "name a baseline and a family; of a command: --against",
        )
    if asked.over is not None and asked.over not in experiment.factors:
        names = ", ".join(experiment.factors)
        raise UsageError(f"gate.over: {asked.over!r} is not among the factors: {names}")
    units = blocks
    if asked.over is not None:
        units = min(map(len, gated.values()))
    if smallest_p(units) > gate.looks.alpha:
        fewest = math.ceil(-math.log2(gate.looks.alpha))
        of = "blocks" if asked.over is None else f"levels of {asked.over}"
        raise UsageError(
            f"{units} {of} can never show that anything is slower at {asked.significance}",
            f"have {fewest} or more",
        )
