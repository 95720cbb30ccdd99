"""C1 and C6: nvio's own long campaigns, of sameness and of crashes.

They resume: what a campaign has done in this build is not done again.
"""

from __future__ import annotations

import sys
from typing import Any

from tare import process
from tare.claims import Claim, Result, Workshop
from tare.command import Command
from tare.stats.bounds import Kept

_PART_S = 3600.0
"""The longest part of a campaign: all simulated crash points, or a suite with its building."""
_POINTS, _KILLS = 10_000, 200


def _campaign(workshop: Workshop, name: str, takes: str) -> dict[str, Any]:
    workshop.say(f"nvio's campaign '{name}': {takes}; it goes on where it stopped")
    script = workshop.home / "nvio/conformance/campaign.py"
    build = str(workshop.programs / "nvio")
    argv = (sys.executable, str(script), name, "--build", build, "--json")
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
)
