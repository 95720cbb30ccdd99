"""What CLAIMS.md promises, each with the experiment that shows it, beside its last result.

`tare claim check ID` runs the experiment and prints one line with the figure. With `--record` the
result is kept in `claims/ID.json`, from which the results in CLAIMS.md are drawn (ledger.py), so
that no figure there was typed by hand.

CLAIMS.md says what is promised; promises.py how each is checked, as rows, or as functions that have
a file a kind of evidence.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from claims.checking import Claim, Found, Look, Result, Workshop, judge
from claims.ledger import promised
from claims.promises import CHECKS, GROW
from tare.errors import UsageError

__all__ = ["CHECKS", "Claim", "Found", "Look", "Result", "Workshop", "by_id", "every", "judge"]


@cache
def every() -> tuple[Claim, ...]:
    """Every claim, in the order of CLAIMS.md."""
    return promised(Path(__file__).parents[1], CHECKS, GROW)


def by_id(claim_id: str) -> Claim:
    """Look a claim up.

    Raises:
        UsageError: there is none of that name.
    """
    for claim in every():
        if claim.id.lower() == claim_id.lower():
            return claim
    known = ", ".join(claim.id for claim in every())
    raise UsageError(f"there is no claim {claim_id!r} to check", f"choose one of {known}")
