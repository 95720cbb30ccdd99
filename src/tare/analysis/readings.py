"""What is read beside every trial, whatever it measures: rows, and what each can be worth.

A reading that is a share of time has a ceiling: of a processor that was taken away for a share s,
1 - s is left, so that it can have slowed a trial by 1 / (1 - s) and no more. An event has a price
where its unit cost was measured; rate times price is a share of time again. A frequency acts in
proportion. What is neither differs without a price, and is said to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tare.accounting import ThreadTime
from tare.analysis.beside_trials import rate, stolen, waited
from tare.clocks import Clock
from tare.meanwhile import Meanwhile
from tare.record import Trial

Kind = Literal["share of time", "events a second", "frequency", "level"]
_MOST = 0.99
"""A share of time is never taken for more: the logarithm of what is left must be finite."""


@dataclass(frozen=True)
class Reading:
    """One thing that is read beside a trial."""

    name: str
    kind: Kind
    value: Callable[[Trial], float | None]
    """Trial -> the reading: a share as a fraction, a frequency in MHz; None where this kernel, or
    this trial, does not have it."""
    price: tuple[str, ...] = ()
    """Unit costs, of which the first that was measured is what one event costs."""
    anyones: bool = False
    """Whether it counts what befell anybody on the machine: a ceiling, and no evidence that it
    befell what was measured."""

    def slowing(self, value: float, costs_ns: Mapping[str, float]) -> float | None:
        """Logarithm of how many times slower this alone can have made a trial.

        None where it has no price.
        """
        if self.kind == "share of time":
            return -math.log1p(-min(value, _MOST))
        if self.kind == "frequency":
            return -math.log(value)
        price = next((costs_ns[name] for name in self.price if name in costs_ns), None)
        if self.kind == "events a second" and price is not None:
            return -math.log1p(-min(value * price * 1e-9, _MOST))
        return None


def _machine(counted: Callable[[Meanwhile], int | None]) -> Callable[[Trial], float | None]:
    """A counter of the machine over the trial's time."""
    return lambda trial: rate(trial, counted(trial.machine))


def _threads(
    roles: tuple[str, ...], of: Callable[[ThreadTime], int], *, one: float = 1.0
) -> Callable[[Trial], float | None]:
    """What the accounted threads did over the measured part, together; `one` as in `rate`."""

    def value(trial: Trial) -> float | None:
        found = [of(thread) for thread in trial.threads if thread.role in roles]
        # Where a workload does not tell how long it measured, the trial's time is an upper bound.
        seconds = trial.duration_ns / 1e9 if trial.duration_ns else trial.machine.seconds
        return sum(found) / one / seconds if found and seconds else None

    return value


def _clock(of: Callable[[Clock], float]) -> Callable[[Trial], float | None]:
    return lambda trial: None if trial.calibration is None else of(trial.calibration.inside)


def _huge(trial: Trial) -> float | None:
    found = trial.server.huge_bytes if trial.server else None
    return None if found is None else float(found)


_WORKING = ("client", "server", "vcpu")
_BELOW = ("vmm", "kernel")
_TIME: Kind = "share of time"
_EVENTS: Kind = "events a second"

READINGS = (
    Reading("stolen by the hypervisor below", _TIME, stolen),
    Reading("some task waited for a processor", _TIME, lambda t: waited(t, "cpu"), anyones=True),
    Reading("some task waited for memory", _TIME, lambda t: waited(t, "memory"), anyones=True),
    Reading("some task waited for input or output", _TIME, lambda t: waited(t, "io"), anyones=True),
    Reading(
        "the measured threads were preempted",
        _EVENTS,
        _threads(_WORKING, lambda t: t.preemptions),
        ("wake process",),
    ),
    Reading(
        "page faults of the measured threads",
        _EVENTS,
        _threads(_WORKING, lambda t: t.faults),
        ("inside page fault", "page fault"),
    ),
    Reading(
        "context switches of the machine",
        _EVENTS,
        _machine(lambda m: m.context_switches),
        ("wake process",),
        anyones=True,
    ),
    Reading(
        "page faults of the machine",
        _EVENTS,
        _machine(lambda m: m.page_faults),
        ("page fault",),
        anyones=True,
    ),
    Reading("huge pages given out", _EVENTS, _machine(lambda m: m.huge_page_faults)),
    Reading("interrupts", _EVENTS, _machine(lambda m: m.interrupts)),
    Reading("timer interrupts", _EVENTS, _machine(lambda m: m.timer_interrupts)),
    Reading("exits of guests to KVM", _EVENTS, _machine(lambda m: m.kvm.get("exits"))),
    Reading("frequency of the processors", "frequency", lambda t: t.machine.frequency_mhz or None),
    Reading(
        "processors that the measured threads kept busy",
        "level",
        _threads(_WORKING, lambda t: t.cpu_ns, one=1e9),
    ),
    Reading(
        "processors that the layers below kept busy",
        "level",
        _threads(_BELOW, lambda t: t.cpu_ns, one=1e9),
    ),
    Reading("the server's memory in huge pages, B", "level", _huge),
    Reading("cost of reading the clock inside, ns", "level", _clock(lambda c: c.read_ns)),
    Reading("lateness of a timer inside, ns", "level", _clock(lambda c: c.timer_late_ns)),
)
