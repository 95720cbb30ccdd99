"""A result for other tools: every trial in one table, or cells in a file of another tool's."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tare import foreign, lines, units
from tare.accounting import Account
from tare.analysis.cells import PERCENTILES
from tare.analysis.sessions import Session, Sessions
from tare.cell import Cell
from tare.errors import TareError, UsageError
from tare.identity import identify
from tare.levels import Factor
from tare.outcome import outcome
from tare.plan import Plan
from tare.record import Record, Trial
from tare.workloads import Statistic

_FOUND = "accelerator_found"
_TIMES = ("min", "mean", *PERCENTILES, "max", "jitter")
_COUNTERS = ("sent", "received", "lost", "duplicated", "reordered", "corrupted")


def export(record: Record, format_: str, out: Path | None, statistic: str | None = None) -> None:
    """Write a result: its trials as one table, or its cells as another tool would.

    Of a table `rows` says the columns: a row a trial, failed ones included. What a failed trial
    does not have, and a percentile that is not resolved, is null, never zero.

    Args:
        record: the result.
        format_: one of `formats`.
        out: the file to write, as `lines.put`; standard output where None.
        statistic: the one to tell, of a format that is no table. Where None it is all, or the
            declared one, by the format.

    Raises:
        UsageError: an unknown format, Parquet for a terminal, or the format cannot tell this.
        TareError: it cannot be written.
    """
    refuse_unknown(format_)
    if out is None and format_ == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet is not text, and would garble the terminal", "add --out FILE")
    text = _written(record, format_, statistic)
    try:
        if out is not None:
            lines.put(out, text)
        else:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
    except OSError as error:
        where = out or "standard output"
        raise TareError(
            f"cannot write {where}: {error.strerror}", "make room, or name another file"
        ) from error


def formats() -> tuple[str, ...]:
    """Every format, tables first."""
    return (*TABLES, *foreign.formats())


def refuse_unknown(format_: str) -> None:
    """Refuse what is no format, before anything else is done.

    Raises:
        UsageError: it is none.
    """
    if format_ not in formats():
        raise UsageError(f"no format {format_!r}", f"choose {', '.join(formats())}")


def refuse_untold(format_: str, plan: Plan) -> None:
    """Refuse a format that cannot hold what a plan declares, before anything is run.

    Raises:
        UsageError: it cannot.
    """
    one = foreign.formats().get(format_)
    if one is not None and one.single:
        name = plan.experiment.statistic
        one.refuse(name, plan.workload.statistics[name])


def _written(record: Record, format_: str, statistic: str | None) -> bytes:
    if format_ not in TABLES:
        one = foreign.formats()[format_]
        declared = record.experiment.statistic if one.single else None
        return one.write(outcome(record, statistic or declared)).encode()
    if statistic is not None:
        raise UsageError(
            f"a table has every statistic in a column of its own, also as {format_}",
            "leave --statistic out",
        )
    found, texts = _table(record)
    return _parquet(found, texts) if format_ == "parquet" else TABLES[format_](found)


def rows(record: Record) -> list[dict[str, Any]]:
    """One row a trial.

    Keys: the run's id, title, machine, commit and start, as run_...; block, repeat, position, cell,
    replica, session, started, seconds, status, error; of each factor, such as payload, the level's
    text and, where it is a number, that number in a column named with its unit (payload_bytes);
    accelerator_found; counters; statistics of the session in ns (min_ns, p50_ns, ...), resolved or
    None; throughput_per_s; drift_p and drift_flagged; CPU time of both ends in ns. Of a workload
    without response times, its statistics instead, each with its unit behind its name.
    """
    return _table(record)[0]


def _table(record: Record) -> tuple[list[dict[str, Any]], set[str]]:
    """The rows, and which columns hold the texts of levels: a run may have no trial with any."""
    sessions = Sessions(record)
    if not sessions.trials:
        return [], set()
    workload = record.plan.workload
    run = _run(record)
    heads = [run | _head(trial, record.plan.cell(trial.cell)) for trial in sessions.trials]
    ends = [
        {"client_cpu_ns": _cpu(trial.client), "server_cpu_ns": _cpu(trial.server)}
        for trial in sessions.trials
    ]
    columns = _columns(workload.statistics, {**heads[0], **ends[0], _FOUND: None})

    def measured(trial: Trial) -> dict[str, Any]:
        if workload.response_times:
            return _of_responses(trial, sessions.session(trial))
        return {column: trial.values.get(name) for name, column in columns.items()}

    tails = [
        {_FOUND: trial.facts.accelerator, **measured(trial), **end}
        for trial, end in zip(sessions.trials, ends, strict=True)
    ]
    of_cells = levels(record.plan, {**heads[0], **tails[0]})
    every = zip(heads, sessions.trials, tails, strict=True)
    found = [{**head, **of_cells[trial.cell], **tail} for head, trial, tail in every]
    texts = {c for of_cell in of_cells.values() for c, v in of_cell.items() if isinstance(v, str)}
    return found, texts


def _columns(statistics: Mapping[str, Statistic], taken: Iterable[str]) -> dict[str, str]:
    """Statistic -> its column, with its unit behind it.

    One whose name another column has, such as a service's processor time, is NAME_statistic.
    """
    others = set(taken)
    found: dict[str, str] = {}
    for name, statistic in statistics.items():
        found[name] = _free(name, "_statistic", units.COLUMNS[statistic.unit], others)
        others.add(found[name])
    return found


def _run(record: Record) -> dict[str, Any]:
    """What tells runs apart, and joins them, once their tables are put together."""
    found = identify(record)
    return {
        "run": found.id,
        "run_title": found.title,
        "run_machine": found.machine,
        "run_machine_words": found.machine_words,
        "run_commit": found.commit,
        "run_started": f"{found.began.isoformat(timespec='milliseconds')}+00:00",
    }


def levels(plan: Plan, taken: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Cell -> the text of each factor's level, None where it does not apply; beside it its number.

    A factor whose name another column has, such as a disk's block, is NAME_level; where that is
    taken too, NAME_level_level.
    """
    found: dict[str, dict[str, Any]] = {cell.id: {} for cell in plan.cells}
    columns = set(taken)
    for name in dict.fromkeys(name for cell in plan.cells for name in cell.levels):
        texts = {cell.id: cell.levels.get(name) for cell in plan.cells}
        row = plan.workload.levels.rows.get(name)
        suffix, number = _number(row, [text for text in texts.values() if text is not None])
        column, of_numbers = (_free(name, "_level", end, columns) for end in ("", suffix))
        columns |= {column, of_numbers}
        for cell, text in texts.items():
            found[cell][column] = text
            if number is not None:
                found[cell][of_numbers] = None if text is None else number(text)
    return found


