"""The papers replayed: a map of verdicts, and a row for each claim with where its data lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tare import replay
from tare.analysis import Analysis
from tare.published import Claim, Paper
from tare.replay import Judged, Standing
from tare.report import numbers, page
from tare.report.wording import quantity_text
from tare.stats import Interval
from tare.stats.bounds import Bound, Kept
from tare.suite import SuiteResult
from tare.workloads import Unit

_TIMES = "\N{MULTIPLICATION SIGN}"
_STYLES = {
    Standing.HOLDS: "green",
    Standing.FAILS: "red",
    Standing.INCONCLUSIVE: "yellow",
    Standing.NOT_ASKED: "dim",
}


def render(suite: SuiteResult, parts: Mapping[str, Analysis], way: str = "") -> str:
    """Draw the page.

    Args:
        suite: the result of a replay.
        parts: name -> analysis of each part.
        way: from the page's folder to the result's, as an address that ends with a slash.

    Returns:
        HTML without scripts.
    """
    found = replay.answers(suite, parts)
    context = {
        "title": suite.title,
        "headline": headline(found),
        "papers": [_paper(paper, answers, parts) for paper, answers in found],
        "conditions": sorted({said for one in parts.values() if (said := page.conditions(one))}),
        "parts": [(name, one.experiment.title, page.when(one)) for name, one in parts.items()],
        "absent": suite.absent,
        "folder": suite.folder.resolve().name,
        "way": way,
    }
    return page.drawn("replay.html.j2", context)


def summary(suite: SuiteResult, parts: Mapping[str, Analysis]) -> RenderableType:
    """Every claim in a line."""
    found = replay.answers(suite, parts)
    lines: list[RenderableType] = []
    for paper, answers in found:
        table = Table(box=None, pad_edge=False, title=_title(paper), title_justify="left")
        for column in ("verdict", "where", "the paper says", "here"):
            table.add_column(column)
        for one in answers:
            verdict = Text(one.verdict, _STYLES[one.verdict])
            table.add_row(verdict, one.claim.where, one.claim.says, _here(one, parts))
        lines += [table, ""]
    return Group(*lines, headline(found))


def told(suite: SuiteResult, parts: Mapping[str, Analysis]) -> dict[str, Any]:
    """The same for machines."""
    found = replay.answers(suite, parts)
    return {
        paper.name: [
            {
                **one.claim.model_dump(exclude_defaults=True),
                "verdict": one.verdict,
                "why": one.why,
                "figures": {
                    bound.name: [bound.found.estimate, bound.found.low, bound.found.high]
                    for bound in one.bounds
                },
            }
            for one in answers
        ]
        for paper, answers in found
    }


def headline(found: Iterable[replay.Answers]) -> str:
    """Count the verdicts."""
    counted = Counter(one.verdict for _, answers in found for one in answers)
    said = ", ".join(f"{counted[one]} {_plural(one, counted[one])}" for one in Standing)
    return f"Of {counted.total()} claims {said}."


def _plural(verdict: Standing, count: int) -> str:
    if verdict is Standing.INCONCLUSIVE:
        return "is inconclusive" if count == 1 else "are inconclusive"
    many = {Standing.HOLDS: "hold here", Standing.FAILS: "do not hold here"}
    return verdict if count == 1 else many.get(verdict, verdict)


def _title(paper: Paper) -> str:
    return f"{paper.paper}  {paper.title}"


def _paper(
    paper: Paper, answers: Iterable[Judged], parts: Mapping[str, Analysis]
) -> dict[str, Any]:
    return {"letter": paper.paper, "name": paper.name, "title": paper.title,
            "authors": paper.authors, "apparatus": paper.apparatus,
            "rows": rows(paper, answers, parts)}  # fmt: skip


def rows(
    paper: Paper, answers: Iterable[Judged], parts: Mapping[str, Analysis]
) -> list[dict[str, Any]]:
    """What is shown of each claim, as text."""
    return [_row(paper, number, one, parts) for number, one in enumerate(answers)]


def _row(paper: Paper, number: int, one: Judged, parts: Mapping[str, Analysis]) -> dict[str, Any]:
    shown = [(bound.name, _value(one.claim, bound.found, parts)) for bound in one.bounds]
    return {
        "id": f"{paper.paper}{number + 1}",
        "claim": one.claim,
        "verdict": str(one.verdict),
        "style": one.verdict.replace(" ", "-"),
        "bound": _bound(one.claim, parts),
        "shortly": _shortly(one, parts),
        "here": _here(one, parts),
        "figures": shown if len(shown) > 1 else [],
        "why": one.why,
        "part": one.claim.part if one.bounds else "",
    }


def _here(one: Judged, parts: Mapping[str, Analysis]) -> str:
    """What was found, and what of it was not asked or measured."""
    return "; ".join(filter(None, (_shortly(one, parts), one.why)))


def _shortly(one: Judged, parts: Mapping[str, Analysis]) -> str:
    """One figure; of several how many keep the bound, and the one that is farthest from it."""
    if not one.bounds:
        return ""
    if len(one.bounds) == 1:
        return _value(one.claim, one.bounds[0].found, parts)
    worst = min(one.bounds, key=_slack)
    value = _value(one.claim, worst.found, parts)
    return f"{one.kept} of {len(one.bounds)} cells; least so {worst.name}: {value}"


def _slack(bound: Bound) -> tuple[int, float]:
    """How far a figure is within its bound: less where it fails."""
    order = {Kept.FAILS: 0, Kept.INCONCLUSIVE: 1, Kept.HOLDS: 2}[bound.kept]
    found = bound.found.estimate or 0.0
    ends = [(found - bound.least) if bound.least is not None else None,
            (bound.most - found) if bound.most is not None else None]  # fmt: skip
    return order, min(end for end in ends if end is not None)


def _value(claim: Claim, found: Interval, parts: Mapping[str, Analysis]) -> str:
    if claim.figure:
        return str(numbers.fixed(found.estimate, found.low, found.high, "%", most=3))
    if claim.difference:
        return str(quantity_text(found, _unit(claim, parts), signed=True))
    return str(numbers.ratio(found.estimate, found.low, found.high))


def _unit(claim: Claim, parts: Mapping[str, Analysis]) -> Unit:
    analysis = parts[claim.part]
    return analysis.statistics[claim.statistic or analysis.experiment.statistic].unit


def _bound(claim: Claim, parts: Mapping[str, Analysis]) -> str:
    """What is asked, with its unit."""
    if not claim.part:
        return ""

    def shown(end: float) -> str:
        if claim.figure:
            return f"{end:g} %"
        if claim.difference and claim.part in parts:
            return str(numbers.quantity(_unit(claim, parts), end))
        return f"{end:g}" if claim.difference else f"{end:g} {_TIMES}"

    if claim.least is not None and claim.most is not None:
        return f"{shown(claim.least)} to {shown(claim.most)}"
    if claim.least is not None:
        return f"at least {shown(claim.least)}"
    return f"at most {shown(claim.most or 0.0)}"
