"""What differs between two cells, ordered by how much of the effect each difference can explain.

Three kinds of evidence, each with its own sum, since they tell of the same time:

- where every thread was (threads.py): on-CPU times by party, whose changes add up to the effect
  where the account closes;
- what the threads did (operations.py): the change of each operation's unit cost and of its count;
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

from tare import machine
from tare.analysis.operations import counted_in
from tare.analysis.questions import ratio_of
from tare.analysis.readings import READINGS
from tare.analysis.sessions import Sessions
from tare.analysis.threads import closes, lines_of
from tare.cell import Cell
from tare.errors import UsageError
from tare.record import Record
from tare.stats import Interval, Method, Ratio, mean_interval
from tare.stats.operations import Operation, product_change
from tare.stats.shares import Change, Share, Shares, changes_of, fieller
from tare.workloads import rows


@dataclass(frozen=True)
class OperationChange(Share):
    """One operation, and what its change adds to the response, ns for each request."""

    by_cost: Interval
    """What the change of its unit cost adds."""
    by_count: Interval
    """What the change of its count adds."""
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


@dataclass(frozen=True)
class Difference:
    """Everything that differs between two cells."""

    cell: Cell
    against: Cell
    statistic: str
    """Whose effect is explained: the mean where there are requests, since means add."""
    ratio: Ratio
    slowing: Interval
    """Logarithm of how many times slower: of the ratio; where higher is better, of its inverse."""
    threads: Shares[Change] | None
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
        shares = [operation.share.estimate for operation in self.operations]
        return None if not shares or None in shares else sum(s for s in shares if s is not None)

    @property
    def explained(self) -> bool:
        """Whether any one kind of evidence makes up at least half of the effect.

        Half is a convention: below it, what is missing is more than what was found.
        """
        threads = self.threads.together.share.estimate if self.threads else None
        best = [r.share.estimate for r in self.readings if r.share and not r.anyones]
        shares = (threads, self.operations_share, *best)
        return self.effect_found and any(s is not None and s >= _ENOUGH for s in shares)


_MATERIAL = 0.1
"""Share of an effect from which on what is as frequent, but dearer, is listed: prices are noisy."""
_ENOUGH = 0.5


def explain(record: Record, cell_id: str, against_id: str | None = None) -> Difference:
    """Explain the effect of one cell of a result over another.

    Args:
        record: a result, finished or not.
        cell_id: the layer in question.
        against_id: what it is compared with; what the plan compares it with where None.

    Raises:
        UsageError: there is no such cell, or nothing that it is compared with.
    """
    plan = record.plan
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
    sessions = Sessions(record, record.experiment.deadlines_ns)
    return difference_between(cells[cell_id], cells[str(against_id)], sessions)


def difference_between(cell: Cell, against: Cell, sessions: Sessions) -> Difference:
    """Explain the effect of one cell of a result over another."""
    plan = sessions.plan
    # Threads and operations are of a request: without requests there is nothing to share out among.
    countable = plan.workload.response_times
    lines = [lines_of(one, sessions) if countable else {} for one in (cell, against)]
    name = "mean" if all(lines) else plan.experiment.statistic
    higher = not all(lines) and plan.workload.statistics[name].better == "higher"
    here, there = sessions.columns(cell.id, against.id, statistic=name)
    threads = None
    if all(lines):
        ours, theirs = map(sessions.mean_responses, (cell.id, against.id))
        threads = _threads(lines[0], lines[1], ours, theirs)
    operations, uncounted = _operations(cell, against, sessions, threads)
    slowings = [
        None if a is None or b is None else math.log(a / b) * (-1 if higher else 1)
        for a, b in zip(here, there, strict=True)
    ]
    readings = _readings(cell, against, sessions, slowings)
    return Difference(
        cell=cell,
        against=against,
        statistic=name,
        ratio=ratio_of(sessions, cell.id, against.id, name),
        slowing=_interval(slowings),
        threads=threads,
        closes=closes(cell, sessions) and closes(against, sessions),
        operations=operations,
        uncounted=uncounted,
        readings=tuple(sorted((r for r in readings if _differs(r)), key=_worth, reverse=True)),
        alike=tuple(r.name for r in readings if not _differs(r)),
        facts=_facts(cell, against, sessions),
        countable=countable,
    )


def _threads(
    mine: Mapping[str, list[float | None]],
    other: Mapping[str, list[float | None]],
    here: list[float | None],
    there: list[float | None],
) -> Shares[Change] | None:
    # Who is on one side only did nothing on the other.
    nothing = [0.0] * len(here)
    names = dict.fromkeys((*mine, *other))
    parts = {name: (mine.get(name, nothing), other.get(name, nothing)) for name in names}
    found = changes_of(parts, (here, there))
    return found if found.n_used > 1 else None


def _operations(
    cell: Cell,
    against: Cell,
    sessions: Sessions,
    threads: Shares[Change] | None,
) -> tuple[tuple[OperationChange, ...], tuple[str, ...]]:
    ours, theirs = (counted_in(which, sessions) for which in (cell, against))
    one, other = ({o.name: o for o in side.operations} for side in (ours, theirs))
    if not one or not other:
        return (), ()
    effect = threads.whole if threads else None
    unknown = dict.fromkeys((*ours.absent, *theirs.absent))
    if any(name.startswith("user time") for name in unknown):
        unknown["user time"] = None  # of one party alone it is not the other side's
    changes = [
        _changed(
            one.get(name) or _absent(other[name]),
            other.get(name) or _absent(one[name]),
            effect,
            one_sided=(name in one) != (name in other),
        )
        for name in dict.fromkeys((*one, *other))
        if name not in unknown
    ]
    changes.sort(key=lambda change: -abs(change.amount.estimate or 0.0))
    return tuple(changes), tuple(unknown)


def _changed(
    here: Operation, there: Operation, effect: Interval | None, *, one_sided: bool
) -> OperationChange:
    found = product_change(
        (here.unit_cost_ns, there.unit_cost_ns),
        (here.count_per_request, there.count_per_request),
        # What one side never does has the other's very cost.
        paired=one_sided or (here.beside_response and there.beside_response),
    )
    share = None
    if effect is not None and effect.estimate:
        share = (found.change.estimate or 0.0) / effect.estimate
    return OperationChange(
        name=here.name,
        amount=found.change,
        share=Interval(share, None, None, found.change.confidence, Method.T, found.change.n),
        by_cost=found.by_cost,
        by_count=found.by_count,
        costs_ns=(_mean(here.unit_cost_ns), _mean(there.unit_cost_ns)),
        counts=(fmean(here.count_per_request), fmean(there.count_per_request)),
        overlaps=here.overlaps,
    )


def _mean(costs: Iterable[float | None]) -> float:
    return fmean(cost for cost in costs if cost is not None)


def _absent(operation: Operation) -> Operation:
    """The same operation where it does not happen: at the same cost, never."""
    return replace(operation, count_per_request=(0.0,), overlaps=())


def _readings(
    cell: Cell,
    against: Cell,
    sessions: Sessions,
    slowings: Sequence[float | None],
) -> list[ReadingChange]:
    prices, others = _prices(cell, sessions), _prices(against, sessions)
    found = []
    for reading in READINGS:
        here, there = (sessions.means(c.id, reading.value) for c in (cell, against))
        whole = [
            (a, b, slowing)
            for a, b, slowing in zip(here, there, slowings, strict=True)
            if a is not None and b is not None and slowing is not None
        ]
        if len(whole) < 2:
            continue
        worth = [
            one - other
            for a, b, _ in whole
            if (one := reading.slowing(a, prices)) is not None
            and (other := reading.slowing(b, others)) is not None
        ]
        found.append(
            ReadingChange(
                reading.name,
                reading.kind,
                _interval(a for a, _, _ in whole),
                _interval(b for _, b, _ in whole),
                _interval(a - b for a, b, _ in whole),
                _share(worth, [s for _, _, s in whole]) if len(worth) == len(whole) else None,
                reading.anyones,
            )
        )
    return found


def _prices(cell: Cell, sessions: Sessions) -> dict[str, float]:
    """Unit costs in a cell, means over its counting sessions."""
    costs = [session.unit_costs_ns for session in sessions.counted(cell.id)]
    names = dict.fromkeys(name for one in costs for name in one)
    return {name: fmean(one[name] for one in costs if name in one) for name in names}


def _interval(values: Iterable[float | None]) -> Interval:
    return mean_interval(np.array([v for v in values if v is not None], dtype=np.float64))


def _share(part: Sequence[float], whole: Sequence[float]) -> Interval:
    return fieller(np.array(part), np.array(whole))


def _differs(reading: ReadingChange) -> bool:
    """In how much there was of it, or, where it was as much but dearer, in what that explains."""
    share = reading.share
    dearer = share is not None and (
        share.within(_MATERIAL, math.inf) or share.within(-math.inf, -_MATERIAL)
    )
    return dearer or reading.change.excludes(0.0)


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
        trials = sessions.measured(cell_id)
        if not trials:
            return {}
        settings = trials[-1].settings.whole if same_programs else {}
        return {"environment": trials[-1].facts.whole, **settings}

    said = machine.unlike(last(cell.id), last(against.id))
    return (
        *((f"level: {name}", here, there) for name, (here, there) in levels.items()),
        *((name, here, there) for name, (here, there) in said.items()),
    )
