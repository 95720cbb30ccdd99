"""C3: what node-local memory wins for small pieces, what it costs elsewhere, and per file.

A gain holds where the whole 95 % interval reaches it, not the estimate alone; something is slower
where its whole interval lies above the bound.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from tare.analysis import Analysis, Question
from tare.claims import Claim, Result, Workshop, shown
from tare.claims.shipped import run_shipped
from tare.stats import Interval

_LEAST = {
    ("write", "4"): 10.0,
    ("read", "4"): 8.0,
    ("write", "1"): 3.0,
    ("read", "1"): 4.0,
}
"""(operation, touches) -> plain's time over nvio's, at least. Other touches must not be slower."""
_SLOWER = 1.05
_ADDS_NS = 1e6


def _check(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as name:
        folder = Path(name)
        pieces = run_shipped(workshop, "small-pieces.yaml", folder)
        opening = run_shipped(workshop, "open-close.yaml", folder)
        grid = run_shipped(workshop, "ior-like.yaml", folder)
    gains = {
        (q.cell.levels["operation"], q.cell.levels["touches"]): gain(q) for q in pieces.questions
    }
    worst, slower = _worst(grid)
    added = {f"{phase} {q.cell.levels['operation']}": _added(q, phase)
             for q in opening.questions for phase in ("open", "close")}  # fmt: skip
    holds = (
        all(reaches(gains[key], least) for key, least in _LEAST.items())
        and not slower
        and not any(_is_slower(question) for question in pieces.questions)
        and all(one.high is not None and one.high <= _ADDS_NS for one in added.values())
    )
    most = max(added, key=lambda phase: added[phase].estimate or 0.0)
    figure = "; ".join(
        [
            *(
                f"{operation} x{touches} {shown(gained, 2)} times faster"
                for (operation, touches), gained in gains.items()
            ),
            f"grid: {len(slower)} cells slower, worst {worst}",
            f"{most} adds {(added[most].estimate or 0.0) / 1e6:.2f} ms",
        ]
    )
    return Result(holds, figure, {"slower": slower, **_data(pieces, opening, grid)})


def gain(question: Question) -> Interval:
    """How many times faster the numerator is: the ratio, the other way round."""
    ratio = question.ratio.ratio
    return replace(
        ratio,
        estimate=_inverse(ratio.estimate),
        low=_inverse(ratio.high),
        high=_inverse(ratio.low),
    )


def _inverse(value: float | None) -> float | None:
    return None if value is None else 1 / value


def reaches(found: Interval, least: float) -> bool:
    """Whether the whole interval is at least so much."""
    return found.low is not None and found.low >= least


def _worst(grid: Analysis) -> tuple[str, list[str]]:
    """The cell with the largest ratio, and those whose whole interval is above the bound."""
    known = [q for q in grid.questions if q.ratio.ratio.estimate is not None]
    if len(known) < len(grid.questions):
        missing = {q.cell.id for q in grid.questions} - {q.cell.id for q in known}
        return f"unknown: {', '.join(sorted(missing))} failed", sorted(missing)
    worst = max(known, key=lambda q: q.ratio.ratio.estimate or 0.0)
    slower = [q.cell.id for q in known if _is_slower(q)]
    return f"{worst.cell.id} {shown(worst.ratio.ratio, 2)}", slower


def _is_slower(question: Question) -> bool:
    return (question.ratio.ratio.low or 0.0) > _SLOWER


def _added(question: Question, phase: str) -> Interval:
    return question.others[phase].difference


def _data(*analyses: Analysis) -> dict[str, Any]:
    return {
        q.comparison.id: {
            "ratio": shown(q.ratio.ratio),
            "nvio": shown(q.ratio.a, 0),
            "plain": shown(q.ratio.b, 0),
        }
        for found in analyses
        for q in found.questions
    }


CLAIMS = (
    Claim(
        "C3",
        "Small random pieces on a slow file system go many times faster, close included; where"
        " nvio cannot help it steps aside; opening and closing cost next to nothing.",
        "128 MiB by 4 KiB, 4 ranks, GlusterFS: four times over, writes 10 x, reads 8 x; once, 3 x"
        " and 4 x; neither a tenth nor any cell of the IOR-like grid with its whole interval above"
        " 1.05 of plain's time; open and close add at most 1 ms",
        _check,
        experiments=("small-pieces.yaml", "open-close.yaml", "ior-like.yaml"),
    ),
)
