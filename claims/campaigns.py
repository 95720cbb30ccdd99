"""C1, C6 and C13: nvio's own long campaigns: sameness, crashes, jobs beside each other.

They resume: what a campaign has done in this build is not done again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from claims import Claim, Result, Workshop
from tare import process
from tare.command import Command
from tare.filesystems import named
from tare.stats.bounds import Kept
from tare.testing.site import site_for

_PART_S = 3600.0
"""The longest part of a campaign: all simulated crash points, or a suite with its building."""
_POINTS, _KILLS = 10_000, 200
_PAIRS = 1_000
_ORACLES = 0.95
"""The least share of pairs in which plain MPI itself left the right bytes."""


def _campaign(workshop: Workshop, name: str, takes: str, *more: str) -> dict[str, Any]:
    workshop.say(f"nvio's campaign '{name}': {takes}; it goes on where it stopped")
    script = workshop.home / "nvio/conformance/campaign.py"
    build = str(workshop.programs / "nvio")
    argv = (sys.executable, str(script), name, "--build", build, "--json", *more)
    with process.start(Command(argv)) as running:
        while "result" not in (event := running.event(_PART_S)):
            workshop.say(f"{event['done']} of {event['wanted']} parts done, {event['part']} last")
        # 1: a failure, 3: parts are missing. Both are results.
        running.finish(60.0, accept=(0, 1, 3))
    found: dict[str, Any] = event["result"]
    return found


def _progress(found: dict[str, Any]) -> str:
    return f"{found['done']} of {found['wanted']} parts done, {found['failed']} failures"


def _verdict(found: dict[str, Any], *, enough: bool = True) -> Kept:
    """A failure decides at once; that there is none, only once everything was tried."""
    if found["holds"] is False:
        return Kept.FAILS
    return Kept.HOLDS if found["holds"] and enough else Kept.UNDECIDED


def _check_same(workshop: Workshop) -> Result:
    found = _campaign(workshop, "same", "about an hour")
    passed = sum(total.get("passed", 0) for total in found["totals"].values())
    figure = f"{_progress(found)}; {passed} programs passed under nvio as with plain MPI"
    return Result(_verdict(found), figure, found)


def _check_crash(workshop: Workshop) -> Result:
    found = _campaign(workshop, "crash", "some ten minutes")
    points = sum(total.get("points", 0) for total in found["totals"].values())
    kills = sum(total.get("kills", 0) for total in found["totals"].values())
    figure = (
        f"{points} simulated crash points, {kills} kill -9: {found['failed']} files inconsistent"
        f" with the last sync ({_progress(found)})"
    )
    enough = points >= _POINTS and kills >= _KILLS
    return Result(_verdict(found, enough=enough), figure, found)


def _check_beside(workshop: Workshop) -> Result:
    with (
        tempfile.TemporaryDirectory(dir=workshop.programs) as disk,
        tempfile.TemporaryDirectory() as folder,
        site_for("native", Path(folder), workshop.programs, workshop.cache) as (_, site),
        named("glusterfs").mounted(site) as mounted,
        mounted.fresh() as remote,
    ):
        data = ("--data", f"ext4={disk}", "--data", f"glusterfs={remote}")
        found = _campaign(workshop, "beside", "about two hours", "--pairs", str(_PAIRS), *data)
    passed = sum(total.get("passed", 0) for total in found["totals"].values())
    figure = f"{passed} pairs of jobs left the right bytes, gaps included ({_progress(found)})"
    enough = passed >= 2 * _PAIRS * _ORACLES
    return Result(_verdict(found, enough=enough), figure, found)


CLAIMS = (
    Claim(
        "C1",
        "Whatever passes with plain MPI passes under nvio: own random programs, and the suites of"
        " mpi4py, HDF5 and PnetCDF.",
        "own (on 1, 2 and 4 nodes) and mpi4py 100 times, HDF5 and PnetCDF 10 times, both MPIs: no"
        " failure",
        _check_same,
    ),
    Claim(
        "C6",
        "After a crash at any moment every file is as the last sync left it, and recovery can be"
        " repeated.",
        f"{_POINTS} simulated crash points and {_KILLS} kill -9: zero files inconsistent",
        _check_crash,
    ),
    Claim(
        "C13",
        "Two jobs may write disjoint bytes of one file at once, both under nvio or one of them: no"
        " byte is lost, and none is written that no program wrote.",
        f"{_PAIRS} pairs of random programs on each MPI, on ext4 and GlusterFS, beside a process"
        " that keeps writing the gaps: every byte as it was written last",
        _check_beside,
    ),
)
