"""What CLAIMS.md promises, each with the experiment that shows it, beside its last result.

`tare claim check ID` runs the experiment and prints one line with the figure. With `--record` the
result is kept in `claims/ID.json`, from which the results in CLAIMS.md are drawn (ledger.py), so
that no figure there was typed by hand.

The claims themselves are the rows of promises.py; what is no row has a file a kind of evidence.
"""

from __future__ import annotations

from claims.checking import Claim, Found, Look, Result, Workshop, judge
from claims.promises import CLAIMS
from tare.errors import UsageError

__all__ = ["CLAIMS", "Claim", "Found", "Look", "Result", "Workshop", "by_id", "judge"]


def by_id(claim_id: str) -> Claim:
    """Look a claim up.

    Raises:
        UsageError: there is none of that name.
    """
    for claim in CLAIMS:
        if claim.id.lower() == claim_id.lower():
            return claim
    known = ", ".join(claim.id for claim in CLAIMS)
    raise UsageError(f"there is no claim {claim_id!r} to check", f"choose one of {known}")
