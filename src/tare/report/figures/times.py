"""What was measured: levels, distributions, sessions over blocks, deadlines."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from tare.analysis import Analysis
from tare.analysis.sessions import Session
from tare.report.figures.chart import (
    COLOURS,
    DECADES,
    HEADER,
    ROWS,
    US,
    WIDTH,
    Figure,
    Rows,
    colours_and_shapes,
    compose,
    drawn_in,
    grid,
    in_order,
    labels,
    quantity_axis,
    scale,
    ticks,
    time_axis,
    tips,
)
from tare.report.wording import Names


def levels(analysis: Analysis, names: Names) -> Figure | None:
    """Every cell with its interval, and its sessions behind it."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    size = drawn_in(unit)
    rows: Rows = []
    for view in analysis.cells:
        if view.cell.replica > 1:
            continue
        estimate = view.estimates.get(statistic)
        if estimate is None or estimate.value is None:
            continue
        place = names.place(view.cell)
        common = {
            "environment": place.environment,
            "row": place.series + (f", {place.panel}" if place.panel else ""),
        }
        rows.append(
            common
            | {
                "kind": "estimate",
                "value": estimate.value / size,
                "low": (estimate.low or estimate.value) / size,
                "high": (estimate.high or estimate.value) / size,
            }
        )
        rows += [
            common | {"kind": "session", "value": value / size, "block": block}
            for (block, _), value in view.declared.items()
        ]
    if not rows:
        return None
    environments = in_order(row["environment"] for row in rows)
    colour, shape = colours_and_shapes("environment", environments)
    y = alt.Y("row:N", title=None, sort=None)
    offset = alt.YOffset("environment:N", sort=environments)
    x = quantity_axis("value", f"{statistic} of a session (log scale)", unit, rows)
    base = alt.Chart(ROWS)
    sessions = base.transform_filter("datum.kind == 'session'")
    estimates = base.transform_filter("datum.kind == 'estimate'")
    chart = alt.layer(
        sessions.mark_tick(thickness=1.2, size=9, opacity=0.45).encode(
            x=x, y=y, yOffset=offset, color=colour, tooltip=tips("environment", "row", "value")
        ),
        estimates.mark_rule(strokeWidth=2.2).encode(
            x=alt.X("low:Q"), x2="high:Q", y=y, yOffset=offset, color=colour
        ),
        estimates.mark_point(filled=True, size=60, opacity=1).encode(
            x=x,
            y=y,
            yOffset=offset,
            color=colour,
            shape=shape,
            tooltip=tips("environment", "row", "value", "low", "high"),
        ),
    ).properties(
        width=WIDTH, height=alt.Step(max(14, 13 * len(environments)), **{"for": "position"})
    )
    return compose(
        "levels",
        "Every cell, with 95 % intervals",
        "Points are geometric means over sessions, thick lines their 95 % intervals (Student's t on"
        " logarithms), thin ticks the sessions themselves: two clusters of ticks are two modes.",
        chart,
        rows,
        f"{statistic} of every cell; the numbers stand in the table.",
    )


