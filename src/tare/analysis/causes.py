"""The budget by cause: what each operation of a request costs, times how often it happens.

Which measured cost stands for which counted operation is decided here, and only here. Overlaps are
named, sums above the response are shown, and nothing is got by subtraction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tare import units
from tare.accounting import Role
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.record import CauseSession, Trial
from tare.stats.unit_costs import Explanation, Operation, explain

__all__ = ["CellCauses", "causes_for", "operations_of"]

Counts = Mapping[str, float]


@dataclass(frozen=True)
class CellCauses:
    """One cell's response, explained by operations."""

    cell: Cell
    explanation: Explanation
    inflation: float | None
    """Mean response while operations were counted over the mean without: what counting costs.
    None where a side is missing."""
    sessions: int
    """Counting sessions that it rests on."""


def causes_for(
    cell: Cell, sessions: Sessions, counted: Sequence[CauseSession], confidence: float = 0.95
) -> CellCauses | None:
    """Explain one cell's mean response; None where too few counting sessions came to an end."""
    operations = operations_of(cell, sessions, counted)
    if not operations:
        return None
    usable = [c for c in counted if c.cell == cell.id and c.error is None]
    responses = sessions.column(cell.id, "mean")
    present = [value for value in responses if value is not None]
    counting = [c.mean_ns for c in usable if c.mean_ns is not None]
    inflation = None
    if counting:
        inflation = (sum(counting) / len(counting)) / (sum(present) / len(present))
    return CellCauses(cell, explain(operations, responses, confidence), inflation, len(usable))


def operations_of(
    cell: Cell, sessions: Sessions, counted: Sequence[CauseSession]
) -> list[Operation]:
    """Operations of one cell's requests; empty where too few counting sessions came to an end."""
    usable = [c for c in counted if c.cell == cell.id and c.error is None]
    trials = [t for t in sessions.trials_of(cell.id).values() if t.status == "ok"]
    if len(usable) < 2 or not trials:
        return []
    in_guest = any("tap hop" in c.unit_costs_ns for c in usable)
    operations = _in_guest(usable, trials) if in_guest else _on_host(usable, trials)
    work_ns = units.duration(cell.levels.get("server_work", "0 us"))
    if work_ns:
        operations.append(Operation("server work", (work_ns, work_ns), (1.0,), ("user time",)))
    return operations


def _on_host(counted: Sequence[CauseSession], trials: Sequence[Trial]) -> list[Operation]:
    """Client and server are processes of one kernel.

    Who waits for the network is woken from another process; what else sleeps in a process waits for
    another of its threads.
    """
    of = _Measured(counted)
    return [
        of.operation("send, client", "send", lambda n: n["client sends"]),
        of.operation("send, server", "inside send", lambda n: n["server sends"]),
        of.operation("receive, client", "receive", lambda n: n["client receives"]),
        of.operation("receive, server", "inside receive", lambda n: n["server receives"]),
        of.operation("wake client", "wake process", lambda n: _network_wakes(n, "client")),
        of.operation("wake server", "inside wake process", lambda n: _network_wakes(n, "server")),
        of.operation("wake threads, client", "wake thread", lambda n: _thread_wakes(n, "client")),
        of.operation(
            "wake threads, server", "inside wake thread", lambda n: _thread_wakes(n, "server")
        ),
        _user_time(trials, ("client", "server")),
    ]


def _in_guest(counted: Sequence[CauseSession], trials: Sequence[Trial]) -> list[Operation]:
    """The server is a process of a guest behind a tap.

    The tap hop is a whole round trip on the host, the client's own send, receive and wake-up
    included, so these do not stand beside it. The guest's send holds the kick.
    """
    of = _Measured(counted)
    return [
        of.operation("tap hop and client", "tap hop", lambda n: n["client receives"]),
        of.operation(
            "virtio kick and interrupt",
            "virtio kick and interrupt",
            lambda n: n["client receives"],
            overlaps=("send, server",),
        ),
        of.operation("receive, server", "inside receive", lambda n: n["client sends"]),
        of.operation("send, server", "inside send", lambda n: n["client receives"]),
        of.operation("wake server", "inside wake thread", lambda n: n["inside switches"]),
        _user_time(trials, ("client", "guest")),
    ]


def _network_wakes(counts: Counts, side: str) -> float:
    return min(counts[f"{side} switches"], counts[f"{side} receives"])


def _thread_wakes(counts: Counts, side: str) -> float:
    return max(0.0, counts[f"{side} switches"] - counts[f"{side} receives"])


def _user_time(trials: Sequence[Trial], roles: tuple[Role, ...]) -> Operation:
    """Time in user mode for each request, as accounted in the untraced sessions.

    The kernel accounts user time by ticks of some milliseconds, so one session's figure is coarse
    and only their mean is worth anything.
    """
    found = []
    for trial in trials:
        threads = [*(trial.client.threads if trial.client else ())]
        threads += trial.server.threads if trial.server else ()
        total = sum(thread.user_ns for thread in threads if thread.role in roles)
        found.append(total / trial.counters["sent"])
    return Operation("user time", found if len(found) > 1 else found * 2, (1.0,))


class _Measured:
    """Costs and counts over the counting sessions of one cell."""

    def __init__(self, counted: Sequence[CauseSession]) -> None:
        self._counted = counted

    def operation(
        self,
        name: str,
        cost: str,
        count: Callable[[Counts], float],
        overlaps: tuple[str, ...] = (),
    ) -> Operation:
        return Operation(
            name=name,
            unit_cost_ns=[session.unit_costs_ns[cost] for session in self._counted],
            # Who is not there does nothing: the kernel answers ICMP without a server.
            count_per_request=[count(defaultdict(float, c.counts)) for c in self._counted],
            overlaps=overlaps,
        )
