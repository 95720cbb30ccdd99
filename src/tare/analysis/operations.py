"""By operation: what each operation of a request costs, times how often it happens.

Which measured cost stands for which counted operation is decided here, and only here. Overlaps are
named, sums above the response are shown, and nothing is got by subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from tare import transports
from tare.accounting import Role
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.record import CauseSession, Trial
from tare.stats.operations import Cost, Operation, costs_of
from tare.stats.shares import Shares
from tare.workloads.request_reply import EchoLevels


@dataclass(frozen=True)
class CellOperations:
    """One cell's response, explained by operations."""

    cell: Cell
    shares: Shares[Cost]
    inflation: float | None
    """Mean response while operations were counted over the mean without: what counting costs.
    None where a side is missing."""
    absent: tuple[str, ...]
    """Operations that nobody could count or time here: they are missing in the sum, not zero."""


@dataclass(frozen=True)
class Counted:
    """Operations of one cell's requests, and those that are not known."""

    operations: tuple[Operation, ...]
    """Empty where too few counting sessions came to an end."""
    absent: tuple[str, ...]
    """As in `CellOperations`."""


def operations_of(
    cell: Cell, sessions: Sessions, confidence: float = 0.95
) -> CellOperations | None:
    """Explain one cell's mean response; None where too few counting sessions came to an end."""
    found = counted_in(cell, sessions)
    if not found.operations:
        return None
    responses = sessions.mean_responses(cell.id)
    present = [value for value in responses if value is not None]
    counting = [c.mean_ns for c in sessions.counted(cell.id) if c.mean_ns is not None]
    inflation = None
    if counting:
        inflation = fmean(counting) / fmean(present)
    shares = costs_of(found.operations, responses, confidence)
    return CellOperations(cell, shares, inflation, found.absent)


def counted_in(cell: Cell, sessions: Sessions) -> Counted:
    """Operations of one cell's requests, and what of them nobody could tell."""
    usable = sessions.counted(cell.id)
    if len(usable) < 2 or not sessions.measured(cell.id):
        return Counted((), ())
    # Where none answers, what a server would do is not done, and not absent.
    of = _Measured(usable, answered=transports.served(cell.levels.get("transport")))
    in_guest = any("tap hop" in c.unit_costs_ns for c in usable)
    (_in_guest if in_guest else _on_host)(of)
    roles: tuple[Role, ...] = ("client", "guest") if in_guest else ("client", "server")
    of.user_time({r: sessions.means(cell.id, partial(_user_ns, r)) for r in roles})
    work_ns = cell.levels.read(EchoLevels.server_work)
    if work_ns:
        timed = ("user time",) if any(o.name == "user time" for o in of.operations) else ()
        of.operations.append(Operation("server work", (work_ns,) * len(usable), (1.0,), timed))
    return Counted(tuple(of.operations), tuple(of.absent))


def _on_host(of: _Measured) -> None:
    """Client and server are processes of one kernel.

    Who waits for the network is woken from another process; what else sleeps in a process waits for
    another of its threads.
    """
    of.operation("send, client", "send", "client sends")
    of.operation("send, server", "inside send", "server sends")
    of.operation("receive, client", "receive", "client receives")
    of.operation("receive, server", "inside receive", "server receives")
    for side, inside in (("client", ""), ("server", "inside ")):
        needs = (f"{side} switches", f"{side} receives")
        of.operation(f"wake {side}", f"{inside}wake process", *needs, count=min)
        of.operation(f"wake threads, {side}", f"{inside}wake thread", *needs, count=_beyond)


def _in_guest(of: _Measured) -> None:
    """The server is a process of a guest behind a tap.

    The tap hop is a whole round trip on the host, the client's own send, receive and wake-up
    included, so these do not stand beside it. The guest's send holds the kick.
    """
    of.operation("tap hop and client", "tap hop", "client receives")
    of.operation("send, server", "inside send", "client receives")
    kick = "virtio kick and interrupt"
    of.operation(kick, kick, "client receives", overlaps=("send, server",))
    of.operation("receive, server", "inside receive", "client sends")
    of.operation("wake server", "inside wake thread", "inside switches")


def _beyond(switches: float, receives: float) -> float:
    return max(0.0, switches - receives)


class _Measured:
    """Operations with costs and counts over the counting sessions of one cell."""

    def __init__(self, counted: Sequence[CauseSession], *, answered: bool) -> None:
        self._counted = counted
        self._answered = answered
        self.operations: list[Operation] = []
        self.absent: list[str] = []

    def operation(
        self,
        name: str,
        cost: str,
        *needs: str,
        count: Callable[..., float] = lambda n: n,
        overlaps: tuple[str, ...] = (),
    ) -> None:
        """Add one: what it costs, what was counted for it, and how many that makes of it.

        Who is not there does nothing: the kernel answers ICMP without a server. But where a server
        answers whose threads nobody could count, as behind gVisor or on a far machine, what it does
        is not known.
        """
        costs = [session.unit_costs_ns.get(cost) for session in self._counted]
        counts = [[session.counts.get(need) for need in needs] for session in self._counted]
        if not self._answered and all(need.startswith("server ") for need in needs):
            counts = [[n or 0.0 for n in row] for row in counts]
        if None in costs or any(n is None for row in counts for n in row):
            self.absent.append(name)
            return
        numbers = [count(*row) for row in counts]
        self.operations.append(Operation(name, costs, numbers, overlaps))

    def user_time(self, found: Mapping[Role, Sequence[float | None]]) -> None:
        """Time in user mode for each request, as accounted in the untraced sessions.

        The kernel accounts user time by ticks of some milliseconds, so one session's figure is
        coarse and only their mean is worth anything. Where no tick of any session fell into user
        mode, it is below what the kernel can tell.
        """
        wanted = [role for role in found if self._answered or role == "client"]
        seen = [role for role in wanted if any(found[role])]
        self.absent += [f"user time, {role}" for role in wanted if role not in seen]
        if not seen:
            return
        rows = zip(*(found[role] for role in seen), strict=True)
        times = [None if None in row else sum(v for v in row if v is not None) for row in rows]
        self.operations.append(Operation("user time", times, (1.0,), beside_response=True))


def _user_ns(role: Role, trial: Trial) -> float | None:
    """User time of a party's threads for each request; None where none of them was accounted."""
    if not trial.counters.get("sent"):
        return None
    times = [thread.user_ns for thread in trial.threads if thread.role == role]
    return sum(times) / trial.counters["sent"] if times else None
