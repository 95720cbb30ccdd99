"""By contrast: what of a response is floor, virtualisation, middleware, interaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from tare import transports
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.stats.shares import Share, Shares, by_contrast


@dataclass(frozen=True)
class Contrast:
    """One mean response split by contrast."""

    cell: Cell
    """The environment in question with the middleware: the whole."""
    shares: Shares[Share]
    """Of session means, in ns: floor, virtualisation, middleware, interaction."""


def contrasts(sessions: Sessions) -> tuple[Contrast, ...]:
    """Split every cell that is neither in the baseline nor on the floor.

    A cell is left out where the plan lacks one of the other three, or has several that qualify.
    """
    experiment = sessions.plan.experiment
    base, floor = experiment.baseline, experiment.floor
    if not floor or "environment" not in base:
        return ()  # what is not an environment does not virtualise
    cells = [cell for cell in sessions.plan.cells if cell.replica == 1]
    found = []
    for cell in cells:
        if _has(cell, base) or _has(cell, floor):
            continue
        if not transports.served(cell.levels.get("transport")):
            continue  # nothing stands above the floor that could be split
        base_floor = _sibling(cells, cell, {**base, **floor})
        env_floor, base_middleware = (_sibling(cells, cell, only) for only in (floor, base))
        if base_floor is None or env_floor is None or base_middleware is None:
            continue
        four = (base_floor.id, env_floor.id, base_middleware.id, cell.id)
        least, env, middleware, both = sessions.columns(*four, statistic="mean", mean=fmean)
        split = by_contrast(
            base_floor=least, env_floor=env, base_middleware=middleware, env_middleware=both
        )
        if split.n_used:
            found.append(Contrast(cell, split))
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
