"""What figures are made of: strips, which hold intervals, and panels, which hold lines.

A figure is data. `figures.html.j2` draws it as HTML and SVG whose places are percentages and whose
colours are the style sheet's, so that one markup holds on a telephone, on a wide screen, in the
dark, on paper and without scripts. Each colour comes with a shape: a figure also holds in grey.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tare.report.figures.axis import Axis, within_reach
from tare.stats import Interval

_SHAPES = {
    "slower": "right",
    "more": "right",
    "more-is-better": "right",
    "faster": "left",
    "less": "left",
    "less-is-worse": "left",
    "equivalent": "circle",
    "no-worse": "circle",
    "inconclusive": "cross",
    "below-instrument": "cross",
    "descriptive": "diamond",
    "paper": "square",
}
_SERIES = ("circle", "square", "up", "diamond", "cross", "down", "right")
_ALIKE = 3.0
"""Groups whose values together span less than this factor share an axis."""


@dataclass(frozen=True)
class Mark:
    """Something in a strip: a point, a thin tick, a line from start to end, or a bar."""

    kind: Literal["point", "tick", "line", "bar"]
    style: str
    """A verdict, a part, or one of a series (`series`): the class that gives it its colour."""
    start: float
    end: float | None = None
    tip: str = ""
    """What is told when the pointer rests on it."""

    @property
    def shape(self) -> str:
        """Of a point."""
        return shape(self.style)


@dataclass(frozen=True)
class Strip:
    """One strip with its name and its number."""

    label: str
    marks: tuple[Mark, ...]
    text: str = ""


@dataclass(frozen=True)
class Group:
    """Strips over one axis."""

    heading: str
    rows: tuple[Strip, ...]
    axis: Axis
    band: tuple[float, float] | None = None
    """Values between which its strips are shaded."""


@dataclass(frozen=True)
class Line:
    """A line of a panel, with a band about it or an interval at each point."""

    style: str
    points: tuple[tuple[float, float], ...]
    """In the order of x or of y."""
    band: tuple[tuple[float, float, float], ...] = ()
    """(y, low x, high x) where the band lies along the line."""
    bars: tuple[tuple[float, float, float], ...] = ()
    """(x, low y, high y)."""
    kind: Literal["line", "steps", "points", "dashed"] = "line"

    @property
    def shape(self) -> str:
        """Of its points."""
        return shape(self.style)


@dataclass(frozen=True)
class Panel:
    """One pair of axes, and the box that it is drawn in."""

    heading: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    rule: float | None = None
    """A value of x that is marked."""
    width: ClassVar = 360
    height: ClassVar = 220
    left: ClassVar = 54
    right: ClassVar = 350
    top: ClassVar = 8
    bottom: ClassVar = 196

    @property
    def across(self) -> list[tuple[float, str]]:
        """Place and text of the marks of x."""
        return [(self._across(place), text) for place, text in self.x.marks]

    @property
    def up(self) -> list[tuple[float, str]]:
        """Place and text of the marks of y."""
        return [(self._up(place), text) for place, text in self.y.marks]

    def px(self, value: float) -> float:
        """Place of a value of x in the box."""
        return self._across(self.x.at(value))

    def py(self, value: float) -> float:
        """Place of a value of y in the box."""
        return self._up(self.y.at(value))

    def path(self, line: Line) -> str:
        """The line as SVG writes it."""
        drawn = ""
        for x, y in line.points:
            across = f"H{self.px(x)}" if drawn and line.kind == "steps" else ""
            drawn += f"{across}{'L' if drawn else 'M'}{self.px(x)} {self.py(y)}"
        return drawn

    def area(self, line: Line) -> str:
        """The band about a line as SVG writes it."""
        there = [(self.px(low), self.py(y)) for y, low, _ in line.band]
        back = [(self.px(high), self.py(y)) for y, _, high in reversed(line.band)]
        return "M" + "L".join(f"{x} {y}" for x, y in there + back) + "Z"

    def _across(self, percent: float) -> float:
        return round(self.left + percent * (self.right - self.left) / 100.0, 1)

    def _up(self, percent: float) -> float:
        return round(self.bottom - percent * (self.bottom - self.top) / 100.0, 1)


@dataclass(frozen=True)
class Map:
    """A table whose cells are shaded by their share of the largest."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[float, str, str] | None, ...]], ...]
    """Strip's name -> a cell a column: share of the largest, number, interval."""