def distributions(analysis: Analysis, names: Names) -> Figure | None:
    """The share of replies slower than a time, with the range over sessions."""
    rows: Rows = []
    for view in analysis.cells:
        if view.cell.replica > 1 or not view.sessions:
            continue
        place = names.place(view.cell)
        rows += [
            {
                "environment": place.environment,
                "series": place.series,
                "panel": place.panel,
                "slower": 1 - share,
                "value": found.median / US,
                "low": found.least / US,
                "high": found.most / US,
            }
            for share, found in view.quantiles.items()
        ]
    if not rows:
        return None
    domain = in_order(row["series"] for row in rows)
    colours = scale(domain, [COLOURS[i % len(COLOURS)] for i in range(len(domain))])
    legend = alt.Legend(orient="top", symbolType="stroke", symbolSize=400)
    y = alt.Y(
        "slower:Q",
        title="share of replies that took longer",
        scale=alt.Scale(type="log", domain=[min(row["slower"] for row in rows), 1], nice=False),
        axis=alt.Axis(values=[1, 0.5, 0.1, 0.01, 0.001, 0.0001], format="~p"),
    )
    columns = len(in_order(row["environment"] for row in rows))
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_area(opacity=0.2, orient="horizontal").encode(
            x=alt.X("low:Q"),
            x2="high:Q",
            y=y,
            fill=alt.Fill("series:N", scale=colours, legend=None),
        ),
        base.mark_line(strokeWidth=1.8).encode(
            x=time_axis("value", "response time (log scale)", rows),
            y=y,
            stroke=alt.Stroke("series:N", title=None, scale=colours, legend=legend),
            strokeDash=_dashes(domain, legend),
            order=alt.Order("slower:Q"),
            tooltip=tips("environment", "series", "slower", "value", "low", "high"),
        ),
    ).properties(width=max(150, (WIDTH + 60) // columns - 20), height=230)
    return compose(
        "distributions",
        "Distribution of the response times",
        "Each line is the median over sessions of the session's quantile; the band reaches from the"
        " lowest to the highest session. At 1 % lies p99. A tail is drawn as far as every session"
        " has the samples for it. Both axes are logarithmic; each column has its own time axis.",
        grid(layers, rows).resolve_scale(x="independent", fill="independent"),
        rows,
        "Share of replies slower than a time, for every cell.",
    )


def _dashes(domain: Sequence[str], legend: alt.Legend) -> alt.StrokeDash:
    dashes = [[1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [10, 3], [1, 3]]
    return alt.StrokeDash(
        "series:N",
        title=None,
        legend=legend,
        scale=alt.Scale(
            domain=list(domain), range=[dashes[i % len(dashes)] for i in range(len(domain))]
        ),
    )


def by_block(analysis: Analysis, names: Names) -> Figure | None:
    """Every session in the order of the blocks."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    size = drawn_in(unit)
    rows: Rows = []
    for view in analysis.cells:
        place = names.place(view.cell)
        for (block, repeat), value in view.declared.items() if view.cell.replica == 1 else ():
            low, high = _within(view.sessions.get((block, repeat)), statistic)
            rows.append(
                {
                    "environment": place.environment,
                    "series": place.series,
                    "panel": place.panel,
                    "block": block + 1,
                    "value": value / size,
                    "low": (low or value) / size,
                    "high": (high or value) / size,
                }
            )
    if not rows:
        return None
    colour, shape = colours_and_shapes("series", in_order(row["series"] for row in rows))
    columns = len(in_order(row["environment"] for row in rows))
    x = alt.X(
        "block:Q",
        title="block",
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(values=sorted({row["block"] for row in rows}), format="d"),
    )
    y = alt.Y(
        "value:Q",
        title=f"{statistic} of the session",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(labelExpr=labels(unit), labelOverlap="greedy", **ticks(rows, "value", unit)),
    )
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(opacity=0.35, strokeWidth=1).encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=26, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip=tips("environment", "series", "block", "value", "low", "high"),
        ),
    ).properties(width=max(150, (WIDTH + 60) // columns - 20), height=200)
    own = " with its own 95 % interval (order statistics)" if analysis.response_times else ""
    return compose(
        "sessions",
        "Every session, in the order of the blocks",
        f"Each point is one session{own}. A step or a slope that all cells share is the"
        " machine's; pairing within blocks takes it out of the ratios.",
        grid(layers, rows),
        rows,
        f"{statistic} of each session over blocks, for every cell.",
    )


def _within(session: Session | None, statistic: str) -> tuple[float | None, float | None]:
    """A percentile's interval within its session, in ns."""
    if session is None or statistic[0] != "p":
        return None, None
    found = session.summary.percentile(float(statistic[1:]))
    return found.low, found.high


def deadlines(analysis: Analysis, names: Names) -> Figure | None:
    """Median and 99th percentile as shares of each deadline."""
    rows: Rows = []
    for view in analysis.cells:
        if view.cell.replica > 1:
            continue
        place = names.place(view.cell)
        for text, deadline in zip(analysis.experiment.deadlines, view.deadlines, strict=False):
            shares = {"p50": deadline.p50_share, "p99": deadline.p99_share}
            for statistic, share in shares.items():
                if share.value is None or share.absent > view.failed:
                    continue
                rows.append(
                    {
                        "deadline": f"of {text}",
                        "row": place.full,
                        "statistic": statistic,
                        "share": share.value,
                        "low": share.low or share.value,
                        "high": share.high or share.value,
                    }
                )
    if not rows:
        return None
    colour, shape = colours_and_shapes("statistic", ["p50", "p99"])
    y = alt.Y("row:N", title=None, sort=None)
    columns = len(in_order(row["deadline"] for row in rows))
    x = alt.X(
        "share:Q",
        title="share of the deadline (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(format="~p", values=DECADES),
    )
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.transform_aggregate(rows="count()")
        .mark_rule(color="#D55E00", strokeDash=[3, 3])
        .encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip=tips("row", "statistic", "share", "low", "high"),
        ),
    ).properties(width=(WIDTH - 90) // columns, height=alt.Step(16))
    order = in_order(row["deadline"] for row in rows)
    chart = layers.facet(
        column=alt.Column("deadline:N", title=None, sort=order, header=HEADER), spacing=16
    )
    return compose(
        "deadlines",
        "What is left of a deadline",
        "Median and 99th percentile over the deadline, geometric means over sessions with 95 %"
        " intervals. The dashed line is the deadline itself: right of it, it is missed.",
        chart,
        rows,
        "Share of each deadline that the median and the 99th percentile take.",
    )
