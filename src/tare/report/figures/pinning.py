"""Heat maps of pinnings (paper B, Fig. 4): host's processors against the guest's."""

from __future__ import annotations

import re

import altair as alt

from tare.analysis import Analysis
from tare.report import numbers
from tare.report.figures.chart import HEADER, ROWS, Figure, Rows, compose, in_order, tips
from tare.report.wording import Names

__all__ = ["pinnings"]

_PINNING = re.compile(r"host=(?P<host>\S+) guest=(?P<guest>\S+)")
_ORDER = ("first", "second", "all")
_FEWEST = 3
"""Fewer pinnings than this make no map."""
_SIDE = 84
_COLUMNS = 3


def pinnings(analysis: Analysis, names: Names) -> Figure | None:
    """Every statistic over the pinnings of host and guest; the split's evenness among them."""
    rows: Rows = []
    for view in analysis.cells:
        placement = _PINNING.fullmatch(view.cell.levels.get("placement", ""))
        if placement is None or view.cell.replica > 1:
            continue
        rest = [
            names.level(factor, level)
            for factor, level in view.cell.levels.items()
            if factor != "placement" and factor not in names.constant
        ]
        for name, statistic in analysis.statistics.items():
            estimate = view.estimates.get(name)
            if estimate is None or not estimate.value:
                continue
            value = numbers.quantity(statistic.unit, estimate.value, estimate.low, estimate.high)
            rows.append(
                {
                    "panel": ", ".join([*rest, name]),
                    "host": placement["host"],
                    "guest": placement["guest"],
                    "value": estimate.value,
                    "number": f"{value.number} {value.unit}".strip(),
                    "interval": value.interval,
                    "text": str(value),
                }
            )
    if len({(row["host"], row["guest"]) for row in rows}) < _FEWEST:
        return None
    most = {panel: max(r["value"] for r in rows if r["panel"] == panel) for panel in
            {row["panel"] for row in rows}}  # fmt: skip
    for row in rows:
        row["part"] = row["value"] / most[row["panel"]]
    found = in_order(pinning for row in rows for pinning in (row["host"], row["guest"]))
    order = [p for p in _ORDER if p in found] + [p for p in found if p not in _ORDER]
    base = alt.Chart(ROWS).encode(
        x=alt.X(
            "guest:N",
            title="guest's processors",
            sort=order,
            axis=alt.Axis(labelAngle=0),
        ),
        y=alt.Y("host:N", title="host's processors", sort=order),
    )
    pale = alt.condition("datum.part > 0.6", alt.value("white"), alt.value("#111111"))
    layers = alt.layer(
        base.mark_rect(stroke="white", strokeWidth=2).encode(
            color=alt.Color(
                "part:Q",
                title="share of the largest in its map",
                scale=alt.Scale(domain=[0, 1], scheme="cividis", reverse=True),
                legend=alt.Legend(orient="bottom", format="%", gradientLength=220, titleLimit=300),
            ),
            tooltip=tips("panel", "text"),
        ),
        base.mark_text(fontSize=11, dy=-5).encode(text="number:N", color=pale),
        base.mark_text(fontSize=8.5, dy=8).encode(text="interval:N", color=pale),
    ).properties(width=_SIDE * len(order), height=44 * len(order))
    panels = in_order(row["panel"] for row in rows)
    chart = layers.facet(
        facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
        columns=min(_COLUMNS, len(panels)),
        spacing={"row": 18, "column": 24},
    )
    return compose(
        "pinnings",
        "What pinning does",
        "Each map is one statistic of one setting; rows are the processors that the host's side may"
        " use, columns the guest's. Numbers are geometric means over sessions with their 95 %"
        " intervals; darker is larger within its map. `jain` is Jain's index of the split between"
        " the two: 1 where both have the same, 0.5 where one has all.",
        chart,
        rows,
        "Heat maps of every statistic over the pinnings; the numbers stand in the table.",
    )
