"""By thread: where each was during a request, added up against the response; what else it consumed.

Where nobody counts requests, as of a service whose client is the user's, consumption is that of a
second of the measured part.

On-CPU times add up. Run-queue waits do not: a server that was woken waits on the same core while
its client still runs, and that time is in the account already, as the client's. What a wait adds
for certain is what the account's other threads cannot have filled: other programs ran then. The
largest such remainder of any thread is the line `WAITED`, a lower bound; `waits` holds the waits
themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tare.accounting import Role, ThreadTime
from tare.analysis.cells import plain
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.record import Trial
from tare.stats import Estimate, across
from tare.stats.shares import Share, Shares, shares_of

_ROLES: tuple[Role, ...] = ("client", "server", "vmm", "vcpu", "kernel")
"""Whose times add up. A guest's own rows are the same time seen from inside, and stay out."""
WAITED = "waiting for other programs, at least"
LINES = (*(f"{role} on CPU" for role in _ROLES), WAITED)
"""Names of an account's lines, in order."""

_CONFIDENCE = 0.95
_Column = list[float | None]
"""One value a block for each request, shape (blocks,); None where the block has none."""


@dataclass(frozen=True)
class CellThreads:
    """What one cell's requests consumed, each; or its seconds, where no requests are counted."""

    cell: Cell
    shares: Shares[Share] | None
    """The closing account: time of all threads against the mean response, ns for each request. On
    one core, where one thing runs at a time, it should close but for idle time. None of seconds."""
    closes: bool
    """See `closes`."""
    waits: Mapping[Role, Estimate]
    """Role -> run-queue wait of its threads, ns each; they overlap with each other and with on-CPU
    times, and are not in the sum."""
    guest_ns: Estimate | None
    """On-CPU time of its server as the guest sees it, each: overlaps with vcpu."""
    cpu_ns: Estimate
    """On-CPU time of all threads, each."""
    memory_bytes: Estimate
    """Peak memory of the server's process; for a guest, of QEMU."""
    wire_bytes: Estimate
    """Bytes sent and received by the environment's interface, each."""


def threads_of(cell: Cell, sessions: Sessions, confidence: float = 0.95) -> CellThreads | None:
    """Add up one cell's accounts; None where no trial has one."""
    trials, requests = sessions.measured(cell.id), sessions.plan.workload.response_times
    if not any(_parts(trial) for trial in trials if requests or trial.threads):
        return None
    lines, roles = lines_of(cell, sessions) if requests else {}, _roles(trials)

    def estimate(total: Callable[[Trial], float | None]) -> Estimate:
        return _level(sessions.means(cell.id, _each(total)))

    return CellThreads(
        cell=cell,
        shares=shares_of(lines, sessions.mean_responses(cell.id), confidence) if lines else None,
        closes=requests and closes(cell, sessions),
        waits={
            role: estimate(_sum_of((role,), lambda t: t.wait_ns))
            for role in _ROLES
            if role in roles
        },
        guest_ns=estimate(_sum_of(("guest",), _cpu)) if "guest" in roles else None,
        cpu_ns=estimate(_sum_of(_ROLES, _cpu)),
        memory_bytes=_level(sessions.means(cell.id, _memory)),
        wire_bytes=estimate(_wire),
    )


def lines_of(cell: Cell, sessions: Sessions) -> dict[str, _Column]:
    """What a cell's closing account is made of: line -> ns for each request, in order."""
    roles = _roles(sessions.measured(cell.id))
    totals = {f"{role} on CPU": _sum_of((role,), _cpu) for role in _ROLES if role in roles}
    if totals:
        totals[WAITED] = _waited
    return {name: sessions.means(cell.id, _each(of)) for name, of in totals.items()}


def closes(cell: Cell, sessions: Sessions) -> bool:
    """Whether a cell's account can be expected to close.

    One request at a time, and both ends accounted for: with several requests, threads work for more
    than one; in open loop a response also waits for requests before it; where a guest's kernel
    answers by itself, nobody accounts for it.
    """
    alone = cell.levels.get("mode", "closed") == "closed" and cell.levels.get("clients", "1") == "1"
    trials = sessions.measured(cell.id)
    in_a_guest = any(trial.facts.accelerator for trial in trials)
    return alone and (not in_a_guest or "vcpu" in _roles(trials))


def _roles(trials: Sequence[Trial]) -> set[Role]:
    return {thread.role for trial in trials for thread in trial.threads}


def _parts(trial: Trial) -> float | None:
    """Among how many its consumption is shared out: its requests, else its seconds."""
    if "sent" in trial.counters:
        return trial.counters["sent"]
    return trial.duration_ns / 1e9 if trial.duration_ns else None


def _each(total: Callable[[Trial], float | None]) -> Callable[[Trial], float | None]:
    def share(trial: Trial) -> float | None:
        parts = _parts(trial)
        found = total(trial) if parts else None
        return None if found is None or not parts else found / parts

    return share


def _waited(trial: Trial) -> float | None:
    # Kernel threads serve the whole machine, and wait off the response's path.
    threads = [t for t in trial.threads if t.role in _ROLES and t.role != "kernel"]
    if not threads:
        return None
    busy = sum(thread.cpu_ns for thread in threads)
    return float(max(0, *(t.wait_ns - (busy - t.cpu_ns) for t in threads)))


def _sum_of(
    roles: Sequence[Role], time: Callable[[ThreadTime], int]
) -> Callable[[Trial], float | None]:
    def total(trial: Trial) -> float | None:
        found = [time(t) for t in trial.threads if t.role in roles]
        # Kernel threads that did nothing are left out of an account; any other party is absent.
        return float(sum(found)) if found or (trial.threads and "kernel" in roles) else None

    return total


def _cpu(thread: ThreadTime) -> int:
    return thread.cpu_ns


def _memory(trial: Trial) -> float | None:
    return trial.server.peak_memory_bytes if trial.server else None


def _wire(trial: Trial) -> float | None:
    account = trial.server
    if account is None or account.sent_bytes is None or account.received_bytes is None:
        return None
    return float(account.sent_bytes + account.received_bytes)


def _level(values: _Column) -> Estimate:
    """A time below the accounting's resolution reads as 0, of which there is no logarithm."""
    known = [value for value in values if value is not None]
    return across(values) if all(known) else plain(known, _CONFIDENCE)
