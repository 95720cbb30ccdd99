"""One result's share of the history: a row for the run, and one for each cell and statistic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tare import machine
from tare.analysis.cells import RESPONSE_TIMES
from tare.analysis.questions import above_below
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import TareError, UsageError
from tare.levels import Levels
from tare.record import Record, Trial
from tare.stats import across
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
_OF_RESPONSES: Mapping[str, Statistic] = {
    **dict.fromkeys(RESPONSE_TIMES, Statistic("")),
    "throughput": Statistic("", "1/s", "higher"),
}
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
    plan, trials, fingerprint = record.plan, record.trials(), record.fingerprint
    if not trials:
        raise UsageError(f"{record.folder} holds no trial yet")
    workload = plan.workload
    readable, damage = _readable(record, trials)
    identity, began = _first(record)
    started = [_when(trial.started) for trial in trials]
    told = fingerprint.whole.get("tare") or {}
    where = _machine(fingerprint.whole)
    run = {
        "notes": [*damage[:1], *_clock_notes(began, started)],
        "id": identity,
        "title": plan.experiment.title,
        "workload": workload.name,
        "statistic": plan.experiment.statistic,
        "machine": _hash(where),
        "machine_words": _words(where, fingerprint.system),
        "version": told.get("version"),
        "commit": told.get("commit"),
        "started": began,
        "ended": max(started),
        "trials": len(trials),
        "failed": sum(trial.status == "failed" for trial in trials),
        "unreadable": len(damage),
        "settings": list(plan.session.items()),
    }
    own = {field: getattr(plan.experiment, field) for field in workload.fields}
    alike = [run["title"], workload.name, own, run["machine"], _chosen(plan.session)]
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
    workload = record.plan.workload
    statistics = _OF_RESPONSES if workload.response_times else workload.statistics
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
                "series": _hash([*alike, cell.replica, accelerator, _chosen(cell.levels)]),
            }
            for name, statistic in statistics.items():
                yield from (
                    named | {"statistic": name, "unit": statistic.unit} | level
                    for level in _level(sessions, cell, name, statistic)
                )


def _level(sessions: Sessions, cell: Cell, name: str, statistic: Statistic) -> Iterator[_Row]:
    """A cell's value over the sessions of one run; none where they cannot resolve it."""
    responses = [sessions.session(trial) for trial in sessions.measured(cell.id)]
    if any(session is not None and not session.resolves(name) for session in responses):
        return
    found = across(sessions.column(cell.id, name))
    if found.value is not None:
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


def _first(record: Record) -> tuple[str, datetime]:
    """A run's identity, the same for a copy and while it goes on, and when it began.

    Of its plan and the first line of its trials, which stays though that trial is tried again.
    """
    with (record.folder / "trials.ndjson").open("rb") as file:
        line = file.readline()
    plan = (record.folder / "plan.json").read_bytes()
    identity = hashlib.sha256(plan + b"\n" + line).hexdigest()[:16]
    return identity, _when(json.loads(line)["started"])


def _hash(alike: object) -> str:
    text = json.dumps(alike, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _when(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _clock_notes(began: datetime, started: list[datetime]) -> Iterator[str]:
    if min(started) < began:
        yield "its clock went backwards while it ran: its place in time is uncertain"
    if max(started) > datetime.now(UTC).replace(tzinfo=None) + _AHEAD:
        yield f"it is of the future ({max(started):%Y-%m-%d}): its clock was wrong, or this one is"


def _machine(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Which machine a fingerprint is of; memory to the GiB: a kernel keeps some for itself."""
    known = {key: value for key, (value, _) in machine.unlike(whole, {}).items()}
    found = {key: known.get(key) for key in machine.IDENTITY}
    if isinstance(usable := found["cpu.usable"], list):
        found["cpu.usable"] = len(usable)  # earlier versions listed them
    memory = found.pop("memory_bytes")
    return {**found, "memory_gib": None if memory is None else round(memory / (1 << 30))}


def _words(identity: Mapping[str, Any], system: str | None) -> str:
    model, usable = identity["cpu.model"], identity["cpu.usable"]
    memory = identity["memory_gib"]
    known = [
        model,
        f"{usable} processors" if usable else None,
        f"{memory} GiB" if memory else None,
        system,
    ]
    return ", ".join(part for part in known if part) or "machine not recorded"
