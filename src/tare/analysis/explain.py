"""What differs between two cells, ordered by how much of the effect each difference can explain.

Three kinds of evidence, each with its own sum, since they tell of the same time:

- where every thread was (accounts.py): on-CPU times by party, whose changes add up to the effect
  where the account closes;
- what the threads did (causes.py): the change of each operation's unit cost and of its count;
- what was read beside the trials (readings.py): shares of time, priced events, frequency; for a
  workload without requests there is nothing else.

Facts and settings that differ are named without an amount. Where the effect cannot be told from
zero, or nothing that has an amount makes up enough of it, it counts as not explained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from tare import experiment as experiments
from tare import machine, workloads
from tare.analysis.accounts import CellAccount, account_for
from tare.analysis.causes import operations_of
from tare.analysis.readings import READINGS, Reading
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import UsageError
from tare.record import CauseSession, Record, Trial
from tare.stats import Interval, Ratio, paired_ratio
from tare.stats.attribution import Attribution, ProductChange, attribute, product_change
from tare.stats.budget import fieller
from tare.stats.interval import mean_interval
from tare.stats.unit_costs import Operation
from tare.workloads import Statistic, rows

__all__ = ["Explained", "OperationChange", "ReadingChange", "explain", "explain_difference"]


@dataclass(frozen=True)
class OperationChange:
    """One operation, and what its change adds to the response."""

    name: str
    change: ProductChange
    """In ns for each request."""
    share: float | None
    """That over the effect; None where the effect is nothing."""
    costs_ns: tuple[float, float]
    """Mean unit cost here and there."""
    counts: tuple[float, float]
    """Mean number for each request here and there."""
    overlaps: tuple[str, ...]


@dataclass(frozen=True)
class ReadingChange:
    """Something read beside the trials that differs, and how much it can explain at most."""

    name: str
    kind: str
    here: Interval
    there: Interval
    change: Interval
    """Here less there, paired by block."""
    share: Interval | None
    """Of the logarithm of the effect, by Fieller; None where a difference has no price."""
    anyones: bool
    """Whether it befell anybody on the machine, and not for certain what was measured."""

    @property
    def differs(self) -> bool:
        """Whether the interval of the change excludes zero."""
        return self.change.excludes(0.0)


@dataclass(frozen=True)
class Explained:
    """Everything that differs between two cells."""

    cell: Cell
    against: Cell
    statistic: str
    """Whose effect is explained: the mean where there are requests, since means add."""
    ratio: Ratio
    slowing: Interval
    """Logarithm of how many times slower: of the ratio; where higher is better, of its inverse."""
    accounts: Attribution | None
    """Where the threads were, ns for each request; None without accounts on both sides."""
    closes: bool
    """Whether both accounts can be expected to close."""
    operations: tuple[OperationChange, ...]
    """The largest first; empty where operations were not counted on both sides."""
    uncounted: tuple[str, ...]
    """Operations that one side could not tell, so that their change is not known."""
    readings: tuple[ReadingChange, ...]
    """Those that differ, the ones that can explain most first, those without a price last."""
    alike: tuple[str, ...]
    """Readings in which no difference was seen."""
    facts: tuple[tuple[str, Any, Any], ...]
    """(what, here, there): levels, and what environments and programs said of themselves."""
    countable: bool
    """Whether operations could be counted: the workload answers requests."""

    @property
    def effect_found(self) -> bool:
        """Whether there is an effect to explain: its interval excludes none at all."""
        return self.slowing.excludes(0.0)

    @property
    def operations_share(self) -> float | None:
        """Share of the effect that the operations' changes add up to."""
        shares = [operation.share for operation in self.operations]
        return None if not shares or None in shares else sum(s for s in shares if s is not None)

    @property
    def explained(self) -> bool:
        """Whether any one kind of evidence makes up at least half of the effect.

        Half is a convention: below it, what is missing is more than what was found.
        """
        threads = self.accounts.share.estimate if self.accounts else None
        best = [r.share.estimate for r in self.readings if r.share and not r.anyones]
        shares = (threads, self.operations_share, *best)
        return self.effect_found and any(s is not None and s >= _ENOUGH for s in shares)


_ENOUGH = 0.5


