"""Where the time goes: by contrast, by who was on a processor, by operation."""

from __future__ import annotations

import altair as alt

from tare.analysis import Analysis
from tare.analysis.accounts import WAITED
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


def budgets(analysis: Analysis, names: Names) -> Figure | None:
    """Each response as a staircase of its parts by contrast."""
    rows: Rows = []
    for budget in analysis.budgets:
        place, start = names.place(budget.cell), 0.0
        for part in budget.split.parts:
            if part.time.estimate is None:
                continue
            end = start + part.time.estimate / US
            row = {"panel": place.full, "part": part.name, "start": start, "end": end}
            if part.time.low is not None and part.time.high is not None:
                row |= {"low": start + part.time.low / US, "high": start + part.time.high / US}
            kind = "time" if part.name == "floor" else "difference"
            row["text"] = str(interval_text(part.time, kind, like=budget.split.total.estimate))
            rows.append(row)
            start = end
        total = budget.split.total
        row = {"panel": place.full, "part": "total", "start": 0.0, "end": start}
        if total.low is not None and total.high is not None:
            row |= {"low": total.low / US, "high": total.high / US}
        row["text"] = str(interval_text(total, "time"))
        rows.append(row)
    if not rows:
        return None
    y = alt.Y("part:N", title=None, sort=list(_PARTS))
    x = alt.X(
        "start:Q",
        title="mean response",
        axis=alt.Axis(labelExpr=TIME_LABELS, tickCount=5),
    )
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
        base.mark_rule(strokeWidth=1.6, color="#111111").encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.mark_tick(thickness=1.6, size=8, color="#111111").encode(x=alt.X("low:Q"), y=y),
        base.mark_tick(thickness=1.6, size=8, color="#111111").encode(x=alt.X("high:Q"), y=y),
        base.mark_text(align="left", dx=6, fontSize=10.5, color="#222222").encode(
            x=alt.value(WIDTH // 2 - 90), y=y, text="text:N"
        ),
    ).properties(width=WIDTH // 2 - 90, height=alt.Step(18))
    panels = in_order(row["panel"] for row in rows)
    chart = layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
        columns=1 if len(panels) == 1 else 2,
        spacing={"row": 14, "column": 150},
    ).resolve_scale(x="independent")
    return compose(
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


def accounts(analysis: Analysis, names: Names) -> Figure | None:
    """Who was on a processor during a response, as shares of its mean."""
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
        base.transform_aggregate(rows="count()")
        .mark_rule(color="#111111", strokeDash=[3, 3])
        .encode(x=alt.datum(1)),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.8, color="#111111")
        .encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.transform_filter("isValid(datum.text)")
        .mark_text(align="left", dx=6, fontSize=10.5, color="#222222")
        .encode(x=alt.value(WIDTH - 130), y=y, text="text:N"),
    ).properties(width=WIDTH - 130, height=alt.Step(18))
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


def causes(analysis: Analysis, names: Names) -> Figure | None:
    """What each operation explains of a response."""
    rows: Rows = []
    for found in analysis.causes:
        response = found.explanation.response_ns.estimate
        place = names.place(found.cell).full
        if not response:
            continue
        for line in found.explanation.lines:
            low, high = line.time.low, line.time.high
            rows.append(
                {
                    "panel": place,
                    "row": line.name,
                    "kind": "operation",
                    "value": line.share,
                    "low": (low if low is not None else line.time.estimate or 0.0) / response,
                    "high": (high if high is not None else line.time.estimate or 0.0) / response,
                }
            )
        share = found.explanation.share
        rows.append(
            {
                "panel": place,
                "row": "all together",
                "kind": "together",
                "value": share.estimate,
                "low": share.low if share.low is not None else share.estimate,
                "high": share.high if share.high is not None else share.estimate,
                "text": str(interval_text(share, "share")),
            }
        )
    if not rows:
        return None
    colour = alt.Color(
        "kind:N", scale=scale(["operation", "together"], ["#56B4E9", "#333333"]), legend=None
    )
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X("value:Q", title="share of the mean response", axis=alt.Axis(format="%"))
    width = WIDTH // 2 - 110
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_bar(height=11).encode(
            x=x, y=y, color=colour, tooltip=tips("panel", "row", "value", "low", "high")
        ),
        base.mark_rule(strokeWidth=1.6, color="#111111").encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.transform_aggregate(rows="count()")
        .mark_rule(color="#111111", strokeDash=[3, 3])
        .encode(x=alt.datum(1)),
        base.transform_filter("isValid(datum.text)")
        .mark_text(align="left", dx=6, fontSize=10.5, color="#222222")
        .encode(x=alt.value(width), y=y, text="text:N"),
    ).properties(width=width, height=alt.Step(15))
    panels = in_order(row["panel"] for row in rows)
    chart = layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
        columns=1 if len(panels) == 1 else 2,
        spacing={"row": 14, "column": 110},
    ).resolve_scale(y="independent")
    return compose(
        "causes",
        "What operations explain",
        "Unit cost times count of each operation, over the mean response; lines are 95 %"
        " intervals. What is missing up to the dashed line is not explained; beyond it, operations"
        " overlap.",
        chart,
        rows,
        "Shares of the mean response that operations explain; the numbers stand in the table.",
    )
