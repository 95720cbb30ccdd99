"""A cell's history as one HTML page, with the report's figures and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

from tare.report import history, numbers, page
from tare.report.figures.axis import Axis, written
from tare.report.figures.figure import Figure, Line, Panel
from tare.report.tables import Table
from tare.report.wording import statistic_name

if TYPE_CHECKING:
    from tare.history.query import CellHistory, Point

_MOST_POINTS = 300
"""More runs are drawn several to a point."""
_MOST_ROWS = 1000
_DAY_S = 86_400.0


def render(folder: str, found: Sequence[CellHistory]) -> str:
    """Draw the page.

    Args:
        folder: where the results lie.
        found: every series of one cell and statistic.

    Returns:
        HTML without scripts.
    """
    apart = history.telling_apart(found)
    return page.drawn(
        "history.html.j2",
        {
            "title": f"{found[0].cell} over time",
            "folder": folder,
            "statistic": statistic_name(found[0].statistic),
            "method": history.METHOD,
            "parts": [
                {
                    "heading": one.title,
                    "tells": "; ".join([one.machine_words, *tells]),
                    "figure": _figure(one, number),
                    "tables": (_levels(one), _runs(one)),
                }
                for number, (one, tells) in enumerate(zip(found, apart, strict=True))
            ],
        },
    )


def _figure(series: CellHistory, number: int) -> Figure:
    drawn = [_bar(one) for one in _thinned(series.points)]
    levels = [
        Line("c2", ((_day(series, first), level), (_day(series, last), level)))
        for first, last, interval in series.levels_between
        if (level := interval.estimate) is not None
    ]
    heights = [value for _, *parts in drawn for value in parts]
    y = Axis(heights, written(series.unit), upright=True)
    days = [x for x, *_ in drawn]
    ends = min(heights), max(heights)
    changes = [
        Line(_style(step.word), tuple((_day(series, step.at), end) for end in ends))
        for step in series.steps
    ]
    runs = Line(
        "c0",
        tuple((x, value) for x, value, _, _ in drawn),
        bars=tuple((x, low, high) for x, _, low, high in drawn),
        kind="points",
    )
    words = dict.fromkeys(step.word for step in series.steps)
    said = [(_style(word), f"a change: {word}") for word in words]
    each = "Each point is a run"
    if len(drawn) < len(series.points):
        each = f"Each point is {numbers.count(math.ceil(len(series.points) / _MOST_POINTS))} runs"
    return Figure(
        f"history-{number}",
        f"{series.cell}, {statistic_name(series.statistic)}",
        f"{each}, its line the 95 % interval over blocks (of several runs, from the lowest end to"
        " the highest). Between changes, the mean over runs. Log scale.",
        "The value of every run over time, with the changes of its level.",
        panels=(Panel("", Axis(days, _date, log=False), y, (*changes, runs, *levels)),),
        legend=(("c0", "runs"), ("c2", "level"), *said),
        axes=("time, UTC", series.statistic),
    )


def _style(word: str) -> str:
    return word if word in history.STYLES else "ink"


def _thinned(points: Sequence[Point]) -> list[Sequence[Point]]:
    drawn = min(len(points), _MOST_POINTS)
    ends = [i * len(points) // drawn for i in range(drawn + 1)]
    return [points[first:end] for first, end in pairwise(ends)]


def _bar(points: Sequence[Point]) -> tuple[float, float, float, float]:
    """Day, geometric mean, and how far the intervals reach."""
    middle = math.exp(math.fsum(math.log(point.value) for point in points) / len(points))
    low = min(point.low or point.value for point in points)
    high = max(point.high or point.value for point in points)
    return _days(points[len(points) // 2].started), middle, low, high


def _day(series: CellHistory, run: int) -> float:
    return _days(series.points[run].started)


def _days(when: datetime) -> float:
    return when.replace(tzinfo=UTC).timestamp() / _DAY_S


def _date(day: float) -> str:
    when = datetime.fromtimestamp(day * _DAY_S, UTC)
    return f"{when:%m-%d %H:%M}" if day % 1.0 else f"{when:%Y-%m-%d}"


def _levels(series: CellHistory) -> Table:
    rows = []
    for step, (first, last, interval) in zip(
        [None, *series.steps], series.levels_between, strict=True
    ):
        ratio = ""
        if step is not None:
            parts = step.ratio.ratio
            ratio = f"{step.word} {numbers.ratio(parts.estimate, parts.low, parts.high)}"
        since = history.moment(series.points[first].started)
        level, differs = history.quantity(series, interval), history.differing(step) if step else ""
        rows.append((since, numbers.count(last - first + 1), level, ratio, differs))
    return Table(
        "Levels",
        ("from", "runs", series.statistic, "over the one before", "differs"),
        tuple(rows),
        heads=1,
        words=(4,),
        conditioned=False,
    )


def _runs(series: CellHistory) -> Table:
    rows = [
        (
            history.moment(point.started),
            str(numbers.quantity(series.unit, point.value, point.low, point.high)),
            str(point.sessions),
            history.short(point.commit),
            point.folder,
        )
        for point in reversed(series.points[-_MOST_ROWS:])
    ]
    left = len(series.points) - len(rows)
    return Table(
        "Runs, the last first",
        ("started", series.statistic, "sessions", "commit", "run"),
        tuple(rows),
        heads=1,
        words=(3, 4),
        note=f"{left} earlier runs: `tare history --csv`." if left else "",
        conditioned=False,
    )
