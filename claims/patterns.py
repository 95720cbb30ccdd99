"""C4: rows under nvio beside the fastest pattern without it."""

from __future__ import annotations

from claims.checking import Found, Workshop
from claims.experiments import run_shipped
from claims.rows import bounded, told

_WALKS = "walks-patterns.yaml"
_PLAIN = "plain/4000/"
_OURS = "nvio/4000/rows"


def against_fastest_plain(workshop: Workshop) -> Found:
    """Whoever can change his program compares with its best pattern: ours by rows against it."""
    measured = run_shipped(workshop, _WALKS)
    views = [view for view in measured.analysis.cells if view.cell.replica == 1]
    plain = [view for view in views if view.cell.id.startswith(_PLAIN)]
    fastest = min(plain, key=lambda view: view.estimates["time"].value or float("inf")).cell.id
    ratio = measured.ratio(fastest, _OURS, "time", workshop.confidence)
    return Found(told(bounded({f"{fastest}, the fastest, over {_OURS}": ratio.ratio})))
