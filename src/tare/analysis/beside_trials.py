"""What the machine did beside the trials, and what the instrument cost, over all of them.

What a trial did not record is left out, never taken for zero.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from tare.clocks import Clock
from tare.record import Trial

LOAD = "load average over 1 min"
STOLEN = "time stolen by the hypervisor below"
WAITED = "time in which some task waited for "
_CALIBRATED = tuple(field.name for field in fields(Clock))
FLOOR = "floor_ns"
_FEWEST_FOR_P95 = 20
"""Below it, the 95th percentile is the largest value."""


@dataclass(frozen=True)
class Spread:
    """Values of trials, in their unit."""

    median: float
    least: float
    p95: float | None
    """None where there are too few to tell it from the largest."""
    most: float
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Summarise what is there of some values; None where nothing is."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    resolved = len(known) >= _FEWEST_FOR_P95
    return Spread(
        median=statistics.median(known),
        least=known[0],
        p95=statistics.quantiles(known, n=20, method="inclusive")[-1] if resolved else None,
        most=known[-1],
        n=len(known),
    )


def rate(trial: Trial, count: float | None, one: float = 1.0) -> float | None:
    """A counter over the trial's time, a second; `one` is how many of it make a unit."""
    seconds = trial.machine.seconds
    return None if count is None or not seconds else count / one / seconds


def stolen(trial: Trial) -> float | None:
    """What the hypervisor below took while a trial ran, as a share of one processor's time."""
    return rate(trial, trial.machine.steal_ns, 1e9)


def waited(trial: Trial, what: str) -> float | None:
    """Share of a trial in which some task waited for `cpu`, `memory` or `io`.

    The clock and the kernel's counter are read one after the other: of a short trial that waited
    all the time the quotient may exceed the whole, which a share cannot.
    """
    found = rate(trial, trial.machine.pressure_us.get(what), 1e6)
    return None if found is None else min(1.0, found)


def machine(trials: Iterable[Trial]) -> Mapping[str, Spread]:
    """What is told of the machine, by name: the load average, and shares of time."""
    states = [trial for trial in trials if trial.machine.seconds]
    columns: dict[str, list[float | None]] = {
        LOAD: [trial.machine.load_1min for trial in states],
        STOLEN: [stolen(trial) for trial in states],
        **{
            WAITED + what: [waited(trial, what) for trial in states]
            for what in ("cpu", "memory", "io")
        },
    }
    found = {name: spread(column) for name, column in columns.items()}
    return {name: one for name, one in found.items() if one is not None}


def calibrated(trials: Iterable[Trial]) -> Mapping[str, Mapping[str, Spread]]:
    """What the instrument cost on the sides `client` and `inside`, by quantity, in ns."""
    known = [t.calibration for t in trials if t.calibration is not None]
    sides = {"client": [one.client for one in known], "inside": [one.inside for one in known]}
    floor = spread(one.floor_ns for one in known)
    return {
        side: {
            **{
                name: one
                for name in _CALIBRATED
                if (one := spread(getattr(clock, name) for clock in clocks)) is not None
            },
            FLOOR: floor,
        }
        for side, clocks in sides.items()
        if floor is not None
    }
