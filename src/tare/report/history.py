"""The history of a folder for a terminal: what there is, and a cell over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from tare.history.query import FEWEST_RUNS
from tare.report import numbers
from tare.report.columns import Columns
from tare.report.numbers import SPACE

if TYPE_CHECKING:
    from datetime import datetime

    from tare.history.query import CellHistory, Overall, Step
    from tare.history.samples import Distribution
    from tare.stats.interval import Interval

_HEIGHT = 10
_LAST = 20
"""Runs that are listed; the rest is in the picture, and in --csv."""
_NAMED = 4
"""Differences of the machine that are named at a change."""
STYLES = {"slower": "red", "faster": "green"}
"""Of a change. Whether more is better, the history does not hold: more and less have no colour."""


def overview(found: Sequence[Overall]) -> RenderableType:
    """A row for each title on each machine; the cells, where there is one row alone."""
    table = Columns("title", "runs", "from", "to", "commits", "last change", words=(0, 5))
    machines = {one.machine: one.machine_words for one in found}
    for one in found:
        title = f"{one.title} ({one.machine})" if len(machines) > 1 else one.title
        changed = Text("none found" if one.runs >= FEWEST_RUNS else "too few runs to tell")
        if one.changed is not None:
            cell, ratio = one.changed.cell, _ratio(one.changed.ratio.ratio)
            changed = Text(f"{one.changed.word} ", STYLES.get(one.changed.word, ""))
            changed.append(f"{cell} {ratio} since {_day(one.changed.since)}", "")
        table.add_row(
            Text(title), str(one.runs), _day(one.first), _day(one.last), str(one.commits), changed
        )
    lines: list[RenderableType] = [table]
    if len(machines) > 1:
        lines.append(Text("Runs of different machines are never combined:"))
        lines += (Text(f"{name}  {words}") for name, words in machines.items())
    if len(found) == 1:
        lines.append(Text(f"cells: {', '.join(found[0].cells)}"))
    return Group(*lines)


def cell(found: Sequence[CellHistory], width: int) -> RenderableType:
    """Every series of a cell, apart: its picture, its levels and its last runs."""
    lines: list[RenderableType] = []
    if len(found) > 1:
        lines.append(Text(f"{len(found)} series, which are not combined.", "yellow"))
    apart = telling_apart(found)
    for one, tells in zip(found, apart, strict=True):
        lines += [
            Text(f"{one.cell}, {one.statistic} of a session: {one.title}", "bold"),
            Text("; ".join([one.machine_words, *tells]), "dim"),
            Text(""),
            *(Text(line) for line in picture(one, width)),
            Text(""),
            _levels(one),
            Text(""),
            _runs(one),
            Text(""),
        ]
    lines.append(Text(METHOD, "dim"))
    return Group(*lines)


METHOD = (
    "Brackets hold 95 % intervals: of a run over its blocks, of a level over its runs, of a ratio"
    " by Welch's test. A change is where runs in random order would split as well at most once in a"
    " hundred times (docs/guides/history.md)."
)


def distributions(found: Sequence[Distribution]) -> RenderableType:
    """How the raw samples of each level are distributed."""
    shares = sorted({share for one in found for share in one.quantiles_ns})
    table = Columns(
        "from", "sessions", "samples", *(f"p{100 * share:g}" for share in shares), words=(0,)
    )
    for one in found:
        values = [numbers.time(one.quantiles_ns.get(share)).bare for share in shares]
        table.add_row(_day(one.since), str(one.sessions), numbers.count(one.samples), *values)
    lines: list[RenderableType] = [table]
    lines += (Text(f"left out: {why}", "yellow") for one in found for why in one.left_out)
    return Group(*lines)


def telling_apart(found: Sequence[CellHistory]) -> list[list[str]]:
    """What each series has that not all of them have."""

    def known(one: CellHistory) -> dict[str, str]:
        return {
            "title": one.title,
            "machine": one.machine,
            "accelerator": one.accelerator or "none",
            **{name.replace("_", " "): level for name, level in one.settings.items()},
            **{name.replace("_", " "): level for name, level in one.levels.items()},
        }

    every = [known(one) for one in found]
    names = dict.fromkeys(name for one in every for name in one)
    differ = [name for name in names if len({one.get(name) for one in every}) > 1]
    return [[f"{name} {one[name]}" for name in differ if name in one] for one in every]


def picture(series: CellHistory, width: int) -> list[str]:
    """The values over the runs, a column a run or several; numbers below mark the changes."""
    values = [point.value for point in series.points]
    ends = [(point.low or point.value, point.high or point.value) for point in series.points]
    least, most = min(values), max(values)
    # Of intervals without end a part; half of a typical one is seen whole.
    reach = sorted(high / low for low, high in ends)[len(ends) // 2]
    bottom, top = math.log(least / reach), math.log(most * reach)
    if top - bottom < 1e-9:
        bottom, top = bottom - 0.05, top + 0.05

    def row(value: float) -> int:
        share = (math.log(value) - bottom) / (top - bottom)
        return min(_HEIGHT - 1, max(0, round(share * (_HEIGHT - 1))))

    marks = [math.exp(bottom + (top - bottom) * i / (_HEIGHT - 1)) for i in range(_HEIGHT)]
    labels = [
        numbers.quantity(series.unit, mark, like=math.sqrt(least * most)).bare if i % 3 == 0 else ""
        for i, mark in enumerate(marks)
    ]
    margin = max(map(len, labels)) + 1
    columns = max(1, min(len(values), width - margin - 1))
    apart = max(1, min(3, (width - margin - 1) // columns))
    grid = [[" "] * (columns * apart) for _ in range(_HEIGHT)]
    for column in range(columns):
        of = range(column * len(values) // columns, (column + 1) * len(values) // columns)
        middle = math.exp(math.fsum(math.log(values[i]) for i in of) / len(of))
        low, high = min(ends[i][0] for i in of), max(ends[i][1] for i in of)
        for y in range(row(low), row(high) + 1):
            grid[y][column * apart] = "\N{BOX DRAWINGS LIGHT VERTICAL}"
        grid[row(middle)][column * apart] = "\N{BLACK CIRCLE}"
    below = [" "] * (columns * apart)
    for number, step in enumerate(series.steps, start=2):
        for place, digit in enumerate(str(number), start=step.at * columns // len(values) * apart):
            if place < len(below):
                below[place] = digit
    drawn = [
        f"{label:>{margin - 1}} \N{BOX DRAWINGS LIGHT VERTICAL}{''.join(line).rstrip()}"
        for label, line in zip(reversed(labels), reversed(grid), strict=True)
    ]
    corner, line = "\N{BOX DRAWINGS LIGHT UP AND RIGHT}", "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
    each = len(values) / columns
    every = "a column a run" if each == 1 else f"a column {each:.3g} runs"
    span = f"{_day(series.points[0].started)} to {_day(series.points[-1].started)}, {every}"
    drawn.append(f"{'':>{margin}}{corner}{line * (columns * apart)}")
    if series.steps:
        drawn.append(f"{'':>{margin}} {''.join(below).rstrip()}")
    drawn.append(f"{'':>{margin}} {span}")
    return drawn


def _levels(series: CellHistory) -> Columns:
    table = Columns("level", "from", "runs", series.statistic, "over the one before", "differs",
                    words=(0, 4, 5))  # fmt: skip
    steps = [None, *series.steps]
    for number, (step, level) in enumerate(zip(steps, series.levels_between, strict=True), start=1):
        first, last, interval = level
        changed = Text("")
        if step is not None:
            changed = Text(f"{step.word} ", STYLES.get(step.word, ""))
            changed.append(f"{_ratio(step.ratio.ratio)}, p {step.p:.2g}", "")
        table.add_row(
            str(number),
            moment(series.points[first].started),
            str(last - first + 1),
            Text(quantity(series, interval)),
            changed,
            Text(differing(step) if step else ""),
        )
    return table


def _runs(series: CellHistory) -> RenderableType:
    table = Columns("run", "started", series.statistic, "sessions", "commit", words=(0, 1, 4))
    shown = series.points[-_LAST:]
    for point in shown:
        value = numbers.quantity(series.unit, point.value, point.low, point.high)
        table.add_row(
            Text(point.folder),
            moment(point.started),
            Text(str(value)),
            str(point.sessions),
            Text(short(point.commit)),
        )
    if len(shown) == len(series.points):
        return table
    said = f"the last {len(shown)} of {len(series.points)} runs; all: --csv, --json or --html FILE"
    return Group(table, Text(said, "dim"))


def quantity(series: CellHistory, interval: Interval) -> str:
    """A level with its interval."""
    parts = (interval.estimate, interval.low, interval.high)
    return str(numbers.quantity(series.unit, *parts))


def differing(step: Step) -> str:
    """What a change came with, in the machine's fingerprint: the first few, and how many more."""
    # A program's hash says nothing to a person, a commit stands beside each run.
    names = sorted(step.differs, key=lambda name: (name.startswith("programs."), name))
    shown = [f"{name}{_arrow(step.differs[name])}" for name in names[:_NAMED]]
    more = len(names) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


def _arrow(pair: tuple[Any, Any]) -> str:
    old, new = (short(str(value)) if value is not None else "none" for value in pair)
    return f" {old} \N{RIGHTWARDS ARROW} {new}"


def short(text: str | None) -> str:
    """A hash by its first digits; other texts as they are."""
    if text is None:
        return ""
    head, plus, tail = text.partition("+")
    is_hash = len(head) >= 40 and all(digit in "0123456789abcdef" for digit in head)
    return f"{head[:10]}{plus and '+'}" if is_hash else f"{head}{plus}{tail}"


def moment(when: datetime) -> str:
    """Day and minute, UTC."""
    return f"{when:%Y-%m-%d %H:%M}"


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d}"


def _ratio(interval: Interval) -> str:
    value = numbers.ratio(interval.estimate, interval.low, interval.high)
    return f"{value.bare} {value.interval}".replace(SPACE, " ")
