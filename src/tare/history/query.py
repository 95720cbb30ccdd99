"""What the history of a folder tells: all of it at a glance, and one cell over time.

Values are only put into one series where what was measured, how, and on which machine agree
(`summary.py`); what differs besides, such as a kernel or a commit, is what a history is about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tare.command import shell_line
from tare.errors import UsageError
from tare.history.index import EMPTY, Index, connected, literal
from tare.stats.arrays import FloatArray
from tare.stats.change_points import change_points
from tare.stats.compare import Ratio
from tare.stats.interval import Interval, Method, mean_interval
from tare.stats.unpaired import unpaired_ratio

if TYPE_CHECKING:
    import duckdb

    from tare.workloads import Unit

ALPHA = 0.01
"""Of series without a change, at most this share shows one; in an overview, of its rows."""


FEWEST_RUNS = 12
"""Of fewer, no order is rare enough to be a change."""


@dataclass(frozen=True)
class Filter:
    """Which runs are looked at."""

    since: datetime | None = None
    """UTC, without a zone."""
    title: str | None = None
    """A part of it, as are all others."""
    machine: str | None = None
    commit: str | None = None
    """Its beginning."""


@dataclass(frozen=True)
class Skipped:
    """A result, or what looks like one, that is not in the history; or is, with a doubt."""

    folder: str
    why: str


@dataclass(frozen=True)
class Point:
    """A cell's value in one run."""

    run: str
    folder: str
    started: datetime
    """UTC."""
    version: str | None
    commit: str | None
    value: float
    """Geometric mean over the run's blocks, in the series' unit."""
    low: float | None
    """Of its 95 % interval over blocks, as `high`; None where there are too few."""
    high: float | None
    sessions: int


@dataclass(frozen=True)
class Step:
    """A change of level between two runs."""

    at: int
    """Index of the first run of the new level."""
    p: float
    """Share of random orders of the runs that split as well."""
    ratio: Ratio
    """The new level (`a`) over the old one (`b`), a value a run. A description: the change was
    found in the same runs."""
    word: str
    """What the ratio means: slower, faster, more, less."""
    differs: Mapping[str, tuple[Any, Any]]
    """What the fingerprints of the last run before and of the first run after differ in."""


@dataclass(frozen=True)
class CellHistory:
    """One cell over time, on one machine."""

    title: str
    workload: str
    machine: str
    machine_words: str
    accelerator: str | None
    cell: str
    levels: Mapping[str, str]
    settings: Mapping[str, str]
    statistic: str
    unit: Unit
    points: tuple[Point, ...]
    """In the order of time."""
    steps: tuple[Step, ...]

    @property
    def values(self) -> FloatArray:
        """A value a run, in the order of time."""
        return np.array([point.value for point in self.points])

    @property
    def levels_between(self) -> tuple[tuple[int, int, Interval], ...]:
        """First and last run of each level, and its mean over runs."""
        starts = [0, *(step.at for step in self.steps)]
        ends = [*starts[1:], len(self.points)]
        logs = np.log(self.values)
        return tuple(
            (first, end - 1, mean_interval(logs[first:end], method=Method.T).exponential)
            for first, end in zip(starts, ends, strict=True)
        )


@dataclass(frozen=True)
class Overall:
    """The runs of one title on one machine."""

    title: str
    workload: str
    machine: str
    machine_words: str
    runs: int
    first: datetime
    last: datetime
    commits: int
    cells: tuple[str, ...]
    changed: Changed | None
    """The last change of any cell."""


@dataclass(frozen=True)
class Changed:
    """The last change of a cell's declared statistic."""

    cell: str
    since: datetime
    folder: str
    ratio: Ratio
    word: str


def overview(index: Index, wanted: Filter) -> tuple[Overall, ...]:
    """Every title on every machine, with its last change; the latest first.

    Raises:
        UsageError: there is none such.
    """
    with connected(index.home) as database:
        _open(database, index, wanted)
        totals = database.execute(
            "SELECT title, workload, machine, any_value(machine_words), count(*), min(started),"
            " max(ended), count(DISTINCT commit) FROM runs GROUP BY ALL ORDER BY max(ended) DESC"
        ).fetchall()
        series = database.execute(
            "SELECT r.title, r.workload, r.machine, v.cell, any_value(v.above), any_value(v.below),"
            " list(v.value ORDER BY r.started, r.folder),"
            " list(r.started ORDER BY r.started, r.folder),"
            " list(r.folder ORDER BY r.started, r.folder)"
            " FROM runs r JOIN levels v USING (entry)"
            " WHERE v.statistic = r.statistic AND v.replica = 1"
            " GROUP BY r.title, r.workload, r.machine, v.cell, v.series, v.statistic"
        ).fetchall()
    if not totals:
        raise _none(index, wanted)
    of: dict[tuple[str, ...], list[tuple[Any, ...]]] = {total[:3]: [] for total in totals}
    for one in series:
        of[one[:3]].append(one[3:])
    return tuple(
        Overall(*(*total, tuple(sorted({one[0] for one in of_it})), _last(of_it)))
        for total, of_it in zip(totals, of.values(), strict=True)
    )


