"""What CLAIMS.md promises, each with the experiment that shows it: one file a kind of evidence.

`tare claim check ID` runs the experiment and prints one line with the figure. With `--record` the
result is kept in `claims/ID.json`, from which the results in CLAIMS.md are drawn (ledger.py), so
that no figure there was typed by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import UsageError

if TYPE_CHECKING:
    from tare.analysis import Analysis
    from tare.stats import Interval

__all__ = ["Claim", "Result", "Workshop", "by_id", "every", "shown"]


@dataclass(frozen=True)
class Workshop:
    """What a check may use."""

    home: Path
    """The checkout: experiments, benchmarks, scripts."""
    programs: Path
    """The build directory."""
    cache: Path
    """Kept between runs: guest images."""
    say: Callable[[str], None]
    """Tells the user what is being done; checks take minutes."""
    analyses: dict[str, Analysis] = field(default_factory=dict)
    """Of experiments that were run for an earlier claim and serve another, by their files."""


@dataclass(frozen=True)
class Result:
    """What a check found."""

    holds: bool
    figure: str
    """One line with the figure and its interval."""
    data: Mapping[str, Any]
    """What the figure was made of."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"holds": self.holds, "figure": self.figure, "data": dict(self.data)}


@dataclass(frozen=True)
class Claim:
    """One numbered promise."""

    id: str
    sentence: str
    wanted: str
    """The figure that would satisfy it."""
    check: Callable[[Workshop], Result]
    experiments: tuple[str, ...] = ()
    """The shipped experiments that it runs; none where it runs the parts themselves."""


def shown(interval: Interval, digits: int = 3) -> str:
    """An estimate with its interval, as every figure here is written."""
    if interval.estimate is None or interval.low is None or interval.high is None:
        return "unresolved"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


@cache
def every() -> tuple[Claim, ...]:
    """Every claim that this version can check, in order."""
    from tare.claims import (  # noqa: PLC0415
        account,
        campaigns,
        crash,
        equivalence,
        instrument,
        layers,
        lost_host,
        migration,
        migration_parts,
        nodes,
        patterns,
        peers,
        prediction,
        product,
        rounds,
        run_times,
        simulation,
        small_pieces,
        speed,
        writes,
    )

    found = (
        *peers.CLAIMS,
        *simulation.CLAIMS,
        *account.CLAIMS,
        *equivalence.CLAIMS,
        *speed.CLAIMS,
        *crash.CLAIMS,
        *prediction.CLAIMS,
        *instrument.CLAIMS,
        *layers.CLAIMS,
        *lost_host.CLAIMS,
        *rounds.CLAIMS,
        *migration.CLAIMS,
        *migration_parts.CLAIMS,
        *campaigns.CLAIMS,
        *small_pieces.CLAIMS,
        *nodes.CLAIMS,
        *writes.CLAIMS,
        *patterns.CLAIMS,
        *product.CLAIMS,
        *run_times.CLAIMS,
    )
    return tuple(sorted(found, key=lambda claim: claim.id))


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