def _free(name: str, kind: str, end: str, taken: Collection[str]) -> str:
    """NAME and the end, with the kind between as often as it takes to be no other's name."""
    while f"{name}{end}" in taken:
        name += kind
    return f"{name}{end}"


def _number(
    row: Factor[Any] | None, texts: Sequence[str]
) -> tuple[str, Callable[[str], float | None] | None]:
    """What stands behind the name of a factor's column of numbers, and what reads them, if any.

    Of a user's own parameter it is a plain number or a size, where all its levels are. Times are
    not guessed: `10m` is minutes to one program, and megabytes to another.
    """
    if row is not None and row.unit is not None:
        return units.COLUMNS[row.unit] or "_value", row.parse
    readers: tuple[tuple[str, Callable[[str], float]], ...] = (
        ("_value", float),
        ("_bytes", units.size),
    )
    for suffix, read in readers:
        try:
            if all(math.isfinite(read(text)) for text in texts):
                return suffix, read
        except (ValueError, UsageError):
            continue
    return "", None


def _head(trial: Trial, cell: Cell) -> dict[str, Any]:
    return {
        "block": trial.block,
        "repeat": trial.repeat,
        "position": trial.position,
        "cell": trial.cell,
        "replica": cell.replica,
        "session": trial.session,
        "started": trial.started,
        "seconds": trial.seconds,
        "status": trial.status,
        "error": trial.error,
    }