def _last(series: Sequence[tuple[Any, ...]]) -> Changed | None:
    latest: Changed | None = None
    for cell, above, below, values, started, folders in series:
        array = np.array(values)
        found = change_points(array, ALPHA / len(series))
        if not found or (latest and started[found[-1].at] <= latest.since):
            continue
        at, before = found[-1].at, found[-2].at if len(found) > 1 else 0
        ratio = unpaired_ratio(array[at:], array[before:at])
        word = above if (ratio.ratio.estimate or 1.0) > 1.0 else below
        latest = Changed(cell, started[at], folders[at], ratio, word)
    return latest


def cell_history(
    index: Index, cell: str, statistic: str | None, wanted: Filter
) -> tuple[CellHistory, ...]:
    """A cell over time: a series for each title, machine, accelerator and way of measuring it.

    Args:
        index: of the folder.
        cell: its id, such as qemu/udp.
        statistic: what its sessions are summarised by; what each experiment declares where None.
        wanted: which runs.

    Raises:
        UsageError: there is none such; the message lists what there is.
    """
    with connected(index.home) as database:
        _open(database, index, wanted)
        asked = {"cell": cell, "statistic": statistic}
        rows = database.execute(
            "SELECT v.series, v.statistic, r.id, r.folder, r.started, r.version, r.commit,"
            f" v.value, v.low, v.high, len(v.sessions) {_OF_A_CELL} ORDER BY r.started, r.folder",
            asked,
        ).fetchall()
        if not rows:
            raise _no_cell(database, index, cell, statistic, wanted)
        # The latest says what it is: a factor that earlier versions lacked is at its default.
        kinds = database.execute(
            "SELECT DISTINCT ON (v.series, v.statistic) v.series, v.statistic, r.title,"
            " r.workload, r.machine, r.machine_words, v.accelerator, v.unit, map_entries(v.levels),"
            f" map_entries(r.settings), v.above, v.below {_OF_A_CELL}"
            " ORDER BY r.started DESC, r.folder DESC",
            asked,
        ).fetchall()
    of: dict[tuple[str, str], list[Point]] = {}
    for series, of_what, *point in rows:
        of.setdefault((series, of_what), []).append(Point(*point))
    found = [
        _series(index, cell, of_what, tuple(of[series, of_what]), *kind)
        for series, of_what, *kind in kinds
    ]
    return tuple(sorted(found, key=lambda one: one.points[-1].started, reverse=True))


_OF_A_CELL = (
    "FROM runs r JOIN levels v USING (entry)"
    " WHERE v.cell = $cell AND v.statistic = coalesce($statistic, r.statistic)"
)


def _series(
    index: Index,
    cell: str,
    statistic: str,
    points: tuple[Point, ...],
    title: str,
    workload: str,
    machine: str,
    words: str,
    accelerator: str | None,
    unit: Unit,
    levels: Sequence[Mapping[str, str]],
    settings: Sequence[Mapping[str, str]],
    above: str,
    below: str,
) -> CellHistory:
    values = np.array([point.value for point in points])
    steps, before = [], 0
    found = change_points(values, ALPHA)
    for number, one in enumerate(found):
        after = found[number + 1].at if number + 1 < len(found) else len(points)
        ratio = unpaired_ratio(values[one.at : after], values[before : one.at])
        word = above if (ratio.ratio.estimate or 1.0) > 1.0 else below
        differs = _differing(index.folder, points[one.at - 1].folder, points[one.at].folder)
        steps.append(Step(one.at, one.p, ratio, word, differs))
        before = one.at
    return CellHistory(
        title=title,
        workload=workload,
        machine=machine,
        machine_words=words,
        accelerator=accelerator,
        cell=cell,
        levels=_mapping(levels),
        settings=_mapping(settings),
        statistic=statistic,
        unit=unit,
        points=points,
        steps=tuple(steps),
    )


