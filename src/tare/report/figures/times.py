"""What was measured: levels, distributions, sessions over blocks, deadlines."""

from __future__ import annotations

from tare.analysis import Analysis
from tare.analysis.sessions import Session
from tare.report.figures.axis import Axis, share, written
from tare.report.figures.figure import (
    Figure,
    Line,
    Mark,
    Panel,
    Strip,
    interval,
    legend,
    series,
    strips,
)
from tare.report.numbers import quantity
from tare.report.wording import Label, Names

_SHARES = (1.0, 0.1, 0.01, 0.001, 0.0001)


def levels(analysis: Analysis, names: Names) -> Figure | None:
    """Every cell with its interval, and its sessions behind it."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    views = [v for v in analysis.cells if v.cell.replica == 1 and v.declared]
    places = {view.cell.id: names.place(view.cell) for view in views}
    styles = series(place.environment for place in places.values())
    groups: dict[str, list[Strip]] = {}
    for view in views:
        place, found = places[view.cell.id], view.estimates.get(statistic)
        if found is None or found.value is None:
            continue
        style = styles[place.environment]
        ends = (found.value, found.low, found.high)
        row = Strip(
            place.environment,
            (
                *(Mark("tick", style, value) for value in view.declared.values()),
                *interval(style, *ends),
            ),
            str(quantity(unit, *ends)),
        )
        groups.setdefault(place.rest, []).append(row)
    if not groups:
        return None
    return Figure(
        "levels",
        f"{statistic} of every cell",
        "Points are geometric means over sessions, lines their 95 % intervals (Student's t on"
        " logarithms), thin ticks the sessions themselves: two clusters of ticks are two modes."
        f" {_log_scale(analysis)}",
        groups=strips(list(groups.items()), written(unit), common=True),
    )


def distributions(analysis: Analysis, names: Names) -> Figure | None:
    """The share of requests slower than a time, with the range over sessions."""
    drawn: dict[str, list[tuple[Label, Line]]] = {}
    views = [v for v in analysis.cells if v.cell.replica == 1 and v.sessions and v.quantiles]
    styles = series(names.place(view.cell).series for view in views)
    for view in views:
        place = names.place(view.cell)
        tail = [(1 - part, found) for part, found in view.quantiles.items() if part < 1]
        line = Line(
            styles[place.series],
            tuple((found.median, slower) for slower, found in tail),
            band=tuple((slower, found.least, found.most) for slower, found in tail),
        )
        drawn.setdefault(place.apart, []).append((place, line))
    if not drawn:
        return None
    least = min(y for lines in drawn.values() for _, line in lines for _, y in line.points)
    panels = [
        Panel(
            heading,
            Axis(
                (x for _, line in lines for _, low, high in line.band for x in (low, high)),
                written("ns"),
            ),
            Axis((least, 1.0), share, marks=_SHARES, upright=True),
            tuple(line for _, line in lines),
        )
        for heading, lines in drawn.items()
    ]
    return Figure(
        "distributions",
        "Distribution of the response times",
        "Each line is the median over sessions of the session's quantile; the band reaches from the"
        " lowest to the highest session. At 1 % lies p99. A tail is drawn as far as every session"
        " has the samples for it. Both axes are logarithmic; each panel has its own time axis.",
        "Share of requests slower than a time, for every cell.",
        panels=tuple(panels),
        legend=legend(styles),
        axes=("response time", "share of requests that took longer"),
    )


def by_block(analysis: Analysis, names: Names) -> Figure | None:
    """Every session in the order of the blocks."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    views = [v for v in analysis.cells if v.cell.replica == 1 and v.declared]
    styles = series(names.place(view.cell).series for view in views)
    drawn: dict[str, list[Line]] = {}
    for view in views:
        place = names.place(view.cell)
        within = {one: _within(view.sessions.get(one), statistic) for one in view.declared}
        line = Line(
            styles[place.series],
            tuple((block + 1, value) for (block, _), value in view.declared.items()),
            bars=tuple(
                (block + 1, *ends) for (block, _), ends in within.items() if ends is not None
            ),
            kind="points",
        )
        drawn.setdefault(place.apart, []).append(line)
    if not drawn:
        return None
    lines = [line for found in drawn.values() for line in found]
    x = Axis(
        (x for line in lines for x, _ in line.points),
        lambda block: f"{block:g}",
        log=False,
        marks=sorted({x for line in lines for x, _ in line.points}),
    )
    y = Axis(
        [y for line in lines for _, y in line.points]
        + [y for line in lines for _, *ends in line.bars for y in ends],
        written(unit),
        upright=True,
    )
    bars = any(line.bars for line in lines)
    own = " with its own 95 % interval (order statistics)" if bars else ""
    return Figure(
        "sessions",
        "Every session, in the order of the blocks",
        f"Each point is one session{own}. A step or a slope that all cells share is the"
        f" machine's; pairing within blocks takes it out of the ratios. {_log_scale(analysis)}",
        f"{statistic} of each session over blocks, for every cell.",
        panels=tuple(Panel(heading, x, y, tuple(found)) for heading, found in drawn.items()),
        legend=legend(styles),
        axes=("block", f"{statistic} of the session"),
    )


def _log_scale(analysis: Analysis) -> str:
    """Name the axis, and what it has no place for."""
    whole = all(view.declared for view in analysis.cells if view.measured)
    return "Log scale" + ("." if whole else ", which has no place for cells with zeros.")


def _within(session: Session | None, statistic: str) -> tuple[float, float] | None:
    """A percentile's interval within its session, in ns."""
    if session is None or statistic[0] != "p":
        return None
    found = session.summary.percentile(float(statistic[1:]))
    return None if found.low is None or found.high is None else (found.low, found.high)


def deadlines(analysis: Analysis, names: Names) -> Figure | None:
    """Median and 99th percentile as shares of each deadline."""
    styles = {"p50": "c0", "p99": "c1"}
    groups: dict[str, list[Strip]] = {}
    for view in analysis.cells:
        if view.cell.replica > 1:
            continue
        for text, deadline in zip(analysis.experiment.deadlines, view.deadlines, strict=False):
            marks = [
                mark
                for name, part in (("p99", deadline.p99_share), ("p50", deadline.p50_share))
                if part.value is not None and not view.unresolved[name]
                for mark in interval(styles[name], part.value, part.low, part.high, name)
            ]
            if marks:
                row = Strip(names.place(view.cell).full, tuple(marks))
                groups.setdefault(f"of {text}", []).append(row)
    if not groups:
        return None
    return Figure(
        "deadlines",
        "What is left of a deadline",
        "Median and 99th percentile over the deadline, geometric means over sessions with 95 %"
        " intervals, log scale. The line at 100 % is the deadline itself: right of it, it is"
        " missed.",
        groups=strips(list(groups.items()), share, seen=(1.0,), common=True),
        legend=legend(styles),
        rule=1.0,
    )