def explain(record: Record, cell_id: str, against_id: str | None = None) -> Explained:
    """Explain the effect of one cell of a result over another.

    Args:
        record: a result, finished or not.
        cell_id: the layer in question.
        against_id: what it is compared with; what the plan compares it with where None.

    Raises:
        UsageError: there is no such cell, or nothing that it is compared with.
    """
    plan, experiment = record.plan, experiments.load(record.experiment_path, recorded=True)
    workload = workloads.by_name()[experiment.workload]
    cells = {cell.id: cell for cell in plan.cells}
    if against_id is None:
        compared = {c.cell: c.against for c in plan.comparisons}
        against_id = compared.get(cell_id, "" if cell_id in cells else None)
    if against_id == "":
        raise UsageError(
            f"the plan compares {cell_id} with nothing", "name the cell to hold it against"
        )
    for asked in (cell_id, against_id):
        if asked not in cells:
            raise UsageError(
                f"{record.folder} has no cell {asked or cell_id!r}",
                f"choose among {', '.join(sorted(cells))}",
            )
    sessions = Sessions(record, experiment.deadlines_ns)
    pair = (cells[cell_id], cells[str(against_id)])
    found = [account_for(cell, sessions) for cell in pair] if workload.response_times else []
    return explain_difference(
        *pair,
        sessions,
        record.causes(),
        {account.cell.id: account for account in found if account is not None},
        (experiment.statistic, workload.statistics[experiment.statistic]),
        countable=workload.response_times,
    )


def explain_difference(
    cell: Cell,
    against: Cell,
    sessions: Sessions,
    counted: Sequence[CauseSession],
    accounts: Mapping[str, CellAccount],
    statistic: tuple[str, Statistic],
    *,
    countable: bool,
) -> Explained:
    """Explain the effect of one cell over another.

    Args:
        cell: the layer in question.
        against: what it is compared with.
        sessions: of the whole result.
        counted: counting sessions of the whole result.
        accounts: cell id -> account; empty for a workload without requests.
        statistic: name and row of what is explained, for a workload without requests.
        countable: whether operations of this workload can be counted.
    """
    mine, other = accounts.get(cell.id), accounts.get(against.id)
    requests = mine is not None and other is not None
    name, higher = ("mean", False) if requests else (statistic[0], statistic[1].better == "higher")
    here, there = sessions.column(cell.id, name), sessions.column(against.id, name)
    ratio = paired_ratio(here, there)
    found = _attributed(mine, other, here, there) if mine and other else None
    operations, uncounted = _operations(cell, against, sessions, counted, found)
    slowings = [
        None if a is None or b is None else math.log(a / b) * (-1 if higher else 1)
        for a, b in zip(here, there, strict=True)
    ]
    readings = _readings(cell, against, sessions, counted, slowings)
    differing = tuple(sorted((r for r in readings if r.differs), key=_worth, reverse=True))
    return Explained(
        cell=cell,
        against=against,
        statistic=name,
        ratio=ratio,
        slowing=_interval(slowings),
        accounts=found,
        closes=bool(mine and other and mine.closes and other.closes),
        operations=operations,
        uncounted=uncounted,
        readings=differing,
        alike=tuple(r.name for r in readings if not r.differs),
        facts=_facts(cell, against, sessions),
        countable=countable,
    )


def _attributed(
    mine: CellAccount,
    other: CellAccount,
    here: Sequence[float | None],
    there: Sequence[float | None],
) -> Attribution | None:
    names = dict.fromkeys((*mine.by_block, *other.by_block))
    if not names:
        return None
    # Who is on one side only did nothing on the other.
    nothing = (0.0,) * len(here)
    parts = {n: (mine.by_block.get(n, nothing), other.by_block.get(n, nothing)) for n in names}
    found = attribute(here, there, parts)
    return found if found.n_used > 1 else None


