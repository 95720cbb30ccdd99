"""How cost grows with what was varied as a number: ranks, vertices, file size, power."""

from __future__ import annotations

import altair as alt

from tare.analysis import Analysis
from tare.analysis.growth import Growth
from tare.analysis.scaling import PROCESSES, VERTICES
from tare.report.figures.chart import (
    HEADER,
    ROWS,
    WIDTH,
    Figure,
    Rows,
    colours_and_shapes,
    compose,
    drawn_in,
    in_order,
    labels,
    tips,
)
from tare.report.wording import Names
from tare.stats import Interval

__all__ = ["growth", "many_processes"]


def growth(analysis: Analysis, names: Names) -> Figure | None:
    """Levels over each factor, a line for each arm, with the exponent in words."""
    unit = analysis.statistic.unit
    scale = drawn_in(unit)
    rows: Rows = []
    for found in analysis.growths:
        panel = _panel(analysis, found, names)
        for number, cell in found.cells:
            estimate = analysis.view(cell.id).estimates[analysis.experiment.statistic]
            if estimate.value is None:
                continue
            low, high = (estimate.value if e is None else e for e in (estimate.low, estimate.high))
            rows.append(
                {
                    "panel": panel,
                    "arm": names.main(cell)[0],
                    "number": number,
                    "value": estimate.value / scale,
                    "low": low / scale,
                    "high": high / scale,
                    "exponent": f"exponent {_shown(found.exponent)}",
                }
            )
    if not rows:
        return None
    arms = in_order(row["arm"] for row in rows)
    colour, shape = colours_and_shapes("arm", arms)
    numbers = sorted({row["number"] for row in rows})
    x = alt.X(
        "number:Q",
        title=None,
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=numbers, format="~s"),
    )
    axis = alt.Axis(labelExpr=labels(unit), tickCount=5)
    y = alt.Y("value:Q", title=None, scale=alt.Scale(type="log", padding=8), axis=axis)
    base = alt.Chart(ROWS)
    panels = in_order(row["panel"] for row in rows)
    width = WIDTH // 2 - 60 if len(panels) > 1 else WIDTH - 100
    layers = alt.layer(
        base.mark_line(strokeWidth=1.4).encode(x=x, y=y, color=colour),
        base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips("panel", "arm", "number", "exponent")
        ),
    ).properties(width=width, height=150)
    chart = (
        layers.facet(
            facet=alt.Facet("panel:N", title=None, sort=panels, header=HEADER),
            columns=2,
            spacing=18,
        )
        .resolve_scale(x="independent", y="independent")
        .resolve_axis(x="independent", y="independent")
    )
    said = in_order(f"{row['panel']}, {row['arm']}: {row['exponent']}" for row in rows)
    return compose(
        "growth",
        "How it grows",
        "Both axes are logarithmic, so that a straight line is a power: 1 is in proportion. Lines"
        " are 95 % intervals over blocks. " + "; ".join(said) + ".",
        chart,
        rows,
        "The cost of each arm over every factor that was varied as a number.",
    )


def many_processes(analysis: Analysis, _names: Names) -> Figure | None:
    """The model of the paper's cluster, drawn from this run's figures: no measurement."""
    model = analysis.scaling
    if model is None:
        return None
    arms = {"plain": model.plain_s, "nvio": model.nvio_s}
    rows: Rows = [
        {"arm": arm, "processes": processes, "value": 1e6 * seconds(processes)}
        for arm, seconds in arms.items()
        for processes in PROCESSES
    ]
    colour, shape = colours_and_shapes("arm", list(arms))
    base = alt.Chart(ROWS)
    x = alt.X(
        "processes:Q",
        title="processes, each on a node of its own",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=list(PROCESSES), format="d", labelOverlap="greedy"),
    )
    y = alt.Y(
        "value:Q",
        title="time of one product",
        scale=alt.Scale(type="log", padding=8),
        axis=alt.Axis(labelExpr=labels("ns"), tickCount=6),
    )
    chart = alt.layer(
        base.mark_line(strokeWidth=1.4, strokeDash=[6, 3]).encode(x=x, y=y, color=colour),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            x=x, y=y, color=colour, shape=shape, tooltip=tips("arm", "processes")
        ),
    ).properties(width=WIDTH - 150, height=200)
    return compose(
        "many_processes",
        "By model, not measured: many processes",
        f"One product of {VERTICES} x {VERTICES} cells, row by row. With this run's figures:"
        f" multiplying takes {model.multiply_s:.3g} processor seconds, the file system serves"
        f" {model.served_per_s:.3g} calls a second, a call under nvio across nodes takes"
        f" {1e6 * model.call_s:.3g} us, writing back {model.write_back_s:.3g} s. Plain calls all"
        " meet at one file system; under nvio there are as many managers as processes. What the"
        " model leaves out is said in docs/mpi-io.md.",
        chart,
        rows,
        "Modelled time of one product over the number of processes, plain and under nvio.",
    )


def _panel(analysis: Analysis, found: Growth, names: Names) -> str:
    """What was varied, and what else sets this line apart."""
    _, cell = found.cells[0]
    others = [c.levels for c in analysis.plan.cells]
    # Every line is an arm of the baseline's factor, which nodes are a setting of.
    said = (found.factor, *analysis.experiment.baseline)
    apart = [
        names.level(name, level)
        for name, level in cell.levels.items()
        if name not in said and len({levels.get(name) for levels in others}) > 1
    ]
    return f"over {found.factor}" + (f": {', '.join(apart)}" if apart else "")


def _shown(exponent: Interval) -> str:
    if exponent.estimate is None or exponent.low is None or exponent.high is None:
        return "unresolved"
    return f"{exponent.estimate:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]"