def skipped(index: Index) -> tuple[Skipped, ...]:
    """What is not in the history, and why; and what is there with a doubt."""
    with connected(index.home) as database:
        _open(database, index, Filter())
        rows = database.execute(
            "SELECT folder, skipped FROM every WHERE skipped IS NOT NULL"
            " UNION ALL SELECT folder, 'a copy of ' || first || ', which counts once' FROM every"
            " WHERE folder <> first"
            " UNION ALL SELECT folder, CASE WHEN unreadable > 0 AND n = 1 THEN unreadable || ' of '"
            " || trials || ' sessions are left out: ' ELSE '' END || note FROM"
            " (SELECT *, unnest(notes) AS note, generate_subscripts(notes, 1) AS n FROM runs)"
            " ORDER BY ALL"
        ).fetchall()
    return tuple(Skipped(*row) for row in rows)


def _open(database: duckdb.DuckDBPyConnection, index: Index, wanted: Filter) -> None:
    """Name what is asked: `every` result; the `runs` that are wanted, copies once; `levels`."""
    every = database.execute(
        "CREATE TEMP TABLE every AS SELECT *, CASE WHEN id IS NULL THEN folder ELSE"
        " first(folder) OVER (PARTITION BY id ORDER BY trials DESC, folder) END AS first"
        " FROM read_parquet($runs, hive_partitioning = false)",
        {"runs": literal(index.runs)},
    )
    every.execute(
        "CREATE TEMP TABLE runs AS SELECT * EXCLUDE (first) FROM every"
        " WHERE skipped IS NULL AND folder = first"
        " AND ($since IS NULL OR started >= $since)"
        " AND ($title IS NULL OR contains(lower(title), lower($title)))"
        " AND ($machine IS NULL OR contains(lower(machine || ' ' || machine_words),"
        " lower($machine)))"
        " AND ($commit IS NULL OR starts_with(commit, $commit))",
        vars(wanted),
    )
    parts = database.execute("SELECT DISTINCT part FROM runs WHERE part IS NOT NULL").fetchall()
    files = ", ".join(f"'{_quoted(index.part(name))}'" for (name,) in [*parts, (EMPTY,)])
    source = f"read_parquet([{files}], hive_partitioning = false)"  # a view takes no parameters
    database.execute(f"CREATE TEMP VIEW levels AS SELECT * FROM {source}")  # noqa: S608 - own names


def _quoted(path: Path) -> str:
    return literal(path).replace("'", "''")


def _none(index: Index, wanted: Filter) -> UsageError:
    asked = [f"{name} {value}" for name, value in vars(wanted).items() if value is not None]
    if asked:
        return UsageError(
            f"no run below {index.folder} is of {', '.join(asked)}",
            f"see what there is: {shell_line('tare', 'history', index.folder)}",
        )
    why = [f"{one.folder}: {one.why}" for one in skipped(index)[:3]]
    return UsageError(f"no result below {index.folder} can be read: {'; '.join(why)}")


def _no_cell(
    database: duckdb.DuckDBPyConnection,
    index: Index,
    cell: str,
    statistic: str | None,
    wanted: Filter,
) -> UsageError:
    if not database.execute("SELECT 1 FROM runs LIMIT 1").fetchall():
        return _none(index, wanted)
    there = database.execute(
        "SELECT DISTINCT v.statistic FROM levels v JOIN runs USING (entry) WHERE v.cell = ?"
        " ORDER BY 1",
        [cell],
    ).fetchall()
    if there and statistic is not None:
        names = ", ".join(name for (name,) in there)
        return UsageError(f"{cell} has no {statistic} in these runs", f"it has {names}")
    cells = database.execute(
        "SELECT DISTINCT cell FROM levels JOIN runs USING (entry) WHERE replica = 1 ORDER BY 1"
    ).fetchall()
    return UsageError(
        f"no run has a cell {cell!r}", f"they have {', '.join(name for (name,) in cells)}"
    )


def _differing(folder: Path, one: str, other: str) -> dict[str, tuple[Any, Any]]:
    from tare import machine  # noqa: PLC0415 - not where nothing has changed

    paths = [folder / run / "environment.json" for run in (one, other)]
    try:
        sides = [json.loads(path.read_bytes()) for path in paths]
        return machine.unlike(*sides)
    except (OSError, ValueError, AttributeError):
        return {}  # the results may be gone by now


def _mapping(entries: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {entry["key"]: entry["value"] for entry in entries}
