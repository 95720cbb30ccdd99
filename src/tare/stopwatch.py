"""Where the wall time of a run goes: one thing at a time, so that all of it is accounted for.

What is done is told as it begins; the time until the next telling is its own. So a workload says
when it stops starting programs and measures, and what nobody tells anything of stays with what was
told last.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

PHASES = (
    "setting up", "calibrating", "starting", "warming up", "accounting", "measuring", "ending",
    "recording", "taking down", "analysing",
)  # fmt: skip
"""Setting up: namespaces and boots. Starting: processes, until they are ready; for a DDS, until
both have found each other. Accounting: what all threads have consumed, before and after. Ending:
until the processes are gone. Recording: samples and trials, synced to disk. Analysing: intervals
after each block."""


@dataclass(frozen=True)
class Spent:
    """What was done in one place."""

    place: str
    """A cell, an environment, or the run."""
    times: int
    """How often it was come to."""
    seconds: dict[str, float]
    """Phase -> wall time in all."""


class Stopwatch:
    """Adds up phases by place; made when the run begins.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._place, self._phase = "the run", "setting up"
        self._found: dict[str, Spent] = {}

    def at(self, place: str, phase: str) -> None:
        """Come to a place, and begin a phase there."""
        self.back(place, phase)
        row = self._row()
        self._found[place] = Spent(place, row.times + 1, row.seconds)

    def back(self, place: str, phase: str) -> None:
        """Begin the next phase at a place that was not left for long: it counts as one coming."""
        self._stop()
        self._place, self._phase = place, phase

    def now(self, phase: str) -> None:
        """Begin the next phase at the same place."""
        self._stop()
        self._phase = phase

    def rows(self) -> tuple[Spent, ...]:
        """Everything up to now, in the order of coming."""
        self._stop()
        return tuple(self._found.values())

    @property
    def seconds(self) -> float:
        """Wall time since it was made."""
        return self._clock() - self._began

    def _stop(self) -> None:
        now, row = self._clock(), self._row()
        row.seconds[self._phase] = row.seconds.get(self._phase, 0.0) + now - self._last
        self._last = now

    def _row(self) -> Spent:
        return self._found.setdefault(self._place, Spent(self._place, 0, {}))


class Pace:
    """How long a block takes: as planned at first, then as seen."""

    def __init__(self, planned: float) -> None:
        self.seconds_a_block = planned
        self._began = 0.0
        self._seen: list[float] = []

    def block_begins(self) -> None:
        """One begins."""
        self._began = time.monotonic()

    def block_ends(self) -> None:
        """It ends, and is counted."""
        seconds = time.monotonic() - self._began
        if seconds > 1.0:  # a block that was on record already takes no time
            self._seen.append(seconds)
            self.seconds_a_block = sum(self._seen) / len(self._seen)
