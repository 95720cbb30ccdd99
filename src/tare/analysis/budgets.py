"""The budget by contrast: what of a response is floor, virtualisation, middleware, interaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tare import transports
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.experiment import Experiment
from tare.plan import Plan
from tare.stats.budget import ContrastBudget, contrast_budget

__all__ = ["Budget", "split_by_contrast"]

STATISTIC = "mean"
"""Means of layers add; medians do not."""


@dataclass(frozen=True)
class Budget:
    """One response split by contrast."""

    cell: Cell
    """The environment in question with the middleware: the total."""
    base_floor: Cell
    env_floor: Cell
    base_middleware: Cell
    split: ContrastBudget
    """Of session means, in ns."""


def split_by_contrast(experiment: Experiment, plan: Plan, sessions: Sessions) -> tuple[Budget, ...]:
    """Split every cell that is neither in the baseline nor on the floor.

    A cell is left out where the plan lacks one of the other three, or has several that qualify.
    """
    if not experiment.floor or "environment" not in experiment.baseline:
        return ()  # what is not an environment does not virtualise
    cells = [cell for cell in plan.cells if cell.replica == 1]
    base, floor = experiment.baseline, experiment.floor
    found = []
    for cell in cells:
        if _has(cell, base) or _has(cell, floor):
            continue
        if not transports.served(cell.levels.get("transport")):
            continue  # nothing stands above the floor that could be split
        base_middleware = _sibling(cells, cell, base)
        env_floor = _sibling(cells, cell, floor)
        base_floor = _sibling(cells, cell, {**base, **floor})
        if base_middleware is None or env_floor is None or base_floor is None:
            continue
        split = contrast_budget(
            base_floor=sessions.column(base_floor.id, STATISTIC),
            env_floor=sessions.column(env_floor.id, STATISTIC),
            base_middleware=sessions.column(base_middleware.id, STATISTIC),
            env_middleware=sessions.column(cell.id, STATISTIC),
        )
        if split.n_used:
            found.append(Budget(cell, base_floor, env_floor, base_middleware, split))
    return tuple(found)


def _has(cell: Cell, levels: Mapping[str, str]) -> bool:
    return all(cell.levels.get(name) == level for name, level in levels.items())


def _sibling(cells: Iterable[Cell], cell: Cell, changed: Mapping[str, str]) -> Cell | None:
    """The one cell with these levels changed and, where both have a factor, the others equal."""
    wanted = {**cell.levels, **changed}
    found = [
        other
        for other in cells
        if _has(other, changed)
        and all(other.levels[n] == wanted[n] for n in other.levels if n in wanted)
    ]
    return found[0] if len(found) == 1 else None
