"""Who consumed what: CPU time and run-queue wait of every thread involved, memory, network bytes.

Snapshots are taken before and after the measured part of a trial; `after - before` is the
account of that part. Everything comes from /proc and is read, never traced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["client", "server", "vmm", "vcpu", "kernel", "guest"]
"""Whose thread it is. `guest` rows are a guest's own view of its server process: they overlap with
`vcpu`, which is the host's view of the same time, and are never added to it."""


@dataclass(frozen=True)
class ThreadTime:
    """CPU time of one thread, from /proc/PID/task/TID/schedstat and stat."""

    role: Role
    name: str
    tid: int
    cpu_ns: int
    """On-CPU time (schedstat, first field)."""
    wait_ns: int
    """Time runnable but waiting for a processor (schedstat, second field)."""
    user_ns: int
    system_ns: int
    """From stat: resolution of a clock tick (10 ms)."""
    switches: int = 0
    """Voluntary and involuntary context switches."""


@dataclass(frozen=True)
class Account:
    """A snapshot of cumulated consumption, or the difference of two."""

    threads: tuple[ThreadTime, ...] = ()
    peak_memory_bytes: int | None = None
    """VmHWM of the process (for a guest: of QEMU); a peak, so a difference keeps the later one."""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    """Of the interface that the environment uses, as the environment's own side counts."""
