"""Migrations: where the time goes (paper D, Fig. 4), and what the others noticed (Fig. 8)."""

from __future__ import annotations

from tare.analysis import Analysis
from tare.analysis.cells import CellView
from tare.record import Trial
from tare.report import numbers
from tare.report.figures.axis import Axis, plain, written
from tare.report.figures.figure import Figure, Line, Mark, Panel, Strip, legend, strips
from tare.report.wording import Names
from tare.workloads.migration.told import parts, throughputs

_PARTS = {
    "setup": ("before the first page", "grey"),
    "first_pass": ("first iteration", "c0"),
    "further_passes": ("further iterations", "c4"),
    "rest": ("standing still", "c1"),
}
_GUESTS = {
    "stays": ("stays at the source", "c0"),
    "peer": ("at the destination", "c1"),
    "migrates": ("migrates", "c2"),
}


def split(analysis: Analysis, names: Names) -> Figure | None:
    """The parts of each arm's migration time, as means over its sessions."""
    rows = []
    for view in _migrations(analysis):
        marks, end = [], 0.0
        for part, mean_ns in parts(_measured(analysis, view), tuple(_PARTS)).items():
            called, style = _PARTS[part]
            tip = f"{called} {numbers.time(mean_ns).bare}"
            marks.append(Mark("bar", style, end, end + mean_ns, tip))
            end += mean_ns
        if marks:
            rows.append(Strip(names.place(view.cell).full, tuple(marks), numbers.time(end).bare))
    if not rows:
        return None
    return Figure(
        "split",
        "Where the time of a migration goes",
        "Means over sessions; together the parts make the whole, from the order to migrate until"
        " the guest runs at the destination. Hashing is part of the iterations: it goes on while"
        " pages are sent. The intervals of each part stand in the table.",
        groups=strips([("", rows)], written("ns"), log=False, seen=(0.0,)),
        legend=tuple((style, called) for called, style in _PARTS.values()),
    )


def throughput(analysis: Analysis, names: Names) -> Figure | None:
    """Answers a second of all three guests around the migration, as means over sessions."""
    panels: dict[str, tuple[Line, ...]] = {}
    used = set()
    for view in _migrations(analysis):
        rates: dict[str, list[tuple[float, float]]] = {}
        for (guest, when), rate in throughputs(_measured(analysis, view)).items():
            rates.setdefault(guest, []).append((when, rate))
        if rates:
            panels[names.place(view.cell).full] = tuple(
                Line(_GUESTS[guest][1], tuple(points), kind="steps")
                for guest, points in rates.items()
            )
            used |= set(rates)
    if not panels:
        return None
    points = [p for lines in panels.values() for line in lines for p in line.points]
    x = Axis([*(x for x, _ in points), 0.0], plain, log=False)
    y = Axis([*(y for _, y in points), 0.0], plain, log=False, upright=True)
    return Figure(
        "throughput",
        "What the guests' load was answered meanwhile",
        "All three guests are asked at the same fixed rate, whatever they answer. Means over"
        " sessions; the dashed line is the order to migrate. A guest that is disturbed falls below"
        " the rate, and answers what has waited afterwards.",
        "Answers a second of the guests over time, around the migration.",
        panels=tuple(Panel(heading, x, y, lines, rule=0.0) for heading, lines in panels.items()),
        legend=legend({called: style for g, (called, style) in _GUESTS.items() if g in used}),
        axes=("seconds from the order to migrate", "answers/s"),
    )


def _migrations(analysis: Analysis) -> list[CellView]:
    return [v for v in analysis.cells if v.cell.replica == 1]


def _measured(analysis: Analysis, view: CellView) -> list[Trial]:
    return [t for t in analysis.trials if t.cell == view.cell.id and t.status == "ok"]
