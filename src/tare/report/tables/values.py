"""Absolute values of workloads that measure one number at a time."""

from __future__ import annotations

from tare.analysis import Analysis, CellView
from tare.report import numbers
from tare.report.tables.table import DASH, Table, cell_heads
from tare.report.wording import Names


def values(analysis: Analysis, names: Names) -> Table | None:
    """Every statistic of every cell, over its sessions."""
    if analysis.response_times:
        return None
    measured = [
        name
        for name in analysis.statistics
        if any(view.estimates[name].value is not None for view in analysis.cells)
    ]
    return Table(
        "Every cell: geometric mean over sessions [95 % interval]",
        (names.heading, names.lead, "sessions", *measured),
        tuple(
            (
                *cell_heads(view, names),
                _sessions(view),
                *(_value(analysis, view, name) for name in measured),
            )
            for view in analysis.cells
        ),
        note="; ".join(f"{name}: {analysis.statistics[name].help}" for name in measured) + ".",
    )


def _sessions(view: CellView) -> str:
    failed = f" ({view.failed} failed)" if view.failed else ""
    return f"{view.measured}{failed}"


def _value(analysis: Analysis, view: CellView, name: str) -> str:
    found = view.estimates[name]
    if found.value is None:
        return DASH
    unit = analysis.statistics[name].unit
    return str(numbers.quantity(unit, found.value, found.low, found.high))
