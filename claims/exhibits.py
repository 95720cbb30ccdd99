"""E2: each figure and table of the papers has its row in `tare replay`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from claims.checking import Found, Workshop
from tare import experiment, plan, replay
from tare.published import Paper, papers
from tare.stats.bounds import Kept

_NAMED = re.compile(r"(Fig|Table)s?\.? (\d+)(?: (to|and) (\d+))?")
"""As rows name where a paper says it: Fig. 1; Figs. 3 and 4; Figs. 1 to 3; Tables 1 and 2."""
_SEED = 1


def replayed(workshop: Workshop) -> Found:
    """Beside what the papers have: what the rows name, and that what asks them can be planned."""
    every = papers()
    missing = {letter: lost for letter, paper in every.items() if (lost := unnamed(paper))}
    exhibits = sum(paper.exhibits.figures + paper.exhibits.tables for paper in every.values())
    _, files = replay.suite(every.values(), workshop.home / "experiments")
    for file in files.values():
        plan.make(experiment.load(file), _SEED)
    claims = [claim for paper in every.values() for claim in paper.claims]
    reasons = [claim.not_asked for claim in claims if claim.not_asked]
    return Found(
        f"{exhibits - sum(map(len, missing.values()))} of {exhibits} figures and tables of"
        f" {len(every)} papers have a row; of {len(claims)} rows {len(claims) - len(reasons)} are"
        f" asked by {len(files)} experiments, {len(reasons)} cannot be: {'; '.join(reasons)}",
        {"missing": missing, "not_asked": reasons},
        counted=Kept.counted(not missing),
    )


def unnamed(paper: Paper) -> list[str]:
    """The figures and tables of a paper that none of its rows names."""
    named = {one for claim in paper.claims for one in _exhibits(claim.where)}
    has = [("Fig", number + 1) for number in range(paper.exhibits.figures)]
    has += [("Table", number + 1) for number in range(paper.exhibits.tables)]
    return [f"{kind} {number}" for kind, number in has if (kind, number) not in named]


def _exhibits(where: str) -> Iterator[tuple[str, int]]:
    for kind, first, joined, last in _NAMED.findall(where):
        end = int(last or first)
        numbers = range(int(first), end + 1) if joined == "to" else {int(first), end}
        yield from ((kind, number) for number in numbers)
