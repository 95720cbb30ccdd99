"""C1, C6, C9 and C13: nvio's own long campaigns: sameness, crashes, types, jobs beside each other.

They resume: what a campaign has done in this build is not done again.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from claims.checking import Found, Workshop
from tare import process
from tare.command import Command
from tare.filesystems import named
from tare.stats.bounds import Kept
from tare.testing.site import site_for

_PART_S = 3600.0
"""The longest part of a campaign: all simulated crash points, or a suite with its building."""
_POINTS, _KILLS = 10_000, 200
_PROGRAMS = 5_000
_PAIRS = 1_000
_ORACLES = 0.95
"""The least share of programs and pairs in which plain MPI itself gets by."""


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


def _found(found: dict[str, Any], what: str, *, enough: bool = True) -> Found:
    """A failure decides at once; that there is none, only once everything was tried."""
    verdict = Kept.HOLDS if found["holds"] and enough else Kept.INCONCLUSIVE
    if found["holds"] is False:
        verdict = Kept.FAILS
    progress = f"{found['done']} of {found['wanted']} parts done, {found['failed']} failures"
    return Found(f"{progress}; {what}", found, counted=verdict)


def _total(found: dict[str, Any], what: str, kinds: str = "") -> int:
    """Of all parts, or of those whose kind begins so."""
    totals = found["totals"].items()
    return sum(total.get(what, 0) for kind, total in totals if kind.startswith(kinds))


def _is_served(found: dict[str, Any], kinds: str = "") -> bool:
    """Whether programs of each kind were served, and on several nodes by one another."""
    return _total(found, "passed", kinds) > _total(found, "skipped", kinds) and all(
        one.get("served", 0) > 0 and ("/1 nodes" in kind or one.get("remote", 0) > 0)
        for kind, one in found["totals"].items()
        if kind.startswith(kinds)
    )


def same(workshop: Workshop) -> Found:
    """C1: whatever passes with plain MPI passes under nvio."""
    found = _campaign(workshop, "same", "about an hour")
    passed = _total(found, "passed")
    figure = f"{passed} programs passed under nvio as with plain MPI"
    enough = _is_served(found, "own/") and not _total(found, "unbuilt")
    return _found(found, figure, enough=enough)


def crashes(workshop: Workshop) -> Found:
    """C6: files are as the last sync left them."""
    found = _campaign(workshop, "crash", "some ten minutes")
    points, kills = _total(found, "points"), _total(found, "kills")
    figure = (
        f"{points} simulated crash points, {kills} kill -9: {found['failed']} files inconsistent"
        " with the last sync"
    )
    return _found(found, figure, enough=points >= _POINTS and kills >= _KILLS)


def types(workshop: Workshop) -> Found:
    """C9: views of derived datatypes are served without the MPI's windows."""
    found = _campaign(workshop, "types", "about two hours", "--programs", str(_PROGRAMS))
    passed = _total(found, "passed")
    figure = f"{passed} programs of random datatypes found each byte in its place, by nvio alone"
    enough = passed >= 2 * _PROGRAMS * _ORACLES and _is_served(found)
    return _found(found, figure, enough=enough)


def beside(workshop: Workshop) -> Found:
    """C13: two jobs write disjoint bytes of one file."""
    with (
        tempfile.TemporaryDirectory(dir=workshop.programs) as disk,
        site_for("native", workshop.programs, workshop.cache) as (_, site),
        named("glusterfs").mounted(site) as mounted,
        mounted.fresh() as remote,
    ):
        data = ("--data", f"ext4={disk}", "--data", f"glusterfs={remote}")
        found = _campaign(workshop, "beside", "about two hours", "--pairs", str(_PAIRS), *data)
    passed = _total(found, "passed")
    figure = f"{passed} pairs of jobs left the right bytes, gaps included"
    return _found(found, figure, enough=passed >= 2 * _PAIRS * _ORACLES)
