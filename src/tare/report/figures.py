"""The report's figures: Vega-Lite made by altair, each drawn as static SVG when the page is made.

Colours are Okabe and Ito's, which colour-blind people tell apart, and each colour comes with a
shape, so that a figure also holds in grey. Every figure shows its intervals.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from tare.analysis import Analysis
from tare.analysis.accounts import WAITED
from tare.analysis.sessions import GRID
from tare.report.numbers import TIME_UNITS
from tare.report.wording import Names, absolute, interval_text, ratio_text

__all__ = ["Figure", "draw"]

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
_PARTS = {
    "floor": "#999999",
    "virtualisation": "#0072B2",
    "middleware": "#E69F00",
    "interaction": "#CC79A7",
    "total": "#333333",
}
_US = TIME_UNITS[1][1]
_WIDTH = 720
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_TIME_LABELS = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' s' : datum.value >= 1000 ?"
    " format(datum.value / 1000, '~g') + ' ms' : format(datum.value, '~g') + ' µs'"
)
_TICKS = [digit * 10.0**power for power in range(-5, 9) for digit in (1, 2, 5)]
_DECADES = [10.0**power for power in range(-7, 9)]
_MOST_ROWS = 5000
"""A figure of more rows is drawn, but not made interactive: it would weigh too much."""

Rows = list[dict[str, Any]]
_ROWS = alt.NamedData(name="rows")


@dataclass(frozen=True)
class Figure:
    """A drawn figure."""

    id: str
    title: str
    caption: str
    """How to read it."""
    alternative: str
    """What it shows, for those who do not see it."""
    svg: str
    spec: Mapping[str, Any] | None
    """Compiled Vega, for where scripts run; None where the figure stays static."""


def draw(analysis: Analysis, names: Names) -> dict[str, Figure | None]:
    """Draw every figure, by id; None where the analysis has no data for it."""
    makers = {
        "effects": _effects,
        "levels": _levels,
        "distributions": _distributions,
        "sessions": _by_block,
        "budget": _budgets,
        "account": _accounts,
        "deadlines": _deadlines,
        "paper": _paper,
    }
    return {figure_id: make(analysis, names) for figure_id, make in makers.items()}


def _effects(analysis: Analysis, names: Names) -> Figure | None:
    margin = analysis.experiment.margin_share
    rows: Rows = []
    for question in (*analysis.questions, *analysis.pairs):
        interval = question.ratio.ratio
        if interval.estimate is None:
            continue
        place = names.place(question.cell)
        same = question.comparison.kind == "a/a"
        rows.append(
            {
                "group": "The same cell twice (A/A)" if same else place.environment,
                "row": ", ".join(
                    part
                    for part in (place.series, place.panel, place.environment if same else "")
                    if part
                ),
                "verdict": _verdict(question),
                "ratio": interval.estimate,
                "low": interval.low,
                "high": interval.high,
                "text": str(ratio_text(interval)),
                "absolute": absolute(question),
            }
        )
    if not rows:
        return None
    verdicts = ["slower", "faster", "equivalent", "inconclusive", "below instrument", "descriptive"]
    colours = ["#D55E00", "#009E73", "#0072B2", "#777777", "#777777", "#333333"]
    shapes = ["triangle-right", "triangle-left", "circle", "cross", "cross", "diamond"]
    present = [v for v in verdicts if any(row["verdict"] == v for row in rows)]
    colour = alt.Color(
        "verdict:N",
        title=None,
        scale=_scale(present, [colours[verdicts.index(v)] for v in present]),
        legend=alt.Legend(orient="top"),
    )
    shape = alt.Shape(
        "verdict:N", title=None, scale=_scale(present, [shapes[verdicts.index(v)] for v in present])
    )
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X(
        "ratio:Q",
        title="times as long as the baseline (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(format="~g", values=_TICKS),
    )
    base = alt.Chart(_ROWS)
    band = (
        base.transform_calculate(a=str(1 / (1 + margin)), b=str(1 + margin))
        .mark_rect(color="#0072B2", opacity=0.04)
        .encode(x=alt.X("a:Q"), x2="b:Q")
    )
    layers = alt.layer(
        band,
        base.mark_rule(color="#555555", strokeDash=[3, 3]).encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_tips("row", "text", "absolute", "verdict")
        ),
        base.mark_text(align="left", dx=8, fontSize=11, color="#222222").encode(
            x=alt.value(_WIDTH - 170), y=y, text="text:N"
        ),
    ).properties(width=_WIDTH - 170, height=alt.Step(24))
    chart = layers.facet(row=_panel_row("group", rows), spacing=8).resolve_scale(y="independent")
    return _figure(
        "effects",
        "How many times as long, with 95 % intervals",
        "Points are geometric means over blocks of the ratio within a block; lines are 95 %"
        f" intervals; the band is the declared margin of ±{100 * margin:g} %. The A/A rows compare"
        " a cell with itself: how far they stray from 1 is what this machine's noise alone does.",
        chart,
        rows,
        f"Ratios to the baseline of {len(rows)} comparisons; the numbers stand in the table below.",
    )


def _verdict(question: Any) -> str:
    return str(question.judgement.verdict) if question.judgement else "descriptive"


def _levels(analysis: Analysis, names: Names) -> Figure | None:
    statistic = analysis.experiment.statistic
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
                "value": estimate.value / _US,
                "low": (estimate.low or estimate.value) / _US,
                "high": (estimate.high or estimate.value) / _US,
            }
        )
        for block, session in view.sessions.items():
            value = session.value(statistic)
            if value is not None:
                rows.append(common | {"kind": "session", "value": value / _US, "block": block})
    if not rows:
        return None
    environments = _in_order(row["environment"] for row in rows)
    colour, shape = _colours("environment", environments)
    y = alt.Y("row:N", title=None, sort=None)
    offset = alt.YOffset("environment:N", sort=environments)
    x = _time_axis("value", f"{statistic} of a session (log scale)")
    base = alt.Chart(_ROWS)
    sessions = base.transform_filter("datum.kind == 'session'")
    estimates = base.transform_filter("datum.kind == 'estimate'")
    chart = alt.layer(
        sessions.mark_tick(thickness=1.2, size=9, opacity=0.45).encode(
            x=x, y=y, yOffset=offset, color=colour, tooltip=_tips("environment", "row", "value")
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
            tooltip=_tips("environment", "row", "value", "low", "high"),
        ),
    ).properties(
        width=_WIDTH, height=alt.Step(max(14, 13 * len(environments)), **{"for": "position"})
    )
    return _figure(
        "levels",
        "Every cell, with 95 % intervals",
        "Points are geometric means over sessions, thick lines their 95 % intervals (Student's t on"
        " logarithms), thin ticks the sessions themselves: two clusters of ticks are two modes.",
        chart,
        rows,
        "Absolute response times by environment and transport; the numbers stand in the table.",
    )


def _distributions(analysis: Analysis, names: Names) -> Figure | None:
    rows: Rows = []
    for view in analysis.cells:
        if view.cell.replica > 1 or not view.sessions:
            continue
        place = names.place(view.cell)
        for i, share in enumerate(GRID):
            found = sorted(q for s in view.sessions.values() if (q := s.quantiles[i]) is not None)
            if len(found) == len(view.sessions):
                rows.append(
                    {
                        "environment": place.environment,
                        "series": place.series,
                        "panel": place.panel,
                        "slower": 1 - share,
                        "value": found[len(found) // 2] / _US,
                        "low": found[0] / _US,
                        "high": found[-1] / _US,
                    }
                )
    if not rows:
        return None
    domain = _in_order(row["series"] for row in rows)
    colours = _scale(domain, [_COLOURS[i % len(_COLOURS)] for i in range(len(domain))])
    legend = alt.Legend(orient="top", symbolType="stroke", symbolSize=400)
    y = alt.Y(
        "slower:Q",
        title="share of replies that took longer",
        scale=alt.Scale(type="log", domain=[min(row["slower"] for row in rows), 1], nice=False),
        axis=alt.Axis(values=[1, 0.5, 0.1, 0.01, 0.001, 0.0001], format="~p"),
    )
    columns = len(_in_order(row["environment"] for row in rows))
    base = alt.Chart(_ROWS)
    layers = alt.layer(
        base.mark_area(opacity=0.2, orient="horizontal").encode(
            x=alt.X("low:Q"),
            x2="high:Q",
            y=y,
            fill=alt.Fill("series:N", scale=colours, legend=None),
        ),
        base.mark_line(strokeWidth=1.8).encode(
            x=_time_axis("value", "response time (log scale)"),
            y=y,
            stroke=alt.Stroke("series:N", title=None, scale=colours, legend=legend),
            strokeDash=_dashes(domain, legend),
            order=alt.Order("slower:Q"),
            tooltip=_tips("environment", "series", "slower", "value", "low", "high"),
        ),
    ).properties(width=max(150, (_WIDTH + 60) // columns - 20), height=230)
    return _figure(
        "distributions",
        "Distribution of the response times",
        "Each line is the median over sessions of the session's quantile; the band reaches from the"
        " lowest to the highest session. At 1 % lies p99. A tail is drawn as far as every session"
        " has the samples for it. Both axes are logarithmic; each column has its own time axis.",
        _grid(layers, rows).resolve_scale(x="independent", fill="independent"),
        rows,
        "Share of replies slower than a time, for every cell.",
    )


def _by_block(analysis: Analysis, names: Names) -> Figure | None:
    statistic = analysis.experiment.statistic
    rows: Rows = []
    for view in analysis.cells:
        place = names.place(view.cell)
        for block, session in view.sessions.items():
            value = session.value(statistic)
            if value is None or view.cell.replica > 1:
                continue
            percentile = (
                session.summary.percentile(float(statistic[1:])) if statistic[0] == "p" else None
            )
            low, high = (percentile.low, percentile.high) if percentile else (None, None)
            rows.append(
                {
                    "environment": place.environment,
                    "series": place.series,
                    "panel": place.panel,
                    "block": block + 1,
                    "value": value / _US,
                    "low": (low or value) / _US,
                    "high": (high or value) / _US,
                }
            )
    if not rows:
        return None
    colour, shape = _colours("series", _in_order(row["series"] for row in rows))
    columns = len(_in_order(row["environment"] for row in rows))
    x = alt.X(
        "block:Q",
        title="block",
        scale=alt.Scale(zero=False, nice=False, padding=8),
        axis=alt.Axis(tickMinStep=1, format="d"),
    )
    y = alt.Y(
        "value:Q",
        title=f"{statistic} of the session",
        scale=alt.Scale(type="log", nice=False, padding=8),
        axis=alt.Axis(labelExpr=_TIME_LABELS, values=_TICKS, labelOverlap="greedy"),
    )
    base = alt.Chart(_ROWS)
    layers = alt.layer(
        base.mark_rule(opacity=0.6).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_line(opacity=0.35, strokeWidth=1).encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=26, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip=_tips("environment", "series", "block", "value", "low", "high"),
        ),
    ).properties(width=max(150, (_WIDTH + 60) // columns - 20), height=200)
    return _figure(
        "sessions",
        "Every session, in the order of the blocks",
        "Each point is one session with its own 95 % interval (order statistics). A step or a slope"
        " that all cells share is the machine's; pairing within blocks takes it out of the ratios.",
        _grid(layers, rows),
        rows,
        "Session medians over blocks, for every cell.",
    )


def _deadlines(analysis: Analysis, names: Names) -> Figure | None:
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
    colour, shape = _colours("statistic", ["p50", "p99"])
    y = alt.Y("row:N", title=None, sort=None)
    columns = len(_in_order(row["deadline"] for row in rows))
    x = alt.X(
        "share:Q",
        title="share of the deadline (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(format="~p", values=_DECADES),
    )
    base = alt.Chart(_ROWS)
    layers = alt.layer(
        base.mark_rule(color="#D55E00", strokeDash=[3, 3]).encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            x=x,
            y=y,
            color=colour,
            shape=shape,
            tooltip=_tips("row", "statistic", "share", "low", "high"),
        ),
    ).properties(width=(_WIDTH - 90) // columns, height=alt.Step(16))
    order = _in_order(row["deadline"] for row in rows)
    chart = layers.facet(
        column=alt.Column("deadline:N", title=None, sort=order, header=_HEADER), spacing=16
    )
    return _figure(
        "deadlines",
        "What is left of a deadline",
        "Median and 99th percentile over the deadline, geometric means over sessions with 95 %"
        " intervals. The dashed line is the deadline itself: right of it, it is missed.",
        chart,
        rows,
        "Share of each deadline that the median and the 99th percentile take.",
    )


def _budgets(analysis: Analysis, names: Names) -> Figure | None:
    rows: Rows = []
    for budget in analysis.budgets:
        place, start = names.place(budget.cell), 0.0
        for part in budget.split.parts:
            if part.time.estimate is None:
                continue
            end = start + part.time.estimate / _US
            row = {"panel": place.full, "part": part.name, "start": start, "end": end}
            if part.time.low is not None and part.time.high is not None:
                row |= {"low": start + part.time.low / _US, "high": start + part.time.high / _US}
            kind = "time" if part.name == "floor" else "difference"
            row["text"] = str(interval_text(part.time, kind, like=budget.split.total.estimate))
            rows.append(row)
            start = end
        total = budget.split.total
        row = {"panel": place.full, "part": "total", "start": 0.0, "end": start}
        if total.low is not None and total.high is not None:
            row |= {"low": total.low / _US, "high": total.high / _US}
        row["text"] = str(interval_text(total, "time"))
        rows.append(row)
    if not rows:
        return None
    y = alt.Y("part:N", title=None, sort=list(_PARTS))
    x = alt.X(
        "start:Q",
        title="mean response",
        axis=alt.Axis(labelExpr=_TIME_LABELS, tickCount=5),
    )
    base = alt.Chart(_ROWS)
    layers = alt.layer(
        base.mark_bar(height=13).encode(
            x=x,
            x2="end:Q",
            y=y,
            color=alt.Color(
                "part:N", scale=_scale(list(_PARTS), list(_PARTS.values())), legend=None
            ),
            tooltip=_tips("panel", "part", "text"),
        ),
        base.mark_rule(strokeWidth=1.6, color="#111111").encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.mark_tick(thickness=1.6, size=8, color="#111111").encode(x=alt.X("low:Q"), y=y),
        base.mark_tick(thickness=1.6, size=8, color="#111111").encode(x=alt.X("high:Q"), y=y),
        base.mark_text(align="left", dx=6, fontSize=10.5, color="#222222").encode(
            x=alt.value(_WIDTH // 2 - 90), y=y, text="text:N"
        ),
    ).properties(width=_WIDTH // 2 - 90, height=alt.Step(18))
    panels = _in_order(row["panel"] for row in rows)
    chart = layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=_HEADER),
        columns=1 if len(panels) == 1 else 2,
        spacing={"row": 14, "column": 150},
    ).resolve_scale(x="independent")
    return _figure(
        "budget",
        "Where a response goes, layer by layer",
        "Bars start where the one above ends; together they make the total. Black lines are 95 %"
        " intervals of each part. Floor: the plain transport on the host. Virtualisation: what the"
        " environment adds to the floor. Middleware: what the stack adds on the host. Interaction:"
        " what the two add beyond their sum; it reaches left where together they cost less. Means,"
        " since means add and medians do not.",
        chart,
        rows,
        "Mean response split into floor, virtualisation, middleware and their interaction.",
    )


_HEADER = alt.Header(labelFontWeight="bold", labelAnchor="start", labelFontSize=12)
_LINES = {
    "client on CPU": "#0072B2",
    "server on CPU": "#E69F00",
    "vmm on CPU": "#CC79A7",
    "vcpu on CPU": "#009E73",
    "kernel on CPU": "#999999",
    WAITED: "#D55E00",
}


def _accounts(analysis: Analysis, names: Names) -> Figure | None:
    rows: Rows = []
    for account in analysis.accounts:
        if account.closing is None or not account.closes:
            continue
        place, end = names.place(account.cell).full, 0.0
        for line in account.closing.lines:
            share = line.share.estimate or 0.0
            rows.append({"row": place, "part": line.name, "start": end, "end": end + share})
            end += share
        closure = account.closing.closure
        if closure.low is not None:
            text = str(interval_text(closure, "share"))
            rows.append({"row": place, "low": closure.low, "high": closure.high, "text": text})
    if not rows:
        return None
    used = [name for name in _LINES if any(row.get("part") == name for row in rows)]
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X("start:Q", title="share of the mean response", axis=alt.Axis(format="%"))
    base = alt.Chart(_ROWS)
    chart = alt.layer(
        base.transform_filter("isValid(datum.part)")
        .mark_bar(height=12)
        .encode(
            x=x,
            x2="end:Q",
            y=y,
            color=alt.Color(
                "part:N",
                title=None,
                scale=_scale(used, [_LINES[name] for name in used]),
                legend=alt.Legend(orient="top", symbolType="square"),
            ),
            tooltip=_tips("row", "part", "start", "end"),
        ),
        base.mark_rule(color="#111111", strokeDash=[3, 3]).encode(x=alt.datum(1)),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.8, color="#111111")
        .encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.transform_filter("isValid(datum.text)")
        .mark_text(align="left", dx=6, fontSize=10.5, color="#222222")
        .encode(x=alt.value(_WIDTH - 130), y=y, text="text:N"),
    ).properties(width=_WIDTH - 130, height=alt.Step(18))
    return _figure(
        "account",
        "Does the account close?",
        "On-CPU time of every thread involved for each request, and what they waited while other"
        " programs ran, over the mean response. The black line at a bar's end is the 95 % interval"
        " of their sum; at the dashed line the account closes. Kernel threads serve the whole"
        " machine: theirs is an upper bound.",
        chart,
        rows,
        "Shares of the mean response that each class of threads accounts for.",
    )


def _paper(analysis: Analysis, names: Names) -> Figure | None:
    rows: Rows = []
    for beside in analysis.beside:
        figure = beside.figure
        if figure.unit != "%":
            continue
        low, high = (figure.value or end for end in (figure.low, figure.high))
        common = {"figure": figure.measured, "row": "the paper", "who": "the paper"}
        if low is not None and high is not None:
            rows.append(common | {"value": (low * high) ** 0.5, "low": low, "high": high})
        else:
            rows.append(common | {"value": low or high})
        rows += [
            {
                "figure": figure.measured,
                "row": names.place(ours.cell).full,
                "who": "this run",
                "value": ours.estimate,
                "low": ours.low or ours.estimate,
                "high": ours.high or ours.estimate,
            }
            for ours in beside.ours
            if min(ours.estimate, ours.low or ours.estimate) > 0  # the axis is logarithmic
        ]
    if not rows:
        return None
    colour, shape = _colours("who", ["this run", "the paper"])
    y = alt.Y("row:N", title=None, sort=_in_order(row["row"] for row in rows))
    x = alt.X(
        "value:Q",
        title="% (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(format="~g", values=_DECADES),
    )
    base = alt.Chart(_ROWS)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2.2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=45, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=_tips("row", "who", "value", "low", "high")
        ),
    ).properties(width=_WIDTH - 150, height=alt.Step(17))
    chart = layers.facet(row=_panel_row("figure", rows), spacing=6).resolve_scale(y="independent")
    return _figure(
        "paper",
        "The paper's shares, and this run's",
        "Squares are the paper's figures (a line where it gives a range, a point where it gives one"
        " number or a bound), circles this run's with 95 % intervals. Values at or below zero"
        " cannot be drawn on this axis; the table has them.",
        chart,
        rows,
        "Published percentages beside this run's; the numbers stand in the table.",
    )


def _grid(layers: Any, rows: Rows) -> Any:
    environments = _in_order(row["environment"] for row in rows)
    panels = _in_order(row["panel"] for row in rows)
    column = alt.Column("environment:N", title=None, sort=environments, header=_HEADER)
    if len(panels) < 2:
        return layers.facet(column=column, spacing=14)
    return layers.facet(column=column, row=_panel_row("panel", rows), spacing=14)


def _panel_row(name: str, rows: Rows) -> alt.Row:
    return alt.Row(
        f"{name}:N",
        title=None,
        sort=_in_order(row[name] for row in rows),
        header=alt.Header(
            labelFontWeight="bold",
            labelAngle=0,
            labelAlign="left",
            labelOrient="top",
            labelAnchor="start",
            labelFontSize=12,
        ),
    )


def _time_axis(name: str, title: str) -> alt.X:
    return alt.X(
        f"{name}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(labelExpr=_TIME_LABELS, values=_TICKS, labelOverlap="greedy"),
    )


def _colours(name: str, domain: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    """A colour and a shape for each, with one common legend."""
    repeated = [_COLOURS[i % len(_COLOURS)] for i in range(len(domain))]
    shapes = [_SHAPES[i % len(_SHAPES)] for i in range(len(domain))]
    legend = alt.Legend(orient="top", columns=4) if len(domain) > 1 else None
    return (
        alt.Color(f"{name}:N", title=None, scale=_scale(domain, repeated), legend=legend),
        alt.Shape(f"{name}:N", title=None, scale=_scale(domain, shapes), legend=legend),
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


def _scale(domain: Sequence[str], values: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(domain), range=list(values))


def _tips(*names: str) -> list[alt.Tooltip]:
    texts = {"row", "text", "absolute", "verdict", "environment", "series", "panel", "part"}
    texts |= {"statistic", "who"}
    return [
        alt.Tooltip(f"{name}:N") if name in texts else alt.Tooltip(f"{name}:Q", format=".4~r")
        for name in names
    ]


def _in_order(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _figure(
    figure_id: str, title: str, caption: str, chart: Any, rows: Rows, alternative: str
) -> Figure:
    """Compile and draw. The rows enter after altair, which refuses more than it thinks wise."""
    chart = chart.configure(
        font=_FONT,
        background="white",
        view=alt.ViewConfig(stroke="#dddddd"),
        axis=alt.AxisConfig(
            gridColor="#eeeeee",
            domainColor="#888888",
            tickColor="#888888",
            labelColor="#333333",
            titleColor="#333333",
            titleFontWeight="normal",
            labelLimit=320,
            labelFontSize=11,
            titleFontSize=11,
        ),
        legend=alt.LegendConfig(
            labelFontSize=12, labelLimit=320, symbolOpacity=1, symbolStrokeWidth=2
        ),
    )
    spec = chart.to_dict(validate=False)
    spec["datasets"] = {"rows": rows}
    vega = vl_convert.vegalite_to_vega(json.dumps(spec))
    del vega["$schema"]  # an address, and the page names none
    svg = vl_convert.vega_to_svg(vega)
    return Figure(
        figure_id, title, caption, alternative, svg, vega if len(rows) <= _MOST_ROWS else None
    )
