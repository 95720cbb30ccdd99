"""C5: synchronous against asynchronous writes to the cache, as the paper's Fig. 2 has them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from claims import Claim, Result, Workshop, shown
from claims.shipped import run_shipped
from tare.stats.bounds import Kept

_EXPERIMENTS = ("nvram-cache-writes.yaml", "write-latency.yaml")
_LATENCIES = ("p50", "p99")


def _check(workshop: Workshop) -> Result:
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        powers, latency = (run_shipped(workshop, name, Path(folder)) for name in _EXPERIMENTS)
    times = {q.cell.levels["power"]: q.ratio.ratio for q in powers.questions}
    calls = {
        f"{q.cell.levels['ranks']} ranks {name}": q.others[name].ratio
        for q in latency.questions
        for name in _LATENCIES
    }
    found = {**{f"power {power}": ratio for power, ratio in times.items()}, **calls}
    measured = all(ratio.low is not None for ratio in found.values())
    figure = "synchronous over asynchronous: " + ", ".join(
        f"{name} {shown(ratio, 2)}" for name, ratio in found.items()
    )
    return Result(
        Kept.counted(measured), figure, {name: shown(ratio) for name, ratio in found.items()}
    )


CLAIMS = (
    Claim(
        "C5",
        "Synchronous against asynchronous writes: run time as in the paper's Fig. 2, and what a"
        " single write waits under load.",
        "measured, with intervals (the paper: 30 % less time for small powers)",
        _check,
        experiments=_EXPERIMENTS,
    ),
)
