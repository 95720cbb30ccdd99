"""The instrument, calibrated where it is used: what reading a clock costs, and measuring nothing.

Times are stamped by the client, on the host; inside, clocks decide how long a server works and when
a sleeper wakes. Both sides are calibrated in every environment, which can change what a clock costs
by two orders of magnitude (in User-Mode Linux a reading takes some 10 us), each time that it is set
up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tare import process
from tare.command import Command
from tare.environments import Inside, Site
from tare.errors import TrialError, remedy_of
from tare.events import events_in

_TIMEOUT_S = 60.0
_CLOCK = ("probe/probe", "clock", "--batches", "5", "--operations", "2000")
_TIMER = ("probe/probe", "timer", "--batches", "5", "--operations", "20")
_NULL_RUNS = 3
_NULL = ("echo/echo-null", "ask", "--payload", "64", "--requests", "1000", "--warmup", "100")


@dataclass(frozen=True)
class Clock:
    """One side's clock, CLOCK_MONOTONIC, and what measures with it; all in ns."""

    read_ns: float
    """A reading: median over batches of their means."""
    resolution_ns: float
    """The smallest step that two readings in a row have shown."""
    timer_late_ns: float
    """How late a sleep until an absolute time ends: median over batches of their means."""
    null_response_ns: float | None = None
    """Response time when the client answers itself, which is what the instrument adds to every
    response: median over three runs of their means. Of the client's side alone, which stamps
    them. In results of earlier versions also inside, and there with what is done between two."""


@dataclass(frozen=True)
class Calibration:
    """Both sides of a session."""

    client: Clock
    inside: Clock
    floor_ns: float
    """The smallest difference of response times that is told apart from the instrument: the
    client's null response, or one reading of the clock inside, by which server work overruns; or
    the resolution of either clock, whichever is the largest."""


def calibrate(site: Site, inside: Inside) -> Calibration:
    """Measure both sides, under the client's and the server's own placement and priority.

    Raises:
        TrialError: a probe failed, or printed something else than it should.
    """

    def on_client_side(argv: Sequence[str], timeout_s: float) -> str:
        command = Command(
            (str(site.programs / argv[0]), *argv[1:]),
            netns=site.hosts.client_ns,
            cpus=site.placement.client,
            fifo=site.placement.fifo,
        )
        return process.run(command, timeout_s).stdout

    here, within = _clock(on_client_side), _clock(inside.run)
    null_ns = _null_response_ns(on_client_side, site.scratch / "null.echo")
    return Calibration(
        replace(here, null_response_ns=null_ns),
        within,
        floor_ns=max(null_ns, within.read_ns, here.resolution_ns, within.resolution_ns),
    )


def _clock(run: Callable[[Sequence[str], float], str]) -> Clock:
    clock = _said(run(_CLOCK, _TIMEOUT_S), "probe clock")
    timer = _said(run(_TIMER, _TIMEOUT_S), "probe timer")
    try:
        found = Clock(
            read_ns=median(map(float, clock["batches"])),
            resolution_ns=float(clock["resolution_ns"]),
            timer_late_ns=median(map(float, timer["batches"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TrialError(f"a calibration printed something else than times: {error!r}") from error
    times = (found.read_ns, found.resolution_ns, found.timer_late_ns)
    if not all(math.isfinite(value) and value >= 0 for value in times):
        raise TrialError(f"a calibration printed times that cannot be: {found}")
    return found


def _null_response_ns(run: Callable[[Sequence[str], float], str], out: Path) -> float:
    """By the stamps: a run's length would hold what is done between two responses, too."""
    from tare.workloads import echo_samples  # noqa: PLC0415 - every command reads this file

    means = []
    for _ in range(_NULL_RUNS):
        run((*_NULL, "--out", str(out)), _TIMEOUT_S)
        try:
            records = echo_samples.parse(out.read_bytes()).records
        except OSError as error:
            raise TrialError(f"cannot read {out}: {error.strerror}", remedy_of(error)) from error
        if not len(records) or min(records["received_ns"]) == echo_samples.LOST:
            raise TrialError("echo-null, which answers itself, has lost requests")
        means.append(float((records["received_ns"] - records["sent_ns"]).mean()))
    return median(means)


def _said(output: str, who: str) -> dict[str, Any]:
    said = events_in(output, who)
    if not said:
        raise TrialError(f"{who} printed no JSON object: {output[-200:]!r}")
    return said[-1]
