"""C3: what node-local memory wins for small pieces, what it costs elsewhere, and per file.

A gain holds where the whole interval reaches it, not the estimate alone; something is not slower
where its whole interval lies below the bound: that it was not found slower is not enough.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims import Claim, Result, Workshop, conclude, power, shown
from claims.shipped import run_shipped
from tare.analysis import Analysis, Question
from tare.stats import Interval
from tare.stats.bounds import Bound, Kept

_LEAST = {
    ("write", "4"): 10.0,
    ("read", "4"): 8.0,
    ("write", "1"): 3.0,
    ("read", "1"): 4.0,
}
"""(operation, touches) -> plain's time over nvio's, at least. None may be slower."""
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
    added = {f"{phase} {q.cell.levels['operation']}": _added(q, phase)
             for q in opening.questions for phase in ("open", "close")}  # fmt: skip
    grown = [
        Bound(f"{operation} x{touches}, gain", gains[operation, touches], least)
        for (operation, touches), least in _LEAST.items()
    ]
    cells = [not_slower(question) for question in grid.questions]
    rest = [not_slower(question) for question in pieces.questions]
    costs = [Bound(f"{name} adds", ns, most=_ADDS_NS, ratio=False) for name, ns in added.items()]
    most = max(added, key=lambda phase: added[phase].estimate or -math.inf)
    slower = [bound.name for bound in cells if bound.kept is Kept.FAILS]
    shown_not = sum(bound.kept is Kept.HOLDS for bound in cells)
    figure = "; ".join(
        [
            *(
                f"{operation} x{touches} {shown(gained, 2)} times faster"
                for (operation, touches), gained in gains.items()
            ),
            f"grid: {shown_not} of {len(cells)} cells shown not to be slower, {len(slower)} slower,"
            f" {power(cells)}",
            f"{most} adds {_milliseconds(added[most])}",
        ]
    )
    data = {"slower": slower, **_data(pieces, opening, grid)}
    return conclude([*grown, *rest, *cells, *costs], figure, data)


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


def not_slower(question: Question) -> Bound:
    """That a time is at most the margin above plain's: non-inferiority, by the whole interval."""
    return Bound(f"{question.cell.id} not slower", question.ratio.ratio, most=_SLOWER)


def _milliseconds(ns: Interval) -> str:
    return "an unknown time" if ns.estimate is None else f"{ns.estimate / 1e6:.2f} ms"


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
        " and 4 x; a tenth, and every cell of the IOR-like grid, with its whole interval at most"
        " 1.05 of plain's time; open and close add at most 1 ms",
        _check,
        experiments=("small-pieces.yaml", "open-close.yaml", "ior-like.yaml"),
        grows=True,
    ),
)
