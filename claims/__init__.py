"""What CLAIMS.md promises, each with the experiment that shows it: one file a kind of evidence.

`tare claim check ID` runs the experiment and prints one line with the figure. With `--record` the
result is kept in `claims/ID.json`, from which the results in CLAIMS.md are drawn (ledger.py), so
that no figure there was typed by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import UsageError
from tare.stats.bounds import Bound, Kept, all_kept, look_blocks, look_confidence

if TYPE_CHECKING:
    from tare.analysis import Analysis
    from tare.stats import Interval

__all__ = ["Claim", "Look", "Result", "Workshop", "by_id", "conclude", "every", "power", "shown"]

_CONFIDENCE = 0.95
_NAMED = 6
"""Bounds of one verdict that a line names one by one."""


@dataclass(frozen=True)
class Look:
    """One of several judgements of a figure to which blocks are added in between."""

    number: int
    """From 1 to `tare.stats.bounds.LOOKS`."""
    most: int | None
    """Blocks at the last one; four times those of the first where None."""
    folder: Path
    """What was measured for the looks before, to which this one adds."""

    def blocks(self, least: int) -> int:
        """Blocks of this look, of an experiment that takes so many at the first."""
        return look_blocks(least, 4 * least if self.most is None else self.most, self.number)


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
    look: Look | None = None
    """Where blocks are added until the figure decides; None where it is judged once."""

    @property
    def confidence(self) -> float:
        """Of every interval that a claim is judged by."""
        return _CONFIDENCE if self.look is None else look_confidence(_CONFIDENCE)


@dataclass(frozen=True)
class Result:
    """What a check found."""

    verdict: Kept
    figure: str
    """One line with the figure and its interval."""
    data: Mapping[str, Any]
    """What the figure was made of."""

    @property
    def holds(self) -> bool:
        """Whether every bound is kept."""
        return self.verdict is Kept.HOLDS

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"verdict": self.verdict.value, "figure": self.figure, "data": dict(self.data)}


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
    grows: bool = False
    """Whether blocks can be added to what was measured (`Workshop.look`)."""


def conclude(
    bounds: Iterable[Bound], figure: str, data: Mapping[str, Any], *, counted: bool = True
) -> Result:
    """Judge by whole intervals, and say of which bounds the verdict is.

    Args:
        bounds: every figure that has an interval.
        figure: the line to which it is added what is not kept, or not decided, and how many blocks
            more would decide.
        data: kept with the bounds, so that they can be judged again.
        counted: whether everything is kept that has no interval.
    """
    every = list(bounds)
    verdict = all_kept([*(bound.kept for bound in every), Kept.counted(counted)])
    said = [figure, *_said(every, Kept.FAILS), *_said(every, Kept.UNDECIDED)]
    numbers = {
        bound.name: {
            "interval": [bound.found.estimate, bound.found.low, bound.found.high],
            "confidence": bound.found.confidence,
            "blocks": bound.found.n,
            "least": bound.least,
            "most": bound.most,
            "verdict": bound.kept.value,
        }
        for bound in every
    }
    return Result(verdict, "; ".join(said), {**data, "bounds": numbers})


def _said(bounds: Iterable[Bound], verdict: Kept) -> list[str]:
    """The bounds of one verdict; of many, the hardest to decide stands for the others."""
    found = [bound for bound in bounds if bound.kept is verdict]
    if len(found) <= _NAMED:
        return [f"{verdict}: {_wanted(bound)}" for bound in found]
    hardest = max(found, key=lambda b: math.inf if b.blocks_more is None else b.blocks_more)
    return [f"{verdict}: {len(found)} figures, such as {_wanted(hardest)}"]


def _wanted(bound: Bound) -> str:
    ends = (("at least", bound.least), ("at most", bound.most))
    wanted = " and ".join(f"{word} {end:.4g}" for word, end in ends if end is not None)
    if bound.kept is not Kept.UNDECIDED:
        return f"{bound.name} (wanted {wanted})"
    if not bound.found.resolved:
        return f"{bound.name} (wanted {wanted}; {bound.found.n} blocks give no interval)"
    more = bound.blocks_more
    blocks = "no number of blocks in reach" if more is None else f"some {more} blocks more"
    return f"{bound.name} (wanted {wanted}; {blocks} would decide)"


def power(bounds: Iterable[Bound]) -> str:
    """Say how large a loss would have been found in the noisiest of some figures."""
    known = {b: loss for b in bounds if (loss := b.would_be_found) is not None}
    if not known:
        return "no loss of any size would have been found"
    worst = max(known, key=lambda bound: known[bound])
    return (
        f"with {worst.found.n} blocks and this noise a ratio of {known[worst]:.2f} ({worst.name})"
        " would have been found 80 times in 100"
    )


def shown(interval: Interval, digits: int = 3) -> str:
    """An estimate with its interval, as every figure here is written."""
    if interval.estimate is None or interval.low is None or interval.high is None:
        return "unresolved"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


@cache
def every() -> tuple[Claim, ...]:
    """Every claim that this version can check, in order."""
    from claims import (  # noqa: PLC0415
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
    return tuple(sorted(found, key=lambda claim: (claim.id[0], int(claim.id[1:]))))


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
