"""Ratios: every comparison, and the paper beside this run."""

from __future__ import annotations

from typing import Any

import altair as alt

from tare.analysis import Analysis
from tare.report.figures.chart import (
    DECADES,
    ROWS,
    WIDTH,
    Figure,
    Rows,
    colours_and_shapes,
    compose,
    in_order,
    panel_row,
    scale,
    ticks,
    tips,
)
from tare.report.wording import Names, absolute, equal, ratio_text

_MARKS = {
    "slower": ("#D55E00", "triangle-right"),
    "more": ("#D55E00", "triangle-right"),
    "faster": ("#009E73", "triangle-left"),
    "less": ("#009E73", "triangle-left"),
    "equivalent": ("#0072B2", "circle"),
    "inconclusive": ("#777777", "cross"),
    "below instrument": ("#777777", "cross"),
    "descriptive": ("#333333", "diamond"),
}
"""Verdict -> colour and shape."""


def effects(analysis: Analysis, names: Names, figure_id: str = "effects") -> Figure | None:
    """Ratios of every comparison, A/A pairs last."""
    margin, unit = analysis.experiment.margin_share, analysis.statistic.unit
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
                "absolute": absolute(question, unit),
            }
        )
    if not rows:
        return None
    present = [v for v in _MARKS if any(row["verdict"] == v for row in rows)]
    colour = alt.Color(
        "verdict:N",
        title=None,
        scale=scale(present, [_MARKS[v][0] for v in present]),
        legend=alt.Legend(orient="top"),
    )
    shape = alt.Shape(
        "verdict:N", title=None, scale=scale(present, [_MARKS[v][1] for v in present])
    )
    y = alt.Y("row:N", title=None, sort=None)
    x = alt.X(
        "ratio:Q",
        title=f"times {equal(unit)} as the baseline (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(format="~g", **ticks(rows, "ratio")),
    )
    base = alt.Chart(ROWS)
    band = (
        base.transform_aggregate(rows="count()")  # one band a panel, not one a row
        .transform_calculate(a=str(1 / (1 + margin)), b=str(1 + margin))
        .mark_rect(color="#0072B2", opacity=0.15)
        .encode(x=alt.X("a:Q"), x2="b:Q")
    )
    layers = alt.layer(
        band,
        base.transform_aggregate(rows="count()")
        .mark_rule(color="#555555", strokeDash=[3, 3])
        .encode(x=alt.datum(1)),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips("row", "text", "absolute", "verdict")
        ),
        base.mark_text(align="left", dx=8, fontSize=11, color="#222222").encode(
            x=alt.value(WIDTH - 170), y=y, text="text:N"
        ),
    ).properties(width=WIDTH - 170, height=alt.Step(24))
    chart = layers.facet(row=panel_row("group", rows), spacing=8).resolve_scale(y="independent")
    return compose(
        figure_id,
        f"How many times {equal(unit)}, with 95 % intervals",
        "Points are geometric means over blocks of the ratio within a block; lines are 95 %"
        f" intervals; the band is the declared margin of ±{100 * margin:g} %. The A/A rows compare"
        " a cell with itself: how far they stray from 1 is what this machine's noise alone does.",
        chart,
        rows,
        f"Ratios to the baseline of {len(rows)} comparisons; the numbers stand in the table below.",
    )


def _verdict(question: Any) -> str:
    return str(question.judgement.verdict) if question.judgement else "descriptive"


def paper(analysis: Analysis, names: Names) -> Figure | None:
    """Published percentages with this run's beside them."""
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
    colour, shape = colours_and_shapes("who", ["this run", "the paper"])
    y = alt.Y("row:N", title=None, sort=in_order(row["row"] for row in rows))
    x = alt.X(
        "value:Q",
        title="% (log scale)",
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(format="~g", values=DECADES),
    )
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_rule(strokeWidth=2.2).encode(x=alt.X("low:Q"), x2="high:Q", y=y, color=colour),
        base.mark_point(filled=True, size=45, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips("row", "who", "value", "low", "high")
        ),
    ).properties(width=WIDTH - 150, height=alt.Step(17))
    chart = layers.facet(row=panel_row("figure", rows), spacing=6).resolve_scale(y="independent")
    return compose(
        "paper",
        "The paper's shares, and this run's",
        "Squares are the paper's figures (a line where it gives a range, a point where it gives one"
        " number or a bound), circles this run's with 95 % intervals. Values at or below zero"
        " cannot be drawn on this axis; the table has them.",
        chart,
        rows,
        "Published percentages beside this run's; the numbers stand in the table.",
    )
