"""Adds blocks to what a claim measured until it decides, and keeps the chance of an error.

How often it is judged, and at how many blocks, is fixed before the first look and kept beside what
was measured, so that a later call goes on with the same looks (`stats/bounds.py` says why).
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from claims import ledger
from claims.checking import Claim, Look, Result, Workshop
from claims.subjects import changed, digests
from tare import machine, units
from tare.errors import UsageError
from tare.stats.bounds import LOOKS, Kept


@dataclass(frozen=True)
class Most:
    """Where adding blocks ends at the latest."""

    blocks: int | None
    """Of each experiment; four times those of the first look where None."""
    seconds: float
    """No look begins that is not expected to end within it."""

    @classmethod
    def of(cls, said: str | None) -> Most:
        """Read "40" as blocks and "2h" as a time; None bounds neither.

        Raises:
            UsageError: it is neither.
        """
        if said is None or said.isdecimal():
            return cls(None if said is None else int(said), math.inf)
        return cls(None, units.duration(said, "a number of blocks, or a time such as 2h") / 1e9)


def decide(claim: Claim, workshop: Workshop, most: Most, folder: Path) -> Result:
    """Judge a claim, and where that decides nothing add blocks and judge it again.

    Args:
        claim: what is asked.
        workshop: of the check.
        most: where it ends, decided or not.
        folder: keeps what was measured; a call that finds it goes on with it.

    Raises:
        UsageError: no blocks can be added, or an earlier call fixed its looks otherwise, or what
            it measured was of another machine, or made by something else.
    """
    if not claim.grows:
        raise UsageError(
            f"no blocks can be added to what {claim.id} measures",
            "check it without --until-decided",
        )
    _go_on(claim, workshop, most, folder)
    began = time.monotonic()
    for number in range(1, LOOKS + 1):
        start = time.monotonic()
        look = Look(number, most.blocks)
        result = claim.check(replace(workshop, scratch=folder, look=look, measured={}))
        took = time.monotonic() - start
        if result.verdict is not Kept.INCONCLUSIVE or start + 2 * took - began > most.seconds:
            break
    return replace(result, data={**result.data, "looks": [number, LOOKS]})


def _go_on(claim: Claim, workshop: Workshop, most: Most, folder: Path) -> None:
    """Fix the looks at a claim, or find them fixed as now, at what the claim is made by now."""
    asked = {"looks": LOOKS, "blocks at most": most.blocks}
    subjects = ledger.subjects(claim)
    here = machine.fingerprint(workshop.programs)
    kept = folder / "looks.json"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made_by = digests(workshop.home, subjects)
        kept.write_text(json.dumps({"asked": asked, "made by": made_by, "machine": here}))
        return
    try:
        found = json.loads(kept.read_bytes())
    except ValueError:
        found = {}  # cut short by a kill: nobody knows what was fixed
    if found.get("asked") != asked:
        raise UsageError(
            f"the looks at {claim.id} were fixed before the first: {found.get('asked')}",
            f"give the same --at-most, or remove {folder} and begin again",
        )
    before = {room: found["made by"].get(room, "") for room in subjects}
    others = changed(workshop.home, before) + machine.changed(found["machine"], here, ())
    if others:
        raise UsageError(
            f"no blocks can be added to {folder}: since it began, {', '.join(others)} changed",
            f"remove {folder}, and begin again",
        )
