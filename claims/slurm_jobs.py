"""C11: jobs of both MPIs under a real Slurm, many of them killed by their time limit."""

from __future__ import annotations

import re
import sys
from typing import Any

from claims.checking import Found, Workshop
from tare import process
from tare.command import Command
from tare.errors import TrialError
from tare.stats.bounds import Kept

_MPIS = ("mpich", "openmpi")
_ENDED, _KILLED = 15, 10
"""Jobs on each MPI."""
_TIMEOUT_S = 3600.0
_SKIPPED = 77
_TOLD = re.compile(
    r"(?P<ended>\d+) jobs ended, (?P<killed>\d+) were killed \((?P<limit>\d+) at their limit\), "
    r"(?P<wrong>\d+) files wrong"
)


def jobs(workshop: Workshop) -> Found:
    """C11: every file is as plain MPI leaves it, or as its last sync did."""
    found = {mpi: _jobs_of(workshop, mpi) for mpi in _MPIS}
    sums = {name: sum(one[name] for one in found.values()) for name in _TOLD.groupindex}
    figure = (
        f"{sums['ended']} jobs ended and {sums['killed']} were killed, {sums['limit']} of these at"
        f" their limit and the others by the SIGTERM before it: {sums['wrong']} files wrong"
    )
    counted = Kept.counted(sums["wrong"] == 0)
    # A program without an oracle, as plain MPI's own runs differ, is no job that was judged.
    # Nor is one killed that failed by itself: all but every fourth have to meet their limit.
    at_limit = (_KILLED - -(-_KILLED // 4)) * len(_MPIS)
    whole = sums["ended"] == _ENDED * len(_MPIS) and sums["limit"] >= at_limit
    if counted is Kept.HOLDS and not whole:
        counted = Kept.INCONCLUSIVE
    return Found(figure, found, counted=counted)


def _jobs_of(workshop: Workshop, mpi: str) -> dict[str, Any]:
    workshop.say(f"jobs of {mpi} under Slurm: some ten minutes, since limits are whole minutes")
    script = workshop.home / "nvio/conformance/slurm.py"
    argv = [sys.executable, str(script), "--build", str(workshop.programs / "nvio"), "--mpi", mpi]
    argv += ["--only-jobs", "--limits", "slurm", "--data", str(workshop.programs)]
    argv += ["--ended", str(_ENDED), "--killed", str(_KILLED)]
    out = process.run(Command(tuple(argv)), _TIMEOUT_S, accept=(0, 1, _SKIPPED)).stdout
    told = _TOLD.search(out)
    if told is None:
        raise TrialError(f"the jobs of {mpi} did not run: {out.strip()}", "see its words")
    return {name: int(count) for name, count in told.groupdict().items()} | {"said": out}
