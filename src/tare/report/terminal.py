"""The verdicts for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from tare.analysis import Analysis, Question
from tare.report import gate, numbers, remarks, tables, wording
from tare.report.columns import Columns
from tare.report.headline import headline
from tare.report.page import conditions
from tare.report.whiskers import Ruler, Ticks, Whisker
from tare.report.wording import Names
from tare.stats import Interval
from tare.stats.noise import NoiseFloor

_LONGEST = 200
_STYLES = {
    "slower": "red",
    "faster": "green",
    "more": "red",
    "less": "green",
    "more-is-better": "green",
    "less-is-worse": "red",
    "equivalent": "cyan",
    "no-worse": "green",
    "inconclusive": "yellow",
    "below-instrument": "yellow",
    "not-measured": "yellow",
}


def summary(analysis: Analysis) -> RenderableType:
    """A few lines that answer the experiment's question; everything else is in the page."""
    names = wording.names_of(analysis)
    lines: list[RenderableType] = [
        Text(analysis.experiment.title, "bold"),
        Text(headline(analysis, names)),
        Text(conditions(analysis), "dim"),
        *_cells(analysis, names),
        *([_Verdicts(analysis, names)] if analysis.questions else []),
        *(Text(line) for line in gate.after(analysis) or [remarks.outcome(analysis)]),
    ]
    if analysis.noise.pairs:
        lines.append(Text(_noise(analysis.noise)))
    for cells, blocks, reason in remarks.failures(analysis, names):
        which = "; ".join(cells.splitlines())
        lines.append(Text(f"failed in {blocks}: {which}: {_short(reason)}", "yellow"))
    lines += [Text(f"caution: {caution}", "yellow") for caution in remarks.cautions(analysis)]
    lines += [Text(f"note: {note}", "dim") for note in remarks.observations(analysis, names)]
    return Group(*lines)


def _noise(floor: NoiseFloor) -> str:
    """What the A/A pairs showed, and what such a run finds: the first may be small by luck."""
    largest, least = numbers.percent(floor.largest_percent), remarks.detectable(floor)
    return (
        f"Noise floor: the same cell twice differed by at most {largest}; a difference of {least}"
        " is found four times in five (one comparison, unadjusted)."
    )


def _cells(analysis: Analysis, names: Names) -> list[RenderableType]:
    """Every cell's values, where the workload says of which statistics."""
    found = tables.shown(analysis, names)
    if found is None:
        return []
    table = Columns(*found.columns, words=(0,))
    for row in found.rows:
        table.add_row(*row)
    return [table, Text()]


@dataclass(frozen=True)
class _Verdicts:
    """A row a comparison, with its interval drawn: in the row, or below where there is no room."""

    analysis: Analysis
    names: Names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width >= _WIDE
        yield self._columns("verdict", "what", *(["picture"] if wide else []), *_NUMBERS)
        if not wide:
            yield self._columns("what", "picture")

    def _columns(self, *columns: str) -> Columns:
        analysis, questions = self.analysis, self.analysis.questions
        axis = Ruler.over((q.ratio.ratio for q in questions), analysis.experiment.margin_share)
        said: dict[str, RenderableType] = {
            "picture": Ticks(axis),
            "ratio": f"{analysis.experiment.statistic}, ratio [95 %]",
        }
        table = Columns(
            *(said.get(column, column) for column in columns),
            words=[at for at, column in enumerate(columns) if column not in _NUMBERS],
            key=columns.index("what"),
        )
        for question in questions:
            verdict, unit = wording.verdict_of(question), analysis.statistic.unit
            style = _STYLES.get(wording.style_of(question, analysis.statistic), "dim")
            ratio = question.ratio.ratio
            cells: dict[str, RenderableType] = {
                "verdict": Text(verdict, style),
                "what": Text(self.names.place(question.cell).full),
                "picture": Whisker(axis, ratio, style),
                "ratio": Text(wording.ratio_text(ratio)),
                "here": Text(wording.quantity_text(question.ratio.a, unit).bare),
                "baseline": Text(wording.quantity_text(question.ratio.b, unit).bare),
            }
            table.add_row(*(cells[column] for column in columns))
        return table


_NUMBERS = ("ratio", "here", "baseline")
_WIDE = 110
"""Columns of a terminal on which the picture has room beside the figures."""


def verdicts(analysis: Analysis) -> dict[str, Any]:
    """What `summary` says, for machines; intervals in the unit that is told with them."""
    names = wording.names_of(analysis)
    plan = analysis.plan
    return {
        "title": analysis.experiment.title,
        "answer": headline(analysis, names),
        "provisional": analysis.complete_blocks < plan.min_blocks,
        "blocks": {
            "complete": analysis.complete_blocks,
            "least": plan.min_blocks,
            "most": len(plan.blocks),
        },
        "statistic": analysis.experiment.statistic,
        "unit": analysis.statistic.unit,
        "margin": analysis.experiment.margin_share,
        "noise_percent": analysis.noise.largest_percent,
        "found_percent": analysis.noise.detectable_percent,
        "cells": tables.told(analysis),
        "comparisons": [_comparison(question) for question in analysis.questions],
        "failed": [{"cell": t.cell, "block": t.block, "error": t.error} for t in analysis.failures],
        "cautions": remarks.cautions(analysis),
    }


def _comparison(question: Question) -> dict[str, Any]:
    ratio = question.ratio
    return {
        "cell": question.cell.id,
        "against": question.against.id,
        "verdict": wording.verdict_of(question),
        "judged": question.judgement is not None,
        "adjusted_p": question.judgement.adjusted_p if question.judgement else None,
        "ratio": _ends(ratio.ratio),
        "here": _ends(ratio.a),
        "baseline": _ends(ratio.b),
        "blocks": ratio.n_used,
        "blocks_more": question.blocks_more,
    }


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _short(reason: str) -> str:
    """The end of a long reason, where programs say what is wrong; the page has all of it."""
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST else "\N{HORIZONTAL ELLIPSIS}" + line[-_LONGEST:]