def _operations(
    cell: Cell,
    against: Cell,
    sessions: Sessions,
    counted: Sequence[CauseSession],
    found: Attribution | None,
) -> tuple[tuple[OperationChange, ...], tuple[str, ...]]:
    ours, theirs = (operations_of(which, sessions, counted) for which in (cell, against))
    one, other = ({o.name: o for o in side.operations} for side in (ours, theirs))
    if not one or not other:
        return (), ()
    effect = found.effect.estimate if found else None
    changes = []
    unknown = dict.fromkeys((*ours.absent, *theirs.absent))
    if any(name.startswith("user time") for name in unknown):
        unknown["user time"] = None  # of one party alone it is not the other side's
    for name in dict.fromkeys((*one, *other)):
        if name in unknown:
            continue
        a, b = one.get(name) or _absent(other[name]), other.get(name) or _absent(one[name])
        change = product_change(
            (a.unit_cost_ns, b.unit_cost_ns),
            (a.count_per_request, b.count_per_request),
            paired=a.beside_response and b.beside_response,
        )
        changes.append(
            OperationChange(
                name=name,
                change=change,
                share=(change.change.estimate or 0.0) / effect if effect else None,
                costs_ns=(_mean(a.unit_cost_ns), _mean(b.unit_cost_ns)),
                counts=(fmean(a.count_per_request), fmean(b.count_per_request)),
                overlaps=a.overlaps,
            )
        )
    changes.sort(key=lambda c: -abs(c.change.change.estimate or 0.0))
    return tuple(changes), tuple(unknown)


def _mean(costs: Iterable[float | None]) -> float:
    return fmean(cost for cost in costs if cost is not None)


def _absent(operation: Operation) -> Operation:
    """The same operation where it does not happen: at the same cost, never."""
    return replace(operation, count_per_request=(0.0,), overlaps=())


def _readings(
    cell: Cell,
    against: Cell,
    sessions: Sessions,
    counted: Sequence[CauseSession],
    slowings: Sequence[float | None],
) -> list[ReadingChange]:
    one, other = sessions.trials_of(cell.id), sessions.trials_of(against.id)
    costs = _prices(cell, counted)
    found = []
    for reading in READINGS:
        here = [_read(reading, one.get(block)) for block in sessions.blocks]
        there = [_read(reading, other.get(block)) for block in sessions.blocks]
        whole = [
            (a, b, s) for a, b, s in zip(here, there, slowings, strict=True)
            if a is not None and b is not None and s is not None
        ]  # fmt: skip
        if len(whole) < 2:
            continue
        worth = [_step(reading, a, b, costs) for a, b, _ in whole]
        priced = [w for w in worth if w is not None]
        found.append(
            ReadingChange(
                reading.name,
                reading.kind,
                _interval([a for a, _, _ in whole]),
                _interval([b for _, b, _ in whole]),
                _interval([a - b for a, b, _ in whole]),
                _share(priced, [s for _, _, s in whole]) if len(priced) == len(whole) else None,
                reading.anyones,
            )
        )
    return found


def _read(reading: Reading, trial: Trial | None) -> float | None:
    return reading.value(trial) if trial is not None and trial.status == "ok" else None


def _step(reading: Reading, here: float, there: float, costs: Mapping[str, float]) -> float | None:
    one, other = reading.slowing(here, costs), reading.slowing(there, costs)
    return None if one is None or other is None else one - other


def _prices(cell: Cell, counted: Sequence[CauseSession]) -> dict[str, float]:
    """Unit costs of the cell in question, mean over its counting sessions."""
    usable = [c.unit_costs_ns for c in counted if c.cell == cell.id and c.error is None]
    names = dict.fromkeys(name for costs in usable for name in costs)
    return {name: fmean(c[name] for c in usable if name in c) for name in names}


def _interval(values: Iterable[float | None]) -> Interval:
    return mean_interval(np.array([v for v in values if v is not None], dtype=np.float64))


def _share(part: Sequence[float], whole: Sequence[float]) -> Interval:
    return fieller(np.array(part), np.array(whole), 0.95)


def _worth(reading: ReadingChange) -> float:
    return -math.inf if reading.share is None else abs(reading.share.estimate or 0.0)


def _facts(cell: Cell, against: Cell, sessions: Sessions) -> tuple[tuple[str, Any, Any], ...]:
    levels = {
        name: (cell.levels.get(name), against.levels.get(name))
        for name in dict.fromkeys((*cell.levels, *against.levels))
        if cell.levels.get(name) != against.levels.get(name)
    }
    same_programs = levels.keys() <= rows.PLOT  # else nothing in their settings is the same

    def last(cell_id: str) -> dict[str, Any]:
        trials = [t for t in sessions.trials_of(cell_id).values() if t.status == "ok"]
        if not trials:
            return {}
        settings = trials[-1].settings.whole if same_programs else {}
        return {"environment": trials[-1].facts.whole, **settings}

    said = machine.unlike(last(cell.id), last(against.id))
    return (
        *((f"level: {name}", here, there) for name, (here, there) in levels.items()),
        *((name, here, there) for name, (here, there) in said.items()),
    )
