"""Migrations: where the time goes (paper D, Fig. 4), and what the others noticed (Fig. 8)."""

from __future__ import annotations

import altair as alt

from tare.analysis import Analysis
from tare.analysis.cells import CellView
from tare.analysis.migrations import parts, throughputs
from tare.record import Trial
from tare.report.figures.chart import (
    HEADER,
    ROWS,
    TIME_LABELS,
    US,
    WIDTH,
    Figure,
    Rows,
    colours_and_shapes,
    compose,
    in_order,
    scale,
    tips,
)
from tare.report.wording import Names

__all__ = ["split", "throughput"]

_PARTS = {
    "setup": ("before the first page", "#999999"),
    "first_pass": ("first iteration", "#0072B2"),
    "further_passes": ("further iterations", "#E69F00"),
    "rest": ("standing still", "#D55E00"),
}
_GUESTS = {"stays": "stays at the source", "peer": "at the destination", "migrates": "migrates"}


def split(analysis: Analysis, names: Names) -> Figure | None:
    """The parts of each arm's migration time, as means over its sessions."""
    rows: Rows = []
    for view in _migrations(analysis):
        end = 0.0
        for part, mean_ns in parts(_measured(analysis, view), tuple(_PARTS)).items():
            start = end
            end += mean_ns / US
            place, called = names.place(view.cell).full, _PARTS[part][0]
            rows.append({"row": place, "part": called, "start": start, "end": end})
    if not rows:
        return None
    domain = [name for name, _ in _PARTS.values()]
    colours = [colour for _, colour in _PARTS.values()]
    chart = (
        alt.Chart(ROWS)
        .mark_bar(height=14)
        .encode(
            x=alt.X(
                "start:Q", title="migration time", axis=alt.Axis(labelExpr=TIME_LABELS, tickCount=6)
            ),
            x2="end:Q",
            y=alt.Y("row:N", title=None, sort=in_order(row["row"] for row in rows)),
            color=alt.Color(
                "part:N",
                title=None,
                scale=scale(domain, colours),
                legend=alt.Legend(orient="top", columns=4),
            ),
            tooltip=tips("row", "part", "start", "end"),
        )
        .properties(width=WIDTH - 150, height=alt.Step(20))
    )
    return compose(
        "split",
        "Where the time of a migration goes",
        "Means over sessions; together the parts make the whole, from the order to migrate until"
        " the guest runs at the destination. Hashing is part of the iterations: it goes on while"
        " pages are sent. The intervals of each part stand in the table.",
        chart,
        rows,
        "Migration time of each arm, split into its phases.",
    )


def throughput(analysis: Analysis, names: Names) -> Figure | None:
    """Answers a second of all three guests around the migration, as means over sessions."""
    rows: Rows = []
    for view in _migrations(analysis):
        panel = names.place(view.cell).full
        rows += [
            {"panel": panel, "guest": _GUESTS.get(guest, guest), "time": when, "rate": rate}
            for (guest, when), rate in throughputs(_measured(analysis, view)).items()
        ]
    if not rows:
        return None
    called = [name for name in _GUESTS.values() if any(row["guest"] == name for row in rows)]
    colour, _ = colours_and_shapes("guest", called)
    dashes = alt.StrokeDash(
        "guest:N", title=None, scale=alt.Scale(domain=called, range=[[1, 0], [6, 2], [2, 2]])
    )
    base = alt.Chart(ROWS)
    layers = alt.layer(
        base.mark_line(interpolate="step-after", strokeWidth=1.6).encode(
            x=alt.X("time:Q", title="seconds from the order to migrate"),
            y=alt.Y("rate:Q", title="answers/s"),
            color=colour,
            strokeDash=dashes,
            tooltip=tips("panel", "guest", "time", "rate"),
        ),
        base.mark_rule(strokeDash=[3, 3], color="#888888").encode(x=alt.datum(0)),
    ).properties(width=WIDTH // 2 - 60, height=110)
    panels = in_order(row["panel"] for row in rows)
    chart = layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
        columns=2,
        spacing=14,
    )
    return compose(
        "throughput",
        "What the guests' load was answered meanwhile",
        "All three guests are asked at the same fixed rate, whatever they answer. Means over"
        " sessions; the dashed line is the order to migrate. A guest that is disturbed falls below"
        " the rate, and answers what has waited afterwards.",
        chart,
        rows,
        "Answers a second of the guests over time, around the migration.",
    )


def _migrations(analysis: Analysis) -> list[CellView]:
    return [v for v in analysis.cells if v.cell.replica == 1 and "arm" in v.cell.levels]


def _measured(analysis: Analysis, view: CellView) -> list[Trial]:
    return [t for t in analysis.trials if t.cell == view.cell.id and t.status == "ok"]
