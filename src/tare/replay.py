"""The papers replayed: what each says of its figures and tables, and whether it holds here.

A claim is a row beside the published figures (`published/*.yaml`). It is judged by whole intervals,
each of 95 % by itself: it holds where those of all its cells keep its bound, and does not where one
lies beyond. A cell that was not measured, or was cut, keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tare import plan as plans
from tare.analysis import Analysis
from tare.analysis.questions import ratio_of
from tare.errors import UsageError
from tare.pairing import paired
from tare.plan import Plan
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
    """Why it was not asked, or what of it was not measured."""

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
    missing = [name for name, one in found.items() if one is None]
    bounds = tuple(
        Bound(name, one, claim.least, claim.most, ratio=not (claim.difference or claim.figure))
        for name, one in found.items()
        if one is not None
    )
    why = ""
    if missing or not bounds:
        what = f"not measured: {', '.join(missing)}" if bounds else "none of its cells was measured"
        why = "; ".join((what, *analysis.plan.cuts))
    kept = (*(bound.kept for bound in bounds), *(Kept.INCONCLUSIVE for _ in missing))
    return Judged(claim, _SAID[all_kept(kept)], bounds, why)


def _uncut(plan: Plan) -> Plan:
    """What was planned before anything was cut."""
    return plans.make(plan.experiment, plan.seed) if plan.cuts else plan


def _figures(claim: Claim, analysis: Analysis) -> dict[str, Interval | None]:
    """Ours beside a published figure; None of cells without any."""
    pairs = (pair for cells in claim.cells for pair in paired(_uncut(analysis.plan), cells))
    return {a: None for a, _ in pairs if not analysis.sessions.measured(a)} | {
        one.cell.id: Interval(one.estimate, one.low, one.high, 0.95, Method.T, 0)
        for beside in analysis.workload.beside(analysis)
        if beside.figure.id == claim.figure
        for one in beside.ours
    }


def _compared(claim: Claim, analysis: Analysis) -> dict[str, Interval | None]:
    statistic = claim.statistic or analysis.experiment.statistic
    against = "{0}" if claim.over and claim.against is None else claim.against
    sessions, found = analysis.sessions, dict[str, Interval | None]()
    for cells in claim.cells:
        for a, b in paired(_uncut(analysis.plan), cells, against):
            if claim.over:
                above, _ = sessions.tried(a, b, statistic=statistic)
                _, below = sessions.tried(a, b, statistic=claim.over)
                ratio = paired_ratio(above, below).promised
            else:
                ratio = ratio_of(sessions, a, b, statistic).promised
            one = ratio.difference if claim.difference else ratio.ratio
            found[a if a == b else f"{a} over {b}"] = None if one.estimate is None else one
    return found
