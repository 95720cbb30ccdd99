"""The closing account: where every thread was during a request, and what else it consumed.

On-CPU times add up. Run-queue waits do not: a server that was woken waits on the same core while
its client still runs, and that time is in the account already, as the client's. What a wait adds
for certain is what the account's other threads cannot have filled: other programs ran then. The
largest such remainder of any thread is the line `WAITED`, a lower bound; `waits` holds the waits
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from tare.accounting import Account, Role, ThreadTime
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.record import Trial
from tare.stats import Estimate, across
from tare.stats.causes import ClosingAccount, closing_account

__all__ = ["LINES", "WAITED", "CellAccount", "account_for"]

_ROLES: tuple[Role, ...] = ("client", "server", "vmm", "vcpu", "kernel")
"""Whose times add up. A guest's own rows are the same time seen from inside, and stay out."""
WAITED = "waiting for other programs, at least"
LINES = (*(f"{role} on CPU" for role in _ROLES), WAITED)
"""Names of an account's lines, in order."""


@dataclass(frozen=True)
class CellAccount:
    """What one cell's requests consumed."""

    cell: Cell
    closing: ClosingAccount | None
    """Time of all threads against the mean response, ns for each request; None without accounts."""
    by_block: Mapping[str, tuple[float | None, ...]]
    """Line -> ns for each request, shape (blocks,): what `closing` is made of."""
    closes: bool
    """Whether the account can be expected to close: one request at a time, and both ends accounted
    for. With several requests, threads work for more than one; in open loop a response also waits
    for requests before it; where a guest's kernel answers by itself, nobody accounts for it."""
    waits: Mapping[Role, Estimate]
    """Role -> run-queue wait of its threads, ns for each request; they overlap with each other and
    with on-CPU times, and are not in the sum."""
    guest: Mapping[str, Estimate]
    """The guest's own view of its server, ns for each request: overlaps with vcpu, never added."""
    cpu_ns: Estimate
    """On-CPU time of all threads, for each request."""
    memory_bytes: Estimate
    """Peak memory of the server's process; for a guest, of QEMU."""
    wire_bytes: Estimate
    """Bytes sent and received by the environment's interface, for each request."""


def account_for(cell: Cell, sessions: Sessions, confidence: float = 0.95) -> CellAccount | None:
    """Add up one cell's accounts; None where no trial has one."""
    trials = {b: t for b, t in sessions.trials_of(cell.id).items() if t.status == "ok"}
    if not any(trial.client or trial.server for trial in trials.values()):
        return None
    requests = {block: _requests(trial) for block, trial in trials.items()}

    def per_request(total: Callable[[Trial], float | None]) -> list[float | None]:
        column: list[float | None] = []
        for block in sessions.blocks:
            count = requests.get(block)
            found = total(trials[block]) if count else None
            column.append(None if found is None or not count else found / count)
        return column

    roles = {thread.role for trial in trials.values() for thread in _threads(trial)}
    lines = {
        f"{role} on CPU": per_request(_sum_of(role, lambda t: t.cpu_ns))
        for role in _ROLES
        if role in roles
    }
    waits = {
        role: across(_positive(per_request(_sum_of(role, lambda t: t.wait_ns))))
        for role in _ROLES
        if role in roles
    }
    if lines:
        lines[WAITED] = per_request(_waited)
    guest = {}
    if "guest" in roles:
        guest["on CPU"] = across(_positive(per_request(_sum_of("guest", lambda t: t.cpu_ns))))
        guest["waiting"] = across(_positive(per_request(_sum_of("guest", lambda t: t.wait_ns))))
    return CellAccount(
        cell=cell,
        closing=closing_account(lines, sessions.column(cell.id, "mean"), confidence)
        if lines
        else None,
        by_block={name: tuple(column) for name, column in lines.items()},
        closes=_closes(cell, roles, trials.values()),
        waits=waits,
        guest=guest,
        cpu_ns=across(_positive(per_request(_cpu))),
        memory_bytes=across(
            _positive([_memory(trials[b]) if b in trials else None for b in sessions.blocks])
        ),
        wire_bytes=across(_positive(per_request(_wire))),
    )


def _closes(cell: Cell, roles: Collection[Role], trials: Iterable[Trial]) -> bool:
    one_at_a_time = (
        cell.levels.get("mode", "closed") == "closed" and cell.levels.get("clients", "1") == "1"
    )
    in_a_guest = any(trial.facts.accelerator for trial in trials)
    return one_at_a_time and (not in_a_guest or "vcpu" in roles)


def _waited(trial: Trial) -> float | None:
    # Kernel threads serve the whole machine, and wait off the response's path.
    threads = [t for t in _threads(trial) if t.role in _ROLES and t.role != "kernel"]
    if not threads:
        return None
    busy = sum(thread.cpu_ns for thread in threads)
    return float(max(0, *(t.wait_ns - (busy - t.cpu_ns) for t in threads)))


def _requests(trial: Trial) -> int:
    return trial.counters.get("sent", 0)


def _threads(trial: Trial) -> tuple[ThreadTime, ...]:
    parties = (trial.client, trial.server)
    return tuple(thread for party in parties if party for thread in party.threads)


def _sum_of(role: Role, time: Callable[[ThreadTime], int]) -> Callable[[Trial], float | None]:
    def total(trial: Trial) -> float | None:
        threads = _threads(trial)
        found = [time(t) for t in threads if t.role == role]
        # Kernel threads that did nothing are left out of an account; any other party is absent.
        return float(sum(found)) if found or (threads and role == "kernel") else None

    return total


def _cpu(trial: Trial) -> float | None:
    threads = _threads(trial)
    return float(sum(t.cpu_ns for t in threads if t.role in _ROLES)) if threads else None


def _server(trial: Trial) -> Account:
    return trial.server or Account()


def _memory(trial: Trial) -> float | None:
    return _server(trial).peak_memory_bytes


def _wire(trial: Trial) -> float | None:
    account = _server(trial)
    if account.sent_bytes is None or account.received_bytes is None:
        return None
    return float(account.sent_bytes + account.received_bytes)


def _positive(values: list[float | None]) -> list[float | None]:
    """A time below the accounting's resolution reads as 0; a logarithm needs more than that."""
    return [value if value else None for value in values]
