"""The verdicts for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tare.analysis import Analysis
from tare.report import gate, numbers, remarks, tables, wording
from tare.report.headline import headline
from tare.report.page import conditions
from tare.report.wording import Names

_LONGEST = 200
_STYLES = {
    "slower": "red",
    "faster": "green",
    "more": "red",
    "less": "green",
    "equivalent": "cyan",
    "no worse": "green",
    "inconclusive": "yellow",
    "below instrument": "yellow",
    "not measured": "yellow",
}


def summary(analysis: Analysis) -> RenderableType:
    """A few lines that answer the experiment's question; everything else is in the page."""
    names = wording.names_of(analysis)
    table = Table(box=None, pad_edge=False)
    unit = analysis.statistic.unit
    for heading in (
        "verdict",
        "what",
        f"{analysis.experiment.statistic}, ratio [95 %]",
        "here",
        "baseline",
    ):
        left = heading in ("verdict", "what")
        table.add_column(
            heading, justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    for question in analysis.questions:
        verdict = wording.verdict_of(question)
        table.add_row(
            Text(verdict, _STYLES.get(verdict, "dim")),
            Text(names.place(question.cell).full),
            Text(wording.ratio_text(question.ratio.ratio)),
            Text(wording.quantity_text(question.ratio.a, unit).bare),
            Text(wording.quantity_text(question.ratio.b, unit).bare),
        )
    lines: list[RenderableType] = [
        Text(analysis.experiment.title, "bold"),
        Text(headline(analysis, names)),
        Text(conditions(analysis), "dim"),
        *_cells(analysis, names),
        *([table] if analysis.questions else []),
        *(Text(line) for line in gate.after(analysis) or [remarks.outcome(analysis)]),
    ]
    if analysis.noise.pairs:
        largest = numbers.percent(analysis.noise.largest_percent)
        lines.append(Text(f"Noise floor: the same cell twice differed by at most {largest}."))
    for cells, blocks, reason in remarks.failures(analysis, names):
        which = "; ".join(cells.splitlines())
        lines.append(Text(f"failed in {blocks}: {which}: {_short(reason)}", "yellow"))
    lines += [Text(f"caution: {caution}", "yellow") for caution in remarks.busy(analysis)]
    lines += [Text(f"note: {note}", "dim") for note in remarks.observations(analysis, names)]
    return Group(*lines)


def _cells(analysis: Analysis, names: Names) -> list[RenderableType]:
    """Every cell's values, where the workload says of which statistics."""
    found = tables.shown(analysis, names)
    if found is None:
        return []
    table = Table(box=None, pad_edge=False)
    for at, heading in enumerate(found.columns):
        table.add_column(heading, justify="right" if at else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*map(Text, row))
    return [table, Text()]


def _short(reason: str) -> str:
    """The end of a long reason, where programs say what is wrong; the page has all of it."""
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST else "\N{HORIZONTAL ELLIPSIS}" + line[-_LONGEST:]
