"""What all figures share: colours and shapes, axes, facets, and how one is drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import vl_convert

from tare.report.numbers import TIME_UNITS
from tare.workloads import Unit

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


US = TIME_UNITS[1][1]


WIDTH = 720


_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


TIME_LABELS = (
    "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' s' : datum.value >= 1000 ?"
    " format(datum.value / 1000, '~g') + ' ms' : format(datum.value, '~g') + ' µs'"
)


_TICKS = [digit * 10.0**power for power in range(-5, 9) for digit in (1, 2, 5)]


_WIDE_TICKS = [digit * 10.0**power for power in range(-3, 14) for digit in (1, 2, 5)]


DECADES = [10.0**power for power in range(-7, 9)]


_MOST_ROWS = 5000
"""A figure of more rows is drawn, but not made interactive: it would weigh too much."""


Rows = list[dict[str, Any]]


ROWS = alt.NamedData(name="rows")


HEADER = alt.Header(labelFontWeight="bold", labelAnchor="start", labelFontSize=12)


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


def compose(
    figure_id: str, title: str, caption: str, chart: Any, rows: Rows, alternative: str
) -> Figure:
    """Compile and draw. The rows enter after altair, which refuses more than it thinks wise."""
    chart = chart.configure(
        aria=False,  # the whole drawing has a name; its marks stand in the table as numbers
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
            labelLimit=420,
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
    svg = _lean(vl_convert.vega_to_svg(vega))
    return Figure(
        figure_id, title, caption, alternative, svg, vega if len(rows) <= _MOST_ROWS else None
    )


def grid(layers: Any, rows: Rows) -> Any:
    """Facet by environment in columns and, where other levels vary, by those in rows."""
    environments = in_order(row["environment"] for row in rows)
    panels = in_order(row["panel"] for row in rows)
    column = alt.Column("environment:N", title=None, sort=environments, header=HEADER)
    if len(panels) < 2:
        return layers.facet(column=column, spacing=14)
    return layers.facet(column=column, row=panel_row("panel", rows), spacing=14)


def panel_row(name: str, rows: Rows) -> alt.Row:
    """Rows of panels with their headings above them, in the order of the data."""
    return alt.Row(
        f"{name}:N",
        title=None,
        sort=in_order(row[name] for row in rows),
        header=alt.Header(
            labelFontWeight="bold",
            labelAngle=0,
            labelAlign="left",
            labelOrient="top",
            labelAnchor="start",
            labelFontSize=12,
        ),
    )


def time_axis(name: str, title: str, rows: Rows) -> alt.X:
    """A logarithmic axis of times in microseconds."""
    return alt.X(
        f"{name}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(labelExpr=TIME_LABELS, labelOverlap="greedy", **ticks(rows, name)),
    )


def quantity_axis(name: str, title: str, unit: Unit, rows: Rows) -> alt.X:
    """A logarithmic axis of whatever a statistic is of; the rows hold it over `drawn_in(unit)`."""
    return alt.X(
        f"{name}:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False, padding=10),
        axis=alt.Axis(labelExpr=labels(unit), labelOverlap="greedy", **ticks(rows, name, unit)),
    )


def drawn_in(unit: Unit) -> float:
    """What a value is divided by before it is drawn: times are drawn in microseconds."""
    return US if unit == "ns" else 1.0


def labels(unit: Unit) -> str:
    """How the ticks of an axis are written."""
    if unit == "ns":
        return TIME_LABELS
    # d3 writes 1e9 as 1G; what is no quantity of anything has no name behind it.
    if unit == "1":
        return "format(datum.value, '~g')"
    return f"format(datum.value, '~s') + '{'/s' if unit == '1/s' else ' ' + unit}'"


def ticks(rows: Rows, name: str, unit: Unit = "ns") -> dict[str, Any]:
    """Where a logarithmic axis is marked: 1, 2, 5, 10, ...; finer where it spans little."""
    ends = [row[key] for row in rows for key in (name, "low", "high") if row.get(key)]
    if max(ends) / min(ends) < _LITTLE:
        return {"tickCount": 6}
    return {"values": _TICKS if unit == "ns" else _WIDE_TICKS}


_LITTLE = 4.0


def colours_and_shapes(name: str, domain: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    """A colour and a shape for each, with one common legend."""
    repeated = [COLOURS[i % len(COLOURS)] for i in range(len(domain))]
    shapes = [SHAPES[i % len(SHAPES)] for i in range(len(domain))]
    legend = alt.Legend(orient="top", columns=4) if len(domain) > 1 else None
    return (
        alt.Color(f"{name}:N", title=None, scale=scale(domain, repeated), legend=legend),
        alt.Shape(f"{name}:N", title=None, scale=scale(domain, shapes), legend=legend),
    )


def scale(domain: Sequence[str], values: Sequence[str]) -> alt.Scale:
    """Give each member of a domain its value."""
    return alt.Scale(domain=list(domain), range=list(values))


def tips(*names: str) -> list[alt.Tooltip]:
    """What is told when the pointer rests on a mark."""
    texts = {"row", "text", "absolute", "verdict", "environment", "series", "panel", "part"}
    texts |= {"statistic", "who"}
    return [
        alt.Tooltip(f"{name}:N") if name in texts else alt.Tooltip(f"{name}:Q", format=".4~r")
        for name in names
    ]


def in_order(values: Iterable[str]) -> list[str]:
    """Each value once, in the order of first appearance."""
    return list(dict.fromkeys(values))


def _lean(svg: str) -> str:
    """Round coordinates to a hundredth of a pixel: they are half of a drawing's size."""
    return _COORDINATES.sub(lambda found: _LONG_TAIL.sub(r"\1", found[0]), svg)


_COORDINATES = re.compile(r'\b(?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
_LONG_TAIL = re.compile(r"(\.\d\d)\d+(?![\de])")
