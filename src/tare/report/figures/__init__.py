"""The report's figures, as data that one template draws.

Colours are Okabe and Ito's, which colour-blind people tell apart, and each colour comes with a
shape, so that a figure also holds in grey. Every figure shows its intervals.
"""

from __future__ import annotations

from tare.analysis import Analysis
from tare.report.figures.answers import answers, grouped, pairs, paper, picture
from tare.report.figures.costs import contrasts, operations, threads
from tare.report.figures.figure import Figure
from tare.report.figures.growth import growth, many_processes
from tare.report.figures.migration import split, throughput
from tare.report.figures.pinning import pinnings
from tare.report.figures.times import by_block, deadlines, distributions, levels
from tare.report.wording import Names

__all__ = ["Figure", "draw", "grouped", "picture"]


def draw(analysis: Analysis, names: Names) -> dict[str, Figure | None]:
    """Draw every figure, by id; None where the analysis has no data for it."""
    of_any = (
        *(answers, levels, distributions, by_block, contrasts, threads, operations, deadlines),
        *(pinnings, growth, pairs, paper),
    )
    own = [
        make
        for make in (many_processes, split, throughput)
        if make.__name__ in analysis.workload.figures
    ]
    return {make.__name__: make(analysis, names) for make in (*of_any, *own)}
