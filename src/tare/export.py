"""Every trial of a result with its session's statistics, as one table for other tools."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tare.accounting import Account
from tare.analysis.cells import PERCENTILES
from tare.analysis.sessions import Session, Sessions
from tare.cell import Cell
from tare.errors import TareError, UsageError
from tare.record import Record, Trial
from tare.workloads import Unit

_TIMES = ("min", "mean", *PERCENTILES, "max", "jitter")
_SUFFIXES: Mapping[Unit, str] = {
    "ns": "_ns",
    "B": "_bytes",
    "B/s": "_bytes_per_s",
    "1/s": "_per_s",
    "1": "",
}
_COUNTERS = ("sent", "received", "lost", "duplicated", "reordered", "corrupted")


def export(record: Record, format_: str, out: Path | None) -> None:
    """Write a result's trials as one table: a row a trial, failed ones included.

    Columns: `rows` says them. What a failed trial does not have, and a percentile that is not
    resolved, is null, never zero.

    Args:
        record: the result.
        format_: csv, parquet or json.
        out: the file to write, whole or not at all; standard output where None.

    Raises:
        UsageError: an unknown format, or Parquet for a terminal.
        TareError: it cannot be written.
    """
    if format_ not in FORMATS:
        raise UsageError(f"no format {format_!r}", f"choose {', '.join(FORMATS)}")
    if out is None and format_ == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet is not text, and would garble the terminal", "add --out FILE")
    table = FORMATS[format_](rows(record))
    try:
        if out is not None:
            part = out.with_name(out.name + ".part")
            part.write_bytes(table)
            part.replace(out)
        else:
            sys.stdout.buffer.write(table)
            sys.stdout.buffer.flush()
    except OSError as error:
        raise TareError(
            f"cannot write the export: {error}", "make room, or name another file"
        ) from error


def rows(record: Record) -> list[dict[str, Any]]:
    """One row a trial.

    Keys: block, repeat, position, cell, replica, session, started, seconds, status, error; one a
    factor, such as environment; counters; statistics of the session in ns (min_ns, p50_ns, ...),
    resolved or None; throughput_per_s; drift_p and drift_flagged; CPU time of both ends in ns. Of a
    workload without response times, its statistics instead, each with its unit behind its name.
    """
    sessions = Sessions(record)
    plan = record.plan
    cells = {cell.id: cell for cell in plan.cells}
    factors = list(dict.fromkeys(name for cell in plan.cells for name in cell.levels))
    workload = plan.workload

    def measured(trial: Trial) -> dict[str, Any]:
        if workload.response_times:
            return _of_responses(trial, sessions.session(trial))
        return {
            f"{name}{_SUFFIXES[statistic.unit]}": trial.values.get(name)
            for name, statistic in workload.statistics.items()
        }

    return [
        {
            **_head(trial, cells[trial.cell], factors),
            **measured(trial),
            "client_cpu_ns": _cpu(trial.client),
            "server_cpu_ns": _cpu(trial.server),
        }
        for trial in sessions.trials
    ]


def _head(trial: Trial, cell: Cell, factors: list[str]) -> dict[str, Any]:
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
        **{name: cell.levels.get(name) for name in factors},
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
    **dict.fromkeys(("block", "repeat", "position", "replica", *_COUNTERS), pa.int64()),
    **dict.fromkeys(("duration_ns", "client_cpu_ns", "server_cpu_ns"), pa.int64()),
    **dict.fromkeys(("seconds", "effective_samples", "throughput_per_s", "drift_p"), pa.float64()),
    **dict.fromkeys((f"{name}_ns" for name in _TIMES), pa.float64()),
    "drift_flagged": pa.bool_(),
}
"""Columns that are not text. Said outright, so that a column without values keeps its type."""


def _names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(found[0]) if found else ["block", "cell", "status"]


def _csv(found: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _names(found), lineterminator="\n")
    writer.writeheader()
    words = {True: "true", False: "false"}
    for row in found:
        # A one is no "true", though it equals it.
        writer.writerow({k: words[v] if isinstance(v, bool) else v for k, v in row.items()})
    return text.getvalue().encode()


def _json(found: Sequence[Mapping[str, Any]]) -> bytes:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in found)
    return f"[\n{lines}\n]\n".encode()


def _parquet(found: Sequence[Mapping[str, Any]]) -> bytes:
    columns = {name: [row[name] for row in found] for name in _names(found)}
    table = pa.table({name: pa.array(c, _type(name, c)) for name, c in columns.items()})
    written = pa.BufferOutputStream()
    pq.write_table(table, written, compression="zstd")
    return bytes(written.getvalue())


def _type(name: str, column: Sequence[object]) -> pa.DataType:
    numbers = any(isinstance(value, float) for value in column)
    return _TYPES.get(name, pa.float64() if numbers else pa.string())


FORMATS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], bytes]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
"""Name -> what writes rows in it."""