@dataclass(frozen=True)
class Figure:
    """A figure; only one of `groups`, `panels` and `maps` is filled."""

    id: str
    title: str
    caption: str
    """How to read it."""
    alternative: str = ""
    """What panels show, for those who do not see them; strips and maps are text themselves."""
    groups: tuple[Group, ...] = ()
    panels: tuple[Panel, ...] = ()
    maps: tuple[Map, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    """Style -> what it stands for."""
    rule: float | None = None
    """A value that is marked in every strip."""
    axes: tuple[str, str] = ("", "")
    """What x and y are."""

    @property
    def key(self) -> tuple[tuple[str, str, str], ...]:
        """The legend: style, what is drawn (a bar, a line or a shape), words."""
        marks = (mark for group in self.groups for row in group.rows for mark in row.marks)
        drawn = {mark.style: "bar" for mark in marks if mark.kind == "bar"}
        lines = (line for panel in self.panels for line in panel.lines)
        drawn |= {line.style: "line" for line in lines if line.kind in ("line", "steps")}
        return tuple((style, drawn.get(style, shape(style)), words) for style, words in self.legend)


def shape(style: str) -> str:
    """The shape that goes with a style; bars have none."""
    colour, _, turn = style.partition(" s")
    if colour[:1] == "c" and colour[1:].isdigit():
        return _SERIES[(int(colour[1:]) + int(turn or 0)) % len(_SERIES)]
    return _SHAPES.get(style, "bar")


def series(domain: Iterable[str]) -> dict[str, str]:
    """Give each member of a domain, in the order of first appearance, a style.

    Where the colours have gone round, each comes with the next one's shape.
    """
    members = {member: divmod(i, len(_SERIES)) for i, member in enumerate(dict.fromkeys(domain))}
    return {member: f"c{i}{f' s{turn}' if turn else ''}" for member, (turn, i) in members.items()}


def legend(styles: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The legend of a series; none where it has one member."""
    return tuple((style, member) for member, style in styles.items()) if len(styles) > 1 else ()


def interval(
    style: str, value: float | None, low: float | None, high: float | None, tip: str = ""
) -> tuple[Mark, ...]:
    """A point on its interval, as far as there are either."""
    if value is None:
        return ()
    line = () if low is None or high is None else (Mark("line", style, low, high),)
    return (*line, Mark("point", style, value, tip=tip))


def of(style: str, found: Interval, tip: str = "") -> tuple[Mark, ...]:
    """`interval` of an interval over blocks."""
    return interval(style, found.estimate, found.low, found.high, tip)


def strips(
    groups: Sequence[tuple[str, Sequence[Strip]]],
    label: Callable[[float], str],
    *,
    log: bool = True,
    seen: Sequence[float] = (),
    common: bool | None = None,
    band: tuple[float, float] | None = None,
) -> tuple[Group, ...]:
    """Lay rows over axes: one for all, or one each where groups are of unlike size.

    Args:
        groups: heading and rows of each.
        label: how a mark of an axis is written.
        log: whether axes are logarithmic.
        seen: values that every axis reaches to, beside the band's.
        common: whether all share an axis; by their size where it is not said.
        band: what is shaded.
    """
    seen = (*seen, *(band or ()))
    values = [_values(rows, seen, log=log) for _, rows in groups]
    every = [value for found in values for value in found]
    if common is None:
        common = log and max(every, default=1.0) < _ALIKE * min(every, default=1.0)
    shared = Axis(every, label, log=log)
    return tuple(
        Group(heading, tuple(rows), shared if common else Axis(found, label, log=log), band)
        for (heading, rows), found in zip(groups, values, strict=True)
    )


def _values(rows: Sequence[Strip], seen: Sequence[float], *, log: bool) -> list[float]:
    """What the axis of some rows has to show."""
    marks = [mark for row in rows for mark in row.marks]
    inner = [mark.start for mark in marks if mark.kind != "line" and (mark.start > 0 or not log)]
    inner += [mark.end for mark in marks if mark.kind == "bar" and mark.end is not None]
    inner += seen
    if not inner:
        return [1.0]
    ends = [end for mark in marks if mark.kind == "line" for end in (mark.start, mark.end or 0.0)]
    return within_reach(inner, ends, log=log)
