"""A replay as documents: of each paper a page in Markdown, and a picture of what was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tare import replay
from tare.analysis import Analysis
from tare.published import Paper
from tare.replay import Judged
from tare.report import page, replayed, tables, wording
from tare.report.figures.claims import WIDTH, claims
from tare.report.markup import prose, table
from tare.suite import SuiteResult

_NAMED = 4
"""Cells that stand one by one beside a published figure; the report has all of them."""


def pages(suite: SuiteResult, parts: Mapping[str, Analysis]) -> dict[str, str]:
    """Write a page for each paper, and draw its picture where there is something to draw.

    Args:
        suite: the result of a replay.
        parts: name -> analysis of each part.

    Returns:
        File name -> text: `NAME.md`, and beside it `NAME.svg`.
    """
    found: dict[str, str] = {}
    for paper, answers in replay.answers(suite, parts):
        picture = claims(paper.paper, answers)
        lines = _page(paper, answers, parts, drawn=picture is not None)
        found[f"{paper.name}.md"] = "".join(f"{line}\n" for line in lines)
        if picture is not None:
            context = {"picture": picture, "letter": paper.paper, "width": WIDTH}
            found[f"{paper.name}.svg"] = page.drawn("paper.svg.j2", context)
    return found


def _page(
    paper: Paper, answers: Sequence[Judged], parts: Mapping[str, Analysis], *, drawn: bool
) -> Iterator[str]:
    asked = {name: parts[name] for name in paper.parts if name in parts}
    yield f"# Paper {paper.paper}, replayed\n"
    yield f"{prose(paper.authors)}: *{prose(paper.title)}*.\n"
    yield f"{replayed.headline([(paper, tuple(answers))])}\n"
    if drawn:
        yield f"![Intervals over the bounds that they have to keep]({paper.name}.svg)\n"
        yield "Shaded: where an interval has to lie. The axis is logarithmic.\n"
    yield "## What it says, and what came out\n"
    yield from _claims(paper, answers, parts)
    yield from _beside(asked.values())
    yield "\n## How it is asked\n"
    for name, path in paper.parts.items():
        yield f"- `experiments/{path}.yaml`: {_how(asked.get(name))}"
    yield "\n## What differs\n\nThe paper's apparatus:\n"
    yield from (f"- {prose(f'{what}: {said}')}" for what, said in paper.apparatus.items())
    yield "\nHere:\n"
    for name, one in asked.items():
        yield f"- `{name}`: {prose(f'{page.when(one)}. {page.conditions(one)}')}"
    yield f"\n`tare replay {paper.name}` asks all this again."
    yield "`tare report RESULT --pages FOLDER` writes this page."


def _claims(
    paper: Paper, answers: Sequence[Judged], parts: Mapping[str, Analysis]
) -> Iterator[str]:
    rows = []
    for row in replayed.rows(paper, answers, parts):
        claim = row["claim"]
        asked = f"{row['bound']} ({claim.ours})" if claim.ours else row["bound"]
        cells = (row["id"], claim.where, claim.says, asked, row["here"])
        rows.append([f"**{row['verdict']}**", *map(prose, cells)])
    yield from table(("verdict", "", "where", "the paper says", "asked", "here"), rows, left=6)


def _beside(asked: Iterable[Analysis]) -> Iterator[str]:
    found = [tables.paper(one, wording.names_of(one), most=_NAMED) for one in asked]
    shown = [one for one in found if one is not None]
    if shown:
        yield "\n## Its figures, and ours\n"
        rows = [["<br>".join(map(prose, cell.split("\n"))) for cell in row]
                for one in shown for row in one.rows]  # fmt: skip
        columns = [*map(prose, shown[0].columns)]
        yield from table(columns, rows, left=len(columns))


def _how(analysis: Analysis | None) -> str:
    if analysis is None:
        return "not run."
    said = analysis.experiment.description or analysis.experiment.title
    cuts = "".join(f" Cut: {cut}." for cut in analysis.plan.cuts)
    return f"{prose(said)} {analysis.complete_blocks} whole blocks.{prose(cuts)}"
