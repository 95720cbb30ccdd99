"""The report's figures: Vega-Lite made by altair, each drawn as static SVG when the page is made.

Colours are Okabe and Ito's, which colour-blind people tell apart, and each colour comes with a
shape, so that a figure also holds in grey. Every figure shows its intervals.
"""

from __future__ import annotations

from tare.analysis import Analysis
from tare.report.figures.chart import Figure
from tare.report.figures.costs import contrasts, operations, threads
from tare.report.figures.effects import effects, paper
from tare.report.figures.growth import growth, many_processes
from tare.report.figures.migration import split, throughput
from tare.report.figures.pinning import pinnings
from tare.report.figures.times import by_block, deadlines, distributions, levels
from tare.report.wording import Names

__all__ = ["Figure", "draw"]


def draw(analysis: Analysis, names: Names) -> dict[str, Figure | None]:
    """Draw every figure, by id; None where the analysis has no data for it."""
    makers = {
        "effects": effects,
        "levels": levels,
        "distributions": distributions,
        "sessions": by_block,
        "budget": contrasts,
        "account": threads,
        "causes": operations,
        "deadlines": deadlines,
        "split": split,
        "throughput": throughput,
        "pinnings": pinnings,
        "growth": growth,
        "many_processes": many_processes,
        "paper": paper,
    }
    return {figure_id: make(analysis, names) for figure_id, make in makers.items()}
