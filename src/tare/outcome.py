"""A result as files of other tools tell it: its run, and of each cell sessions and estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.analysis.cells import level, statistics_of
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.command import shell_line
from tare.errors import UsageError
from tare.identity import Identity, identify
from tare.levels import Settings
from tare.record import Record, Trial
from tare.stats import Estimate
from tare.workloads import Statistic


@dataclass(frozen=True)
class CellOutcome:
    """One cell of which something is known."""

    name: str
    levels: Mapping[str, str]
    """Factor -> level; of a guest's accelerator what it ran under, never `auto`."""
    estimates: Mapping[str, Estimate]
    """Statistic -> geometric mean over blocks with its 95 % interval, in the statistic's unit."""
    sessions: Mapping[str, Sequence[tuple[Trial, float]]]
    """Statistic -> each trial that was measured, and its value, by block."""


@dataclass(frozen=True)
class Outcome:
    """What is told of a result. The second arm of an A/A pair is not."""

    run: Identity
    workload: str
    statistics: Mapping[str, Statistic]
    """All that the workload has, or the one that was asked for."""
    cells: Sequence[CellOutcome]
    """At least one, each with an estimate of one of them at least."""
    settings: Settings
    """What every session shared."""


def outcome(record: Record, statistic: str | None = None) -> Outcome:
    """Read what a result tells.

    Args:
        record: the result.
        statistic: the one to tell; all where None.

    Raises:
        UsageError: there is no such statistic, no trial was measured, no cell resolves it, or a
            cell's guests ran under several accelerators.
    """
    plan, sessions = record.plan, Sessions(record)
    known = statistics_of(plan.workload)
    if statistic is not None and statistic not in known:
        raise UsageError(
            f"{plan.workload.name} has no statistic {statistic!r}", f"choose {', '.join(known)}"
        )
    if not any(trial.status == "ok" for trial in sessions.trials):
        raise UsageError(
            f"{record.folder} holds no trial that was measured, so there is nothing to export",
            f"see what failed: {shell_line('tare', 'show', record.folder)}; or go on:"
            f" {shell_line('tare', 'run', '--resume', record.folder)}",
        )
    told = known if statistic is None else {statistic: known[statistic]}
    every = (_cell(sessions, cell, told) for cell in plan.cells if cell.replica == 1)
    cells = [cell for cell in every if cell.estimates]
    if not cells:
        raise UsageError(
            f"no cell of {record.folder} has the statistic {', '.join(told)}: its sessions are too"
            " short for it, or it was not measured",
            f"choose another of {', '.join(known)}",
        )
    return Outcome(identify(record), plan.workload.name, told, cells, plan.session)


def _cell(sessions: Sessions, cell: Cell, told: Mapping[str, Statistic]) -> CellOutcome:
    accelerators = sessions.accelerators(cell.id)
    if len(accelerators) > 1:
        raise UsageError(
            f"guests of {cell.id} ran under {' and '.join(accelerators)}: one value of both would"
            " be neither's",
            "export the trials, each with its accelerator: --format csv",
        )
    levels = dict(cell.levels)
    if accelerators:
        levels["accelerator"] = accelerators[0]
    estimates = {name: level(sessions, cell.id, name) for name in told}
    values = {
        name: [(trial, sessions.value(trial, name)) for trial in sessions.measured(cell.id)]
        for name in told
    }
    return CellOutcome(
        cell.id,
        levels,
        {name: found for name, found in estimates.items() if found is not None},
        {
            name: [(trial, value) for trial, value in found if value is not None]
            for name, found in values.items()
        },
    )
