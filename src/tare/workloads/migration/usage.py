"""Processor time of processes and threads, to the nanosecond, and of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CPUCLOCK_SCHED = 2
"""Of a process's clock id: its run time as the scheduler counts it (posix-timers in the kernel)."""


def process_ns(pid: int) -> int | None:
    """On-CPU time of a process, its ended threads included; None if there is no such process.

    Reads the process's CPU clock, as clock_getcpuclockid(3) names it.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return None


def thread_ns(pid: int, tid: int) -> int | None:
    """On-CPU time of a thread. Source: /proc/PID/task/TID/schedstat, first field."""
    try:
        return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def threads(pid: int) -> frozenset[int]:
    """The threads that a process has now; none if it has ended."""
    try:
        return frozenset(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return frozenset()


def machine_system_ns() -> int:
    """Time that the machine has spent in the kernel, interrupts included, over all processors."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    # cpu user nice system idle iowait irq softirq ...: proc(5)
    ticks = sum(int(fields[at]) for at in (3, 6, 7))
    return ticks * 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Meter:
    """Measures a process from now on, without some of its threads.

    What is left out must live until the meter is read; what begins and ends in between counts,
    however short its life: a migration's threads do.
    """

    pid: int
    begun_ns: int
    apart: dict[int, int]

    @classmethod
    def start(cls, pid: int, apart: Iterable[int] = ()) -> Meter:
        """Begin to measure.

        Args:
            pid: the process.
            apart: threads that do not count.
        """
        outside = {tid: thread_ns(pid, tid) or 0 for tid in apart}
        return cls(pid, process_ns(pid) or 0, outside)

    def read(self) -> int:
        """Return the nanoseconds since the start; 0 if the process has ended."""
        now = process_ns(self.pid)
        if now is None:
            return 0
        outside = sum((thread_ns(self.pid, t) or ns) - ns for t, ns in self.apart.items())
        return max(0, now - self.begun_ns - outside)
