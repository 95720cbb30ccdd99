"""E5: no result stands in CLAIMS.md as one of what is here that is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import claims
from claims import ledger
from claims.checking import Found, Workshop
from claims.subjects import is_source
from tare import process
from tare.command import Command
from tare.stats.bounds import Kept

_TIMEOUT_S = 60.0
_NO_SUCH_COMMIT = 128
"""What git ends with then."""


def current_or_pending(workshop: Workshop) -> Found:
    """Beside the digests: what git says has changed since the commits of results that stand."""
    drawn = ledger.table(workshop.home, claims.every()) in (workshop.home / "CLAIMS.md").read_text(
        encoding="utf-8"
    )
    pending, stale = {}, {}
    for claim in claims.every():
        if claim.id == "E5":  # what is being found out
            continue
        if why := ledger.pending(workshop.home, claim):
            pending[claim.id] = why
        elif later := _changed(workshop.home, ledger.commit(workshop.home, claim), claim):
            stale[claim.id] = later
    standing = len(claims.every()) - len(pending)
    line = (
        f"{standing} of {len(claims.every())} claims have a result of what is here,"
        f" {len(stale)} of them an older one by git's account; the others read pending"
    )
    return Found(
        line if drawn else f"{line}; CLAIMS.md is not drawn from these results",
        {"pending": pending, "stale": stale},
        counted=Kept.counted(drawn and not stale),
    )


def _changed(home: Path, commit: str, claim: claims.Claim) -> Sequence[str]:
    """Sources of a figure that are others now than at a commit; what git says if it is not here."""
    words = ("git", "-C", str(home), "diff", "--name-only", commit, "--", *ledger.subjects(claim))
    said = process.run(Command(words), _TIMEOUT_S, accept=(0, _NO_SUCH_COMMIT))
    if said.stderr:
        return [said.stderr.strip()]
    return [path for path in said.stdout.splitlines() if is_source(Path(path))]
