"""One result's share of the history: a row for the run, and one for each cell and statistic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tare.analysis.cells import level, statistics_of
from tare.analysis.questions import above_below
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import TareError, UsageError
from tare.identity import identify, moment, short_hash
from tare.levels import Levels
from tare.progress import unfinished
from tare.record import Record, Trial
from tare.workloads import Statistic

_TIME = pa.timestamp("us")  # of UTC
RUNS = pa.schema(
    {
        "entry": pa.int64(),
        "folder": pa.string(),
        "mark": pa.string(),
        "part": pa.string(),
        "rows": pa.int64(),
        "skipped": pa.string(),
        "notes": pa.list_(pa.string()),
        "id": pa.string(),
        "title": pa.string(),
        "workload": pa.string(),
        "statistic": pa.string(),
        "machine": pa.string(),
        "machine_words": pa.string(),
        "version": pa.string(),
        "commit": pa.string(),
        "started": _TIME,
        "ended": _TIME,
        "trials": pa.int64(),
        "failed": pa.int64(),
        "unreadable": pa.int64(),
        "settings": pa.map_(pa.string(), pa.string()),
    }
)
VALUES = pa.schema(
    {
        "entry": pa.int64(),
        "cell": pa.string(),
        "replica": pa.int64(),
        "accelerator": pa.string(),
        "levels": pa.map_(pa.string(), pa.string()),
        "series": pa.string(),
        "statistic": pa.string(),
        "unit": pa.string(),
        "above": pa.string(),
        "below": pa.string(),
        "value": pa.float64(),
        "low": pa.float64(),
        "high": pa.float64(),
        "sessions": pa.list_(pa.float64()),
    }
)
"""Both schemata are told in docs/formats/history.md."""

_Row = dict[str, Any]
_AHEAD = timedelta(days=1)
"""What a clock may be ahead of this machine's before it is told."""


def summarise(folder: Path) -> tuple[_Row, list[_Row]]:
    """Read one result.

    Args:
        folder: of the result.

    Returns:
        Its row of `RUNS` without entry, folder, mark, part and rows; its rows of `VALUES` without
        entry. A result that cannot be read has its reason in `skipped`, and no values.
    """
    try:
        return _read(Record(folder))
    except TareError as error:
        return {"skipped": error.what.splitlines()[0]}, []
    except (OSError, ValueError) as error:
        return {"skipped": f"{folder} cannot be read: {error}"}, []


def _read(record: Record) -> tuple[_Row, list[_Row]]:
    plan, trials = record.plan, record.trials()
    if not trials:
        raise UsageError(f"{record.folder} holds no trial yet")
    workload = plan.workload
    readable, damage = _readable(record, trials)
    who = identify(record)
    started = [moment(trial.started) for trial in trials]
    run = {
        "notes": [
            *damage[:1],
            *filter(None, [unfinished(record, trials)]),
            *_clock_notes(who.began, started),
        ],
        "id": who.id,
        "title": who.title,
        "workload": workload.name,
        "statistic": plan.experiment.statistic,
        "machine": who.machine,
        "machine_words": who.machine_words,
        "version": who.version,
        "commit": who.commit,
        "started": who.began,
        "ended": max(started),
        "trials": len(trials),
        "failed": sum(trial.status == "failed" for trial in trials),
        "unreadable": len(damage),
        "settings": list(plan.session.items()),
    }
    own, manner = plan.of_workload, plan.experiment.manner
    alike = [run["title"], workload.name, own, run["machine"], _chosen(plan.session), manner]
    found = list(_values(record, readable, alike))
    return run, found


def _readable(record: Record, trials: Iterable[Trial]) -> tuple[list[Trial], list[str]]:
    """The trials whose samples can be read, and what is wrong with the others."""
    sessions, readable, damage = Sessions(record, trials=()), [], []
    for trial in trials:
        try:
            sessions.session(trial)
        except UsageError as error:
            damage.append(error.what)
        else:
            readable.append(trial)
    return readable, damage


def _values(record: Record, trials: list[Trial], alike: list[Any]) -> Iterator[_Row]:
    # What a guest ran under is never mixed: results of earlier versions may hold both.
    for accelerator in dict.fromkeys(t.facts.accelerator for t in trials if t.status == "ok"):
        under = [t for t in trials if t.facts.accelerator == accelerator]
        sessions = Sessions(record, trials=under)
        for cell in record.plan.cells:
            named = {
                "cell": cell.id,
                "replica": cell.replica,
                "accelerator": accelerator,
                "levels": list(cell.levels.items()),
                "series": short_hash([*alike, cell.replica, accelerator, _chosen(cell.levels)]),
            }
            for name, statistic in statistics_of(record.plan.workload).items():
                yield from (
                    named | {"statistic": name, "unit": statistic.unit} | found
                    for found in _level(sessions, cell, name, statistic)
                )


def _level(sessions: Sessions, cell: Cell, name: str, statistic: Statistic) -> Iterator[_Row]:
    """A cell's value over the sessions of one run; none where they cannot resolve it."""
    if (found := level(sessions, cell.id, name)) is not None:
        above, below = above_below(statistic)
        yield {
            "above": str(above),
            "below": str(below),
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "sessions": [v for block in sessions.by_block(cell.id, name) for v in block],
        }


def _chosen(levels: Levels) -> dict[str, str]:
    """What is no default: a factor that a later version adds tells nothing apart."""
    rows = levels.rows
    return {
        name: level
        for name, level in levels.items()
        if name not in rows or level != rows[name].level(rows[name].default)
    }


def _clock_notes(began: datetime, started: list[datetime]) -> Iterator[str]:
    if min(started) < began:
        yield "its clock went backwards while it ran: its place in time is uncertain"
    if max(started) > datetime.now(UTC).replace(tzinfo=None) + _AHEAD:
        yield f"it is of the future ({max(started):%Y-%m-%d}): its clock was wrong, or this one is"
