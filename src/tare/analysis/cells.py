"""One cell over its sessions: levels with intervals, deadlines, and what looks odd."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from tare.analysis.beside_trials import Spread, spread
from tare.analysis.sessions import GRID, Session, Sessions
from tare.cell import Cell
from tare.record import Trial
from tare.stats import (
    PERCENTS,
    BlockTrend,
    DeadlineView,
    Estimate,
    across,
    block_trend,
    deadline_view,
    holm,
)
from tare.stats.modes import Modes, two_modes
from tare.workloads import AnyWorkload, Statistic

PERCENTILES = tuple(f"p{percent:g}" for percent in PERCENTS)
_RESPONSE_TIMES: Mapping[str, Statistic] = {
    "min": Statistic("smallest response time of a session"),
    "mean": Statistic("mean response time of a session"),
    **{name: Statistic(f"{name[1:]}th percentile of a session") for name in PERCENTILES},
    "max": Statistic("largest response time of a session"),
    "jitter": Statistic("mean absolute difference of successive response times"),
    "throughput": Statistic("replies a second", "1/s", "higher"),
}
Key = tuple[int, int]
"""A session of a cell: its block, and which of the cell's sessions there, both from 0."""
ODD_ALPHA = 0.01
"""Family-wise, of what is told beside the verdicts."""


@dataclass(frozen=True)
class CellView:
    """What is known of one cell."""

    cell: Cell
    sessions: Mapping[Key, Session]
    """(block, repeat) -> session; absent where the trial failed or has not run, or holds values
    instead of response times."""
    measured: int
    """Trials of this cell that were measured."""
    failed: int
    """Trials of this cell that failed."""
    declared: Mapping[Key, float]
    """(block, repeat) -> the declared statistic of that session."""
    estimates: Mapping[str, Estimate]
    """Statistic -> geometric mean over sessions with its interval; the mean without one of what is
    not always positive; of response times in ns,
    throughput in 1/s; else in the units of the workload's statistics."""
    unresolved: Mapping[str, int]
    """Percentile -> sessions with too few samples for it. Where there is any, the percentile's
    estimate would rest on the sessions that happened to resolve it, and is not to be printed."""
    lost: int
    """Requests without a reply, over all sessions."""
    requests: int
    """Requests, over all sessions."""
    duplicated: int
    reordered: int
    deadlines: tuple[DeadlineView, ...]
    """In the order of the experiment's deadlines; empty without sessions."""
    drifting: tuple[Key, ...]
    """(block, repeat) of sessions whose halves differ: they were still warming up, or disturbed.
    Told over all sessions of the run (`over_the_run`)."""
    quantiles: Mapping[float, Spread]
    """Share of requests -> the quantile in ns over sessions, as far as every session has it."""
    trend: BlockTrend
    """Of the declared statistic, over the order of blocks."""
    modes: Modes | None
    """Of the declared statistic, in the first session of each block that has it: those of one block
    share their setting up. None where there are too few blocks to tell."""
    facts: Mapping[str, Any]
    """What the environment said of itself in the last trial: kernel, versions, options."""
    accelerators: tuple[str, ...]
    """What ran the guest's instructions in its measured trials, tcg or kvm; more than one where
    trials of several were put into one result, which a run no longer does."""

    @property
    def accelerator(self) -> str | None:
        """The accelerator as tables name it; None where there is no guest."""
        return "+".join(self.accelerators) or None

    def resolved(self, statistic: str) -> Estimate | None:
        """The estimate of a statistic, or None where its sessions cannot resolve it."""
        estimate = self.estimates[statistic]
        if estimate.value is None or self.unresolved.get(statistic):
            return None
        return estimate


def statistics_of(workload: AnyWorkload) -> Mapping[str, Statistic]:
    """Name -> what is estimated of the sessions of a workload."""
    return _RESPONSE_TIMES if workload.response_times else workload.statistics


def level(sessions: Sessions, cell: str, statistic: str) -> Estimate | None:
    """A cell's value over its sessions; None where one of them cannot resolve it, or none has it.

    `CellView.resolved` of the same statistic, without the rest of a view.
    """
    responses = [sessions.session(trial) for trial in sessions.measured(cell)]
    if any(session is not None and not session.resolves(statistic) for session in responses):
        return None
    found = across(sessions.column(cell, statistic))
    return None if found.value is None else found


def plain(told: Sequence[float], confidence: float) -> Estimate:
    """The mean of what has no ratio, without an interval."""
    return Estimate(fmean(told), None, None, confidence, min(told), max(told), len(told))


