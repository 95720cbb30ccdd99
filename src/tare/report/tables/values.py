"""Absolute values of workloads that measure one number at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tare.analysis import Analysis, CellView
from tare.report import numbers
from tare.report.tables.table import DASH, Table, cell_heads
from tare.report.wording import Names

_AT_ONCE = 4


def values(analysis: Analysis, names: Names) -> list[Table]:
    """Every statistic of every cell, over its sessions; a table for a few of them at a time."""
    measured = [
        name
        for name in analysis.statistics
        if any(view.estimates[name].value is not None for view in analysis.cells)
    ]
    if analysis.response_times:
        return []
    return [
        Table(
            "Every cell: geometric mean over sessions [95 % interval]",
            (names.heading, names.lead, "sessions", *shown),
            tuple(
                (
                    *cell_heads(view, names),
                    _sessions(view),
                    *(_value(analysis, view, name) for name in shown),
                )
                for view in analysis.cells
            ),
            note=_note(analysis, shown),
        )
        for shown in (measured[i : i + _AT_ONCE] for i in range(0, len(measured), _AT_ONCE))
    ]


def _note(analysis: Analysis, shown: Sequence[str]) -> str:
    said = "; ".join(f"{name}: {analysis.statistics[name].help}" for name in shown) + "."
    found = [view.estimates[name] for view in analysis.cells for name in shown]
    if any(one.value is not None and (one.min or 0.0) <= 0.0 for one in found):
        said += " Without an interval, where a session has zero: the mean."
    return said


def shown(analysis: Analysis, names: Names) -> Table | None:
    """Of every cell what the workload shows of it at once; None where it names nothing."""
    if not analysis.workload.shown:
        return None
    measured = _measured(analysis)
    return Table(
        "Every cell",
        ("what", *(f"{name} [95 %]" for name in measured[:1]), *measured[1:], "sessions"),
        tuple(
            (
                names.place(view.cell).full,
                *(_value(analysis, view, name) for name in measured[:1]),
                *(_bare(analysis, view, name) for name in measured[1:]),
                _sessions(view),
            )
            for view in analysis.cells
            if view.cell.replica == 1
        ),
        heads=1,
    )


def told(analysis: Analysis) -> list[dict[str, Any]]:
    """The same for machines; values and ends of intervals in the unit that is told with them."""
    return [
        {
            "cell": view.cell.id,
            "values": {
                name: {"unit": analysis.statistics[name].unit, "value": one.value}
                | {"low": one.low, "high": one.high}
                for name in _measured(analysis)
                if (one := view.estimates[name]).value is not None
            },
        }
        for view in analysis.cells
        if view.cell.replica == 1
    ]


def _measured(analysis: Analysis) -> list[str]:
    """What of a cell is shown at once, the declared statistic first."""
    asked = dict.fromkeys((analysis.experiment.statistic, *analysis.workload.shown))
    return [
        name
        for name in asked
        if any(view.estimates[name].value is not None for view in analysis.cells)
    ]


def _bare(analysis: Analysis, view: CellView, name: str) -> str:
    found = view.estimates[name]
    return numbers.quantity(analysis.statistics[name].unit, found.value).bare


def _sessions(view: CellView) -> str:
    failed = f" ({view.failed} failed)" if view.failed else ""
    return f"{view.measured}{failed}"


def _value(analysis: Analysis, view: CellView, name: str) -> str:
    found = view.estimates[name]
    if found.value is None:
        return DASH
    unit = analysis.statistics[name].unit
    return str(numbers.quantity(unit, found.value, found.low, found.high))
