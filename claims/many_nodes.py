"""C10: a job of many nodes: its connections, opens and syncs, and what becomes of a lost node."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from claims.benchmarks import document
from claims.checking import Found, Workshop
from claims.rows import bounded, told
from tare.command import Command
from tare.stats import paired_ratio
from tare.stats.bounds import Kept

_NODES, _RANKS = (4, 8, 16, 32, 64), 256
_REPEATS, _ROUNDS = 8, 20
_MOST = 3.0
"""Times of an open and a sync at the most nodes over those at the fewest."""
_EIO = 5


def growth(workshop: Workshop) -> Found:
    """C10: connections counted, times at 64 nodes over those at 4, errors within the silence.

    Each repeat is a job of its own at every number of nodes, in an order that is turned round.
    """
    workshop.say(
        f"{_RANKS} ranks on {', '.join(map(str, _NODES))} simulated nodes, {_REPEATS} jobs each"
    )
    program = str(workshop.programs / "nvio/nvio-bench")
    sizes = ("--ranks", str(_RANKS), "--nodes", *map(str, _NODES))
    often = ("--repeats", str(_REPEATS), "--rounds", str(_ROUNDS))
    argv = (program, "scale", "--no-direct", *sizes, *often)
    data = document(Command(argv))
    jobs: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for job in data["jobs"]:
        jobs[job["nodes"]].append(job)
    fewest, most = min(jobs), max(jobs)
    ratios = {
        f"{phase} at {most} nodes over {fewest}": paired_ratio(
            [job[f"{phase}_s"] for job in jobs[most]], [job[f"{phase}_s"] for job in jobs[fewest]]
        ).ratio
        for phase in ("open", "sync")
    }
    bounds = tuple(bounded(ratios, most=_MOST))
    sockets = {nodes: max(job["most_sockets"] for job in jobs[nodes]) for nodes in sorted(jobs)}
    as_nodes = all(held <= _allowed(nodes) for nodes, held in sockets.items())
    lost = [job["lost"] for job in data["jobs"] if "lost" in job]
    silences = [one[f"{how}_s"] / one["silence_s"] for one in lost for how in ("stopped", "killed")]
    errors = {one[f"{how}_error"] for one in lost for how in ("stopped", "killed")}
    in_time = len(lost) >= len(jobs) and errors == {_EIO} and max(silences) <= 1
    figure = (
        f"{told(bounds)}; a manager's connections at {', '.join(map(str, sockets))} nodes:"
        f" {', '.join(map(str, sockets.values()))} (ranks of its node and other nodes at most);"
        f" {len(silences)} managers stopped or killed: an error at each, after"
        f" {max(silences, default=math.nan):.0%} of the silence at most"
    )
    whole = set(jobs) == set(_NODES) and all(len(one) >= _REPEATS for one in jobs.values())
    return Found(figure, data, bounds, Kept.counted(whole and as_nodes and in_time))


def _allowed(nodes: int) -> int:
    """Connections of a manager that grow as nodes: its own ranks, and one for each other node."""
    return math.ceil(_RANKS / nodes) + nodes - 1