def _of_responses(trial: Trial, session: Session | None) -> dict[str, Any]:
    drift = session.summary.drift if session else None
    return {
        **{name: trial.counters.get(name) for name in _COUNTERS},
        "duration_ns": trial.duration_ns,
        "effective_samples": session.summary.effective if session else None,
        **{f"{name}_ns": _resolved(session, name) for name in _TIMES},
        "throughput_per_s": session.value("throughput") if session else None,
        "drift_p": drift.p if drift else None,
        "drift_flagged": drift.flagged if drift else None,
    }


def _resolved(session: Session | None, statistic: str) -> float | None:
    return session.value(statistic) if session and session.resolves(statistic) else None


def _cpu(account: Account | None) -> int | None:
    """On-CPU time of one end's threads on the host; a guest's own view is not added to it."""
    if account is None or not account.threads:
        return None
    return sum(thread.cpu_ns for thread in account.threads if thread.role != "guest")


_TYPES: Mapping[str, pa.DataType] = {
    **dict.fromkeys(("cell", "status", "error", "run_commit", _FOUND), pa.string()),
    **dict.fromkeys(("block", "repeat", "position", "replica", *_COUNTERS), pa.int64()),
    **dict.fromkeys(("duration_ns", "client_cpu_ns", "server_cpu_ns"), pa.int64()),
    **dict.fromkeys(("seconds", "effective_samples", "throughput_per_s", "drift_p"), pa.float64()),
    **dict.fromkeys((f"{name}_ns" for name in _TIMES), pa.float64()),
    "drift_flagged": pa.bool_(),
}
"""Columns that are no plain numbers, or may lack all values: a column keeps its type without."""


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(found[0]) if found else ["block", "cell", "status"]


def _csv(found: Sequence[Mapping[str, Any]]) -> bytes:
    written: list[str] = []
    writer = csv.DictWriter(SimpleNamespace(write=written.append), _names(found))
    writer.writeheader()
    words = {True: "true", False: "false"}
    for row in found:
        # A one is no "true", though it equals it.
        writer.writerow({k: words[v] if isinstance(v, bool) else v for k, v in row.items()})
    # Python 3.11 quotes a lone carriage return only where it is a part of what ends a line.
    return "".join(line.removesuffix("\r\n") + "\n" for line in written).encode()


def _json(found: Sequence[Mapping[str, Any]]) -> bytes:
    written = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found)
    return f"[\n{written}\n]\n".encode()


def _parquet(found: Sequence[Mapping[str, Any]], texts: Collection[str] = ()) -> bytes:
    columns = {name: [row[name] for row in found] for name in _names(found)}
    known = {**_TYPES, **dict.fromkeys(texts, pa.string())}
    table = pa.table({n: pa.array(c, _type(known.get(n), c)) for n, c in columns.items()})
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd")
    return bytes(written.getvalue())


def _type(known: pa.DataType | None, column: Sequence[object]) -> pa.DataType:
    """The type that is known of a name, unless a user's statistic or parameter has it."""
    kinds = {type(value) for value in column if value is not None}
    if known is not None and kinds <= _FIT[known]:
        return known
    return pa.string() if str in kinds else pa.float64()


_FIT: Mapping[pa.DataType, set[type]] = {
    pa.string(): {str},
    pa.int64(): {int},
    pa.float64(): {int, float},
    pa.bool_(): {bool},
}


TABLES: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], bytes]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
"""Name -> what writes rows in it."""
