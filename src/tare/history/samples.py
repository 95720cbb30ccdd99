"""The raw samples behind a cell's levels, read from the results by DuckDB, only when asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tare.errors import TareError, UsageError
from tare.history.index import connected, literal
from tare.history.query import CellHistory

if TYPE_CHECKING:
    import duckdb

_SHARES = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999)
_STEPS = 400.0
"""Bins in which a time grows by a factor of e: quantiles are exact to 0.13 %, and no number of
samples needs more memory."""


@dataclass(frozen=True)
class Distribution:
    """The response times of one level, over all of its runs."""

    since: datetime
    sessions: int
    samples: int
    """Requests, lost ones among them."""
    quantiles_ns: Mapping[float, float]
    """Share of the requests -> response time; absent where the rank is a lost one's."""
    left_out: tuple[str, ...]
    """Sessions that could not be read, with their reasons."""


def distributions(
    folder: Path, series: CellHistory, tell: Callable[[int, int], None]
) -> tuple[Distribution, ...]:
    """Read every sample of a series, level by level.

    Args:
        folder: of the results.
        series: of a cell.
        tell: is told before each run how many of how many were read.

    Raises:
        UsageError: its trials hold values, and no samples.
    """
    found = []
    with connected() as database:
        for first, last, _ in series.levels_between:
            bins, sessions, left_out = Counter[int | None](), 0, list[str]()
            for number in range(first, last + 1):
                tell(number, len(series.points))
                paths, why = _paths(folder / series.points[number].folder, series)
                damaged = _count(database, paths, bins)
                sessions += len(paths) - len(damaged)
                left_out += why + damaged
            if bins or left_out:
                since, total = series.points[first].started, bins.total()
                found.append(
                    Distribution(since, sessions, total, _quantiles(bins), tuple(left_out))
                )
    if not found:
        raise UsageError(
            f"{series.cell} has no raw samples: trials of {series.workload} hold values",
            "leave out --distribution",
        )
    return tuple(found)


def _paths(folder: Path, series: CellHistory) -> tuple[list[str], list[str]]:
    """The samples of a cell in a run, or why there are none."""
    from tare.record import Record  # noqa: PLC0415 - heavy, and only for this

    try:
        record = Record(folder)
        trials = [
            trial
            for trial in record.trials()
            if (trial.cell, trial.status) == (series.cell, "ok")
            and not trial.values
            and trial.facts.accelerator == series.accelerator
        ]
    except TareError as error:
        return [], [error.what]
    return [str(path) for t in trials if (path := record.samples_path(t)) is not None], []


def _count(
    database: duckdb.DuckDBPyConnection, paths: list[str], bins: Counter[int | None]
) -> list[str]:
    """Add up what files hold; those that cannot be read are told, and the others read alone."""
    import duckdb  # noqa: PLC0415

    if not paths:
        return []
    try:
        rows = database.execute(
            "SELECT floor(ln(received_ns - intended_ns) * $steps)::BIGINT, count(*)"
            " FROM read_parquet($paths, hive_partitioning = false)"
            " WHERE received_ns > intended_ns OR received_ns IS NULL GROUP BY 1",
            {"steps": _STEPS, "paths": [literal(path) for path in paths]},
        ).fetchall()
    except duckdb.Error as error:
        if len(paths) == 1:
            return [f"{paths[0]}: {str(error).splitlines()[0]}"]
        return [why for path in paths for why in _count(database, [path], bins)]
    bins.update(dict(rows))
    return []


def _quantiles(bins: Counter[int | None]) -> dict[float, float]:
    total, seen, found = bins.total(), 0, {}
    waiting = [share for share in _SHARES if share * total >= 1 and (1 - share) * total >= 1]
    for place in sorted(place for place in bins if place is not None):  # None: lost
        seen += bins[place]
        while waiting and seen >= waiting[0] * total:
            found[waiting.pop(0)] = math.exp((place + 0.5) / _STEPS)
    return found
