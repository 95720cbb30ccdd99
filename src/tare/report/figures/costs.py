"""Where the time goes: by contrast, by thread, by operation."""

from __future__ import annotations

from typing import Any

import altair as alt

from tare.analysis import Analysis
from tare.analysis.threads import WAITED
from tare.report.figures.chart import (
    HEADER,
    ROWS,
    TIME_LABELS,
    US,
    WIDTH,
    Figure,
    Rows,
    compose,
    in_order,
    scale,
    tips,
)
from tare.report.wording import Names, interval_text
from tare.stats import Interval

_PARTS = {
    "floor": "#999999",
    "virtualisation": "#0072B2",
    "middleware": "#E69F00",
    "interaction": "#CC79A7",
    "total": "#333333",
}


_LINES = {
    "client on CPU": "#0072B2",
    "server on CPU": "#E69F00",
    "vmm on CPU": "#CC79A7",
    "vcpu on CPU": "#009E73",
    "kernel on CPU": "#999999",
    WAITED: "#D55E00",
}
_INK = "#111111"


def contrasts(analysis: Analysis, names: Names) -> Figure | None:
    """Each response as a staircase of its parts by contrast."""
    rows: Rows = []
    for found in analysis.contrasts:
        place, whole, start = names.place(found.cell).full, found.shares.whole, 0.0
        for part in found.shares.parts:
            if part.amount.estimate is None:
                continue
            end = start + part.amount.estimate / US
            kind = "time" if part.name == "floor" else "difference"
            row = {"panel": place, "part": part.name, "start": start, "end": end}
            row |= _ends(part.amount, US, start)
            row["text"] = str(interval_text(part.amount, kind, whole.estimate))
            rows.append(row)
            start = end
        row = {"panel": place, "part": "total", "start": 0.0, "end": start, **_ends(whole, US)}
        rows.append(row | {"text": str(interval_text(whole, "time"))})
    if not rows:
        return None
    width = WIDTH // 2 - 90
    y = alt.Y("part:N", title=None, sort=list(_PARTS))
    x = alt.X("start:Q", title="mean response", axis=alt.Axis(labelExpr=TIME_LABELS, tickCount=5))
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_bar(height=13).encode(
            x=x,
            x2="end:Q",
            y=y,
            color=alt.Color(
                "part:N", scale=scale(list(_PARTS), list(_PARTS.values())), legend=None
            ),
            tooltip=tips("panel", "part", "text"),
        ),
        _interval(base, y),
        base.mark_tick(thickness=1.6, size=8, color=_INK).encode(x=alt.X("low:Q"), y=y),
        base.mark_tick(thickness=1.6, size=8, color=_INK).encode(x=alt.X("high:Q"), y=y),
        _text(base, y, width),
    ).properties(width=width, height=alt.Step(18))
    return compose(
        "budget",
        "Where a response goes, layer by layer",
        "Bars start where the one above ends; together they make the total. Black lines are 95 %"
        " intervals of each part. Floor: the plain transport on the host. Virtualisation: what the"
        " environment adds to the floor. Middleware: what the stack adds on the host. Interaction:"
        " what the two add beyond their sum; it reaches left where together they cost less. Means,"
        " since means add and medians do not.",
        _panels(layers, rows, 150).resolve_scale(x="independent"),
        rows,
        "Mean response split into floor, virtualisation, middleware and their interaction.",
    )


def threads(analysis: Analysis, names: Names) -> Figure | None:
    """Who was on a processor during a response, as shares of its mean."""
    rows: Rows = []
    for found in analysis.threads:
        if found.shares is None or not found.closes:
            continue
        place, end = names.place(found.cell).full, 0.0
        for part in found.shares.parts:
            start, end = end, end + (part.share.estimate or 0.0)
            rows.append({"row": place, "part": part.name, "start": start, "end": end})
        closure = found.shares.together.share
        if closure.resolved:
            text = str(interval_text(closure, "share"))
            rows.append({"row": place, **_ends(closure), "text": text})
    if not rows:
        return None
    width = WIDTH - 130
    used = [name for name in _LINES if any(row.get("part") == name for row in rows)]
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X("start:Q", title="share of the mean response", axis=alt.Axis(format="%"))
    base = alt.Chart(ROWS)
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
                scale=scale(used, [_LINES[name] for name in used]),
                legend=alt.Legend(orient="top", symbolType="square"),
            ),
            tooltip=tips("row", "part", "start", "end"),
        ),
        _whole(base),
        _interval(base.transform_filter("isValid(datum.low)"), y, 1.8),
        _text(base.transform_filter("isValid(datum.text)"), y, width),
    ).properties(width=width, height=alt.Step(18))
    return compose(
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


def operations(analysis: Analysis, names: Names) -> Figure | None:
    """What each operation explains of a response."""
    rows: Rows = []
    for found in analysis.operations:
        place, response = names.place(found.cell).full, found.shares.whole.estimate
        if not response:
            continue
        together = found.shares.together
        for part in (*found.shares.parts, together):
            kind = "together" if part is together else "operation"
            row = {"panel": place, "row": part.name, "kind": kind, "value": part.share.estimate}
            ends = _ends(together.share) if part is together else _ends(part.amount, response)
            rows.append(row | (ends or {"low": row["value"], "high": row["value"]}))
        rows[-1]["text"] = str(interval_text(together.share, "share"))
    if not rows:
        return None
    width = WIDTH // 2 - 110
    colour = alt.Color(
        "kind:N", scale=scale(["operation", "together"], ["#56B4E9", "#333333"]), legend=None
    )
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X("value:Q", title="share of the mean response", axis=alt.Axis(format="%"))
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_bar(height=11).encode(
            x=x, y=y, color=colour, tooltip=tips("panel", "row", "value", "low", "high")
        ),
        _interval(base, y),
        _whole(base),
        _text(base.transform_filter("isValid(datum.text)"), y, width),
    ).properties(width=width, height=alt.Step(15))
    return compose(
        "causes",
        "What operations explain",
        "Unit cost times count of each operation, over the mean response; lines are 95 %"
        " intervals. What is missing up to the dashed line is not explained; beyond it, operations"
        " overlap.",
        _panels(layers, rows, 110).resolve_scale(y="independent"),
        rows,
        "Shares of the mean response that operations explain; the numbers stand in the table.",
    )


def _ends(interval: Interval, divisor: float = 1.0, start: float = 0.0) -> dict[str, Any]:
    """Where an interval's line begins and ends; nothing where there is none."""
    if interval.low is None or interval.high is None:
        return {}
    return {"low": start + interval.low / divisor, "high": start + interval.high / divisor}


def _interval(base: Any, y: alt.Y, stroke: float = 1.6) -> Any:
    return base.mark_rule(strokeWidth=stroke, color=_INK).encode(x=alt.X("low:Q"), x2="high:Q", y=y)


def _whole(base: Any) -> Any:
    """A dashed line where parts make up the whole."""
    return (
        base.transform_aggregate(rows="count()")
        .mark_rule(color=_INK, strokeDash=[3, 3])
        .encode(x=alt.datum(1))
    )


def _text(base: Any, y: alt.Y, left: int) -> Any:
    """The numbers, right of the drawing."""
    return base.mark_text(align="left", dx=6, fontSize=10.5, color="#222222").encode(
        x=alt.value(left), y=y, text="text:N"
    )


def _panels(layers: Any, rows: Rows, gap: int) -> Any:
    panels = in_order(row["panel"] for row in rows)
    return layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
        columns=1 if len(panels) == 1 else 2,
        spacing={"row": 14, "column": gap},
    )
