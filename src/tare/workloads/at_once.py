"""A program on the host and in the environment at once, and what counts of it on either side.

For programs that tell one rate of all of their time: each side runs the same command again and
again from a barrier on, and only the runs that lie wholly within the time of both count. A program
also starts and ends, while it does not yet work: how long a side takes from one run to the next is
told, so that the reader sees for what share of the time it was at work.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tare.environments import Inside, Site
from tare.environments.on_host import beside
from tare.errors import TrialError
from tare.workloads.meeting import Meeting, Run, overlap

LEAST_RUNS = 2
"""Of each side, until it is enough: the first may have begun before the other side had."""


@dataclass(frozen=True)
class Counted:
    """What was printed by the runs that lie within the time of both sides; at least one of each."""

    host: tuple[str, ...]
    guest: tuple[str, ...]
    seconds: float
    """For which both sides ran."""
    host_cycle_s: float
    """From one run's start to the next, on average."""
    guest_cycle_s: float


def at_once(argv: Sequence[str], timeout_s: float, site: Site, inside: Inside) -> Counted:
    """Run a program on the host, on the client's processors, and in the environment at once.

    Args:
        argv: the program.
        timeout_s: for a run of it.
        site: whose host.
        inside: the environment.

    Raises:
        TrialError: it failed, or no run of a side lies within the time of both.
    """
    with ExitStack() as stack:
        meeting = stack.enter_context(Meeting(site))
        command = meeting.command(argv, again=True)
        cpus = site.placement.client
        host = stack.enter_context(beside(site, command, "host", site.hosts.server_ns, cpus))
        meeting.arrived(host)
        guest = stack.enter_context(inside.start(command))
        meeting.arrived(guest)
        # One more than the least may be under way when it is enough.
        runs = meeting.held_again([host, guest], LEAST_RUNS, (LEAST_RUNS + 1) * timeout_s)
    return counted(*runs)


def counted(host: Run, guest: Run) -> Counted:
    """Keep the runs of both sides that lie wholly within the time of both.

    Raises:
        TrialError: a side has none.
    """
    window = overlap((host, guest))
    kept = {party: run.within(window) for party, run in (("host", host), ("guest", guest))}
    for party, runs in kept.items():
        if not runs:
            raise TrialError(
                f"no run of the {party} lies within the {max(0.0, window[1] - window[0]):.2f} s in"
                " which both sides ran",
                "lengthen `seconds`",
            )
    outputs = {party: tuple(one.output for one in runs) for party, runs in kept.items()}
    cycles = (run.seconds / len(run.each) for run in (host, guest))
    return Counted(outputs["host"], outputs["guest"], window[1] - window[0], *cycles)
