"""The papers replayed: what each says of its figures and tables, and whether it holds here.

A claim is a row beside the published figures (`published/*.yaml`). It is judged by whole intervals,
each of 95 % by itself: it holds where those of all its cells keep its bound, and does not where one
lies beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tare.analysis import Analysis
from tare.errors import UsageError
from tare.pairing import paired
from tare.published import Claim, Paper, papers
from tare.stats import Interval, Method, paired_ratio
from tare.stats.bounds import Bound, Kept, all_kept
from tare.suite import Suite, SuiteResult


class Standing(StrEnum):
    """What may be said of a claim."""

    HOLDS = "holds here"
    FAILS = "does not hold here"
    INCONCLUSIVE = "inconclusive"
    NOT_ASKED = "cannot be asked here"


_SAID = {
    Kept.HOLDS: Standing.HOLDS,
    Kept.FAILS: Standing.FAILS,
    Kept.INCONCLUSIVE: Standing.INCONCLUSIVE,
}


@dataclass(frozen=True)
class Judged:
    """A claim, and what was found of it."""

    claim: Claim
    verdict: Standing
    bounds: tuple[Bound, ...] = ()
    """A figure of ours for each of its cells, ratios or in the claim's own unit."""
    why: str = ""
    """Why it was not asked, or was not measured."""

    @property
    def kept(self) -> int:
        """Figures that keep the bound."""
        return sum(bound.kept is Kept.HOLDS for bound in self.bounds)


Answers = tuple[Paper, tuple[Judged, ...]]
"""A paper, and what was found of each of its claims."""


def named(names: Iterable[str]) -> tuple[Paper, ...]:
    """Papers by their letters or names; all where none is named.

    Raises:
        UsageError: there is no such paper.
    """
    every = papers()
    known = {**every, **{paper.name: paper for paper in every.values()}}
    asked = [*names]
    for name in asked:
        if name.upper() not in known and name not in known:
            raise UsageError(
                f"there is no paper {name}", f"name {', '.join(p.name for p in every.values())}"
            )
    chosen = [known.get(name.upper()) or known[name] for name in asked] or every.values()
    return tuple({paper.paper: paper for paper in chosen}.values())


def suite(chosen: Iterable[Paper], experiments: Path) -> tuple[Suite, dict[str, Path]]:
    """All that these papers are asked by, as one suite, and the file of each part.

    Args:
        chosen: papers.
        experiments: the folder of the experiments that ship.

    Raises:
        UsageError: it is not there.
    """
    every = [*chosen]
    paths = {name: path for paper in every for name, path in paper.parts.items()}
    files = {name: experiments / f"{path}.yaml" for name, path in paths.items()}
    for file in files.values():
        if not file.is_file():
            raise UsageError(f"there is no {file}", "run it from a checkout of Tare")
    found = Suite(
        title="The papers, replayed",
        description=" ".join(
            f"{paper.paper}: {paper.authors}, “{paper.title}”." for paper in every
        ),
        parts=tuple(str(file) for file in files.values()),
        replays=tuple(paper.paper for paper in every),
    )
    return found, files


def answers(result: SuiteResult, parts: Mapping[str, Analysis]) -> list[Answers]:
    """Judge every claim of the papers that a result replays."""

    def of(paper: Paper) -> Answers:
        every = (answer(claim, parts, result.absent) for claim in paper.claims)
        return paper, tuple(every)

    return [of(papers()[letter]) for letter in result.replays]


def answer(claim: Claim, parts: Mapping[str, Analysis], absent: Mapping[str, str]) -> Judged:
    """Judge one.

    Args:
        claim: a paper's.
        parts: name of each experiment that was run -> its analysis.
        absent: name of each that cannot run here -> why.
    """
    if claim.not_asked:
        return Judged(claim, Standing.NOT_ASKED, why=claim.not_asked)
    if claim.part in absent:
        return Judged(claim, Standing.NOT_ASKED, why=absent[claim.part])
    if claim.part not in parts:
        return Judged(claim, Standing.INCONCLUSIVE, why="there was no time to ask it")
    analysis = parts[claim.part]
    found = _figures(claim, analysis) if claim.figure else _compared(claim, analysis)
    bounds = tuple(
        Bound(name, one, claim.least, claim.most, ratio=not (claim.difference or claim.figure))
        for name, one in found.items()
    )
    if not bounds:
        why = "none of its cells was measured" + "".join(f"; {cut}" for cut in analysis.plan.cuts)
        return Judged(claim, Standing.INCONCLUSIVE, why=why)
    return Judged(claim, _SAID[all_kept(bound.kept for bound in bounds)], bounds)


def _figures(claim: Claim, analysis: Analysis) -> dict[str, Interval]:
    """Ours beside a published figure."""
    return {
        one.cell.id: Interval(one.estimate, one.low, one.high, 0.95, Method.T, 0)
        for beside in analysis.workload.beside(analysis)
        if beside.figure.id == claim.figure
        for one in beside.ours
    }


def _compared(claim: Claim, analysis: Analysis) -> dict[str, Interval]:
    statistic = claim.statistic or analysis.experiment.statistic
    against = "{0}" if claim.over and claim.against is None else claim.against
    found = {}
    for cells in claim.cells:
        for a, b in paired(analysis.plan, cells, against):
            ratio = paired_ratio(
                analysis.sessions.column(a, statistic),
                analysis.sessions.column(b, claim.over or statistic),
            )
            one = ratio.difference if claim.difference else ratio.ratio
            if one.estimate is not None:
                found[a if a == b else f"{a} over {b}"] = one
    return found