def view_cell(cell: Cell, sessions: Sessions) -> CellView:
    """Describe one cell of a result."""
    experiment, workload = sessions.plan.experiment, sessions.plan.workload
    statistic = experiment.statistic
    statistics = statistics_of(workload)
    trials = sessions.trials_of(cell.id)
    of_trials = {(t.block, t.repeat): sessions.session(t) for t in trials}
    found = {key: session for key, session in of_trials.items() if session is not None}
    columns = {name: sessions.column(cell.id, name, resolved=True) for name in statistics}
    values = {(t.block, t.repeat): sessions.value(t, statistic) for t in trials}
    declared = {key: value for key, value in values.items() if value is not None}
    members = list(found.values())
    return CellView(
        cell=cell,
        sessions=found,
        measured=len(sessions.measured(cell.id)),
        declared=declared,
        failed=sum(trial.status == "failed" for trial in trials),
        estimates={
            name: across(column)
            if sessions.has_ratio(cell.id, name)
            else plain(sessions.told(cell.id, name), across(column).confidence)
            for name, column in columns.items()
        },
        unresolved={
            name: sum(not session.resolves(name) for session in members) for name in PERCENTILES
        },
        lost=sum(session.lost for session in members),
        requests=sum(session.requests for session in members),
        duplicated=_counted(trials, "duplicated"),
        reordered=_counted(trials, "reordered"),
        deadlines=tuple(
            deadline_view(
                deadline,
                p50_ns=columns["p50"],
                p99_ns=columns["p99"],
                replies=_by_block({key: session.replies for key, session in found.items()}),
                late=_by_block({key: session.late[i] for key, session in found.items()}),
                lost=_by_block({key: session.lost for key, session in found.items()}),
            )
            for i, deadline in enumerate(experiment.deadlines_ns)
            if members
        ),
        drifting=tuple(
            key
            for key, session in found.items()
            if session.summary.drift is not None and session.summary.drift.flagged
        ),
        trend=block_trend(sessions.column(cell.id, statistic)),
        modes=two_modes(
            [block[0] for block in sessions.by_block(cell.id, statistic) if block],
            among=len(sessions.plan.cells),
        ),
        quantiles=_quantiles(members),
        facts=next((t.facts.whole for t in reversed(trials) if t.facts.whole), {}),
        accelerators=sessions.accelerators(cell.id),
    )


def over_the_run(views: Sequence[CellView]) -> tuple[CellView, ...]:
    """Hold what looks odd to one level over all cells and sessions.

    Of hundreds of sessions some would be flagged by chance: p-values are adjusted by Holm over the
    run's sessions, for trends and modes over its cells.
    """
    drifts = [
        (view.cell.id, key, drift)
        for view in views
        for key, session in view.sessions.items()
        if (drift := session.summary.drift) is not None
    ]
    adjusted = holm([drift.p for _, _, drift in drifts])
    drifting = {
        (cell, key)
        for (cell, key, drift), p in zip(drifts, adjusted, strict=True)
        if drift.flagged and p < ODD_ALPHA
    }
    trends = holm([math.nan if v.trend.p is None else v.trend.p for v in views])
    modes = holm([math.nan if v.modes is None else v.modes.p for v in views])
    return tuple(
        replace(
            view,
            drifting=tuple(k for k in view.drifting if (view.cell.id, k) in drifting),
            trend=replace(view.trend, flagged=view.trend.flagged and trend < ODD_ALPHA),
            modes=view.modes
            and replace(view.modes, flagged=view.modes.flagged and mode <= ODD_ALPHA),
        )
        for view, trend, mode in zip(views, trends, modes, strict=True)
    )


def _quantiles(members: Sequence[Session]) -> dict[float, Spread]:
    """As far into the tail as every session has the samples for it."""
    found = {}
    for i, share in enumerate(GRID):
        values = [session.quantiles[i] or None for session in members]
        over = spread(values)
        if over is not None and over.n == len(members):
            found[share] = over
    return found


def _by_block(counts: Mapping[Key, int]) -> list[int]:
    """What each block's sessions count together: bad luck is a block's as well as a session's."""
    totals: Counter[int] = Counter()
    for (block, _), count in counts.items():
        totals[block] += count
    return list(totals.values())


def _counted(trials: Sequence[Trial], counter: str) -> int:
    return sum(trial.counters.get(counter, 0) for trial in trials)
