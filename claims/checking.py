"""What a claim is, what its parts may use, and the one function that judges what they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.stats.bounds import Bound, Kept, all_kept, look_blocks, look_confidence

if TYPE_CHECKING:
    from claims.experiments import Measured
    from tare.stats import Interval

_CONFIDENCE = 0.95
NAMED = 6
"""Figures that a line names one by one."""


@dataclass(frozen=True)
class Look:
    """One of several judgements of a figure to which blocks are added in between."""

    number: int
    """From 1 to `tare.stats.bounds.LOOKS`."""
    most: int | None
    """Blocks at the last one; four times those of the first where None."""

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
    scratch: Path
    """What is measured; later looks find there what earlier ones left."""
    say: Callable[[str], None]
    """Tells the user what is being done; checks take minutes."""
    measured: dict[str, Measured] = field(default_factory=dict)
    """Experiments that were run here, by their files: claims that rest on one share its run."""
    look: Look | None = None
    """Where blocks are added until the figure decides; None where it is judged once."""

    @property
    def confidence(self) -> float:
        """Of every interval that a claim is judged by."""
        return _CONFIDENCE if self.look is None else look_confidence(_CONFIDENCE)


@dataclass(frozen=True)
class Found:
    """What one part of a claim found; parts add up to the claim's."""

    line: str
    """Its figures in words; empty where the bounds say all."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the figures were made of."""
    bounds: tuple[Bound, ...] = ()
    """Every figure that has an interval."""
    counted: Kept = Kept.HOLDS
    """What may be said of all that has none."""


Part = Callable[[Workshop], Found]
"""Looks after one thing that was promised."""


@dataclass(frozen=True)
class Claim:
    """One numbered promise."""

    id: str
    sentence: str
    wanted: str
    """The figure that would satisfy it."""
    experiments: tuple[str, ...]
    """The shipped experiments that it runs; none where it runs the parts themselves."""
    parts: tuple[Part, ...]
    grows: bool
    """Whether blocks can be added to what was measured."""

    def check(self, workshop: Workshop) -> Result:
        """Look after every part, and judge what they found."""
        return judge([part(workshop) for part in self.parts])


@dataclass(frozen=True)
class Result:
    """What a check found, judged."""

    verdict: Kept
    figure: str
    """One line with the figures and their intervals."""
    data: Mapping[str, Any]
    """What the figures were made of, and the bounds, so that they can be judged again."""

    @property
    def holds(self) -> bool:
        """Whether every bound is kept."""
        return self.verdict is Kept.HOLDS

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"verdict": self.verdict.value, "figure": self.figure, "data": dict(self.data)}


def judge(parts: Iterable[Found]) -> Result:
    """Judge by whole intervals; say of which bounds the verdict is, and what would have been seen.

    The line of the figures is followed by how large a loss would have been found in the noisiest of
    those that may not be slower, and by what is not kept, or not decided, and how many blocks more
    would decide.
    """
    every = list(parts)
    bounds = [bound for part in every for bound in part.bounds]
    verdict = all_kept([*(bound.kept for bound in bounds), *(part.counted for part in every)])
    said = [part.line for part in every if part.line] + _power(bounds)
    said += _of(bounds, Kept.FAILS) + _of(bounds, Kept.INCONCLUSIVE)
    data = {name: value for part in every for name, value in part.data.items()}
    if bounds:
        data["bounds"] = {bound.name: _numbers(bound) for bound in bounds}
    return Result(verdict, "; ".join(said), data)


def _numbers(bound: Bound) -> dict[str, Any]:
    return {
        "interval": [bound.found.estimate, bound.found.low, bound.found.high],
        "confidence": bound.found.confidence,
        "blocks": bound.found.n,
        "least": bound.least,
        "most": bound.most,
        "verdict": bound.kept.value,
    }


def _power(bounds: Iterable[Bound]) -> list[str]:
    """How large a loss would have been found where only little may be lost."""
    asked = [b for b in bounds if b.ratio and b.most is not None and b.most >= 1]
    known = {bound: loss for bound in asked if (loss := bound.would_be_found) is not None}
    if not known:
        return ["no loss of any size would have been found"] if asked else []
    worst = max(known, key=lambda bound: known[bound])
    return [
        f"with {worst.found.n} blocks and this noise a ratio of {known[worst]:.2f} ({worst.name})"
        " would have been found 80 times in 100"
    ]


def _of(bounds: Iterable[Bound], verdict: Kept) -> list[str]:
    """The bounds of one verdict; of many, the hardest to decide stands for the others."""
    found = [bound for bound in bounds if bound.kept is verdict]
    if len(found) <= NAMED:
        return [f"{verdict}: {_wanted(bound)}" for bound in found]
    hardest = max(found, key=lambda b: math.inf if b.blocks_more is None else b.blocks_more)
    return [f"{verdict}: {len(found)} figures, such as {_wanted(hardest)}"]


def _wanted(bound: Bound) -> str:
    ends = (("at least", bound.least), ("at most", bound.most))
    wanted = " and ".join(f"{word} {end:.4g}" for word, end in ends if end is not None)
    wanted = f"wanted {wanted or 'a figure'}"
    if bound.kept is not Kept.INCONCLUSIVE:
        return f"{bound.name} ({wanted})"
    if not bound.found.resolved:
        return f"{bound.name} ({wanted}; no verdict follows from {bound.found.n} blocks)"
    more = bound.blocks_more
    blocks = "no number of blocks in reach" if more is None else f"some {more} blocks more"
    return f"{bound.name} ({wanted}; {blocks} would decide)"


def shown(interval: Interval, digits: int = 3) -> str:
    """An estimate with its interval, as every figure here is written."""
    if interval.estimate is None or interval.low is None or interval.high is None:
        return "unresolved"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
