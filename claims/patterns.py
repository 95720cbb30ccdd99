"""C4: what node-local memory wins for walks, by access pattern."""

from __future__ import annotations

import tempfile
from pathlib import Path

from claims import Claim, Result, Workshop, conclude, power, shown
from claims.shipped import run_shipped
from claims.small_pieces import gain, not_slower
from tare.analysis import Analysis, Question
from tare.stats import Interval, paired_ratio
from tare.stats.bounds import Bound

_LEAST = {
    ("nvio", "rows", "4000"): 3.0,
    ("nvio", "rows", "8000"): 2.5,
    ("nvio", "views", "4000"): 1.15,
}
_NOT_SLOWER = [("nvio", pattern, "4000") for pattern in ("block", "collective")]


def _check(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        found = run_shipped(workshop, "walks-patterns.yaml", Path(folder))
    asked = {_about(q): q for q in found.questions}
    gains = {key: gain(question) for key, question in asked.items()}
    same = [not_slower(asked[key]) for key in _NOT_SLOWER]
    grown = [Bound(f"{key[1]} {key[2]}, gain", gains[key], least) for key, least in _LEAST.items()]
    pattern, beside = _against_fastest_plain(found)
    figure = ", ".join(
        f"{pattern} {n} ({cache}): {shown(one, 2)} times"
        for (cache, pattern, n), one in gains.items()
    )
    figure += f"; rows under nvio against the fastest plain pattern ({pattern}):"
    figure += f" {shown(beside, 2)} times; block and collective: {power(same)}"
    data = {
        q.comparison.id: {
            "ratio": shown(q.ratio.ratio),
            "nvio ns": shown(q.ratio.a, 0),
            "plain ns": shown(q.ratio.b, 0),
        }
        for q in found.questions
    }
    return conclude([*grown, *same], figure, data)


def _about(question: Question) -> tuple[str, str, str]:
    levels = question.cell.levels
    return levels["cache"], levels["pattern"], levels["vertices"]


def _against_fastest_plain(found: Analysis) -> tuple[str, Interval]:
    """Whoever can change his program compares with its best pattern: ours by rows against it."""
    times = {
        view.cell.levels["pattern"]: view
        for view in found.cells
        if view.cell.replica == 1
        and view.cell.levels["vertices"] == "4000"
        and view.cell.levels["cache"] == "plain"
    }
    fastest = min(times, key=lambda name: times[name].estimates["time"].value or float("inf"))
    rows = next(q.cell for q in found.questions if _about(q) == ("nvio", "rows", "4000"))
    by_block = {(t.block, t.cell): t.values.get("time") for t in found.trials if t.status == "ok"}
    blocks = range(len(found.plan.blocks))
    plain = times[fastest].cell.id
    ratio = paired_ratio(
        [by_block.get((block, plain)) for block in blocks],
        [by_block.get((block, rows.id)) for block in blocks],
    )
    return fastest, ratio.ratio


CLAIMS = (
    Claim(
        "C4",
        "Raising a matrix to a power out of a file on GlusterFS is faster under nvio by how small"
        " the program's pieces are, close included; block-wise access loses nothing.",
        "row by row at least 3 x at n = 4000 and 2.5 x at 8000; views at least 1.15 x; block and"
        " collective with the whole interval at most 1.05 of plain's time (views with hints"
        " beside)",
        _check,
        experiments=("walks-patterns.yaml",),
        grows=True,
    ),
)
