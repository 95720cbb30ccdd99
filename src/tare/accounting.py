"""Who consumed what: CPU time and run-queue wait of every thread involved, memory, network bytes.

Snapshots are taken before and after the measured part of a trial; `difference(before, after)` is
the account of that part. Everything comes from /proc and is read, never traced.

What a snapshot leaves out: a thread that ends before the second snapshot, and up to one scheduler
tick of a thread that is running while it is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from tare.command import stat_fields
from tare.errors import TrialError, UnavailableError

Role = Literal["client", "server", "vmm", "vcpu", "kernel", "guest"]
"""Whose thread it is. `guest` rows are a guest's own view of its server process: they overlap with
`vcpu`, which is the host's view of the same time, and are never added to it."""

_KTHREADD = 2
_KERNEL_THREADS = re.compile(r"ksoftirqd/|kworker/|rcu|migration/|napi/|vhost-|irq/")
"""Those that can work for a packet or a wake-up; the others do not belong to a response."""


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
    preemptions: int = 0
    """The involuntary ones among them: it would have gone on, and somebody else ran."""
    faults: int = 0
    """Page faults, minor and major."""


@dataclass(frozen=True)
class Account:
    """A snapshot of cumulated consumption, or the difference of two."""

    threads: tuple[ThreadTime, ...] = ()
    peak_memory_bytes: int | None = None
    """VmHWM of the process (for a guest: of QEMU); a peak, so a difference keeps the later one."""
    sent_bytes: int | None = None
    received_bytes: int | None = None
    """Of the interface that the environment uses, as the environment's own side counts."""
    huge_bytes: int | None = None
    """Anonymous memory of the process in transparent huge pages (for a guest: of QEMU), as it is
    and not since when; None where the kernel does not tell."""
    far: bool = False
    """Whether the threads are another machine's, where alone their numbers name them."""


def snapshot(
    pid: int,
    role: Role | Callable[[str], Role],
    *,
    interface: str | None = None,
    proc: Path = Path("/proc"),
) -> Account:
    """Snapshot a process with all its descendants.

    Args:
        pid: the process; its own peak memory is taken, not its descendants'.
        role: of its threads, or a function that tells it from a thread's name (QEMU's differ).
        interface: whose bytes to count, in the network namespace of the process.
        proc: where to read.

    Raises:
        TrialError: the process has ended.
    """
    role_of = role if callable(role) else lambda _: role
    status = _read(f"{proc}/{pid}/status")
    if status is None or re.search(r"^State:\s*[ZX]", status, re.MULTILINE):
        raise TrialError(f"process {pid} ended before its consumption could be read")
    threads = [
        thread
        for member in (pid, *descendants(pid, proc))
        for thread in _threads(f"{proc}/{member}", role_of)
    ]
    peak = re.search(r"^VmHWM:\s*(\d+) kB$", status, re.MULTILINE)
    net_dev = _read(f"{proc}/{pid}/net/dev") or ""
    sent, received = interface_bytes(net_dev, interface) if interface else (None, None)
    huge = re.search(r"^AnonHugePages:\s*(\d+) kB$", _rollup(proc / str(pid)), re.MULTILINE)
    return Account(
        tuple(threads),
        int(peak[1]) * 1024 if peak else None,
        sent,
        received,
        int(huge[1]) * 1024 if huge else None,
    )


def snapshot_kernel(proc: Path = Path("/proc")) -> Account:
    """Snapshot the kernel's own threads that can work for a response: softirqs, workers, RCU.

    They serve the whole machine: what they consume is an upper bound of the response's part.
    """
    read = (_thread(f"{proc}/{pid}", pid, lambda _: "kernel") for pid in _kernel(proc).look())
    return Account(tuple(thread for thread in read if thread is not None))


def combined(*accounts: Account) -> Account:
    """Put accounts of different parties side by side.

    Memory and network bytes stay those of the first that has them: they belong to one process.
    """
    first = next((a for a in accounts if a.peak_memory_bytes is not None), Account())
    wired = next((a for a in accounts if a.sent_bytes is not None), Account())
    return Account(
        tuple(thread for account in accounts for thread in account.threads),
        first.peak_memory_bytes,
        wired.sent_bytes,
        wired.received_bytes,
        first.huge_bytes,
        any(account.far for account in accounts),
    )


def difference(before: Account, after: Account) -> Account:
    """Tell what was consumed between two snapshots; no figure is ever negative.

    A thread that began in between counts from zero; one that ended in between is left out; so are
    kernel threads that did nothing.
    """
    earlier = {(thread.role, thread.tid): thread for thread in before.threads}
    threads = [_since(earlier.get((thread.role, thread.tid)), thread) for thread in after.threads]
    return Account(
        tuple(t for t in threads if t.role != "kernel" or t.cpu_ns > 0),
        after.peak_memory_bytes,
        _counted(before.sent_bytes, after.sent_bytes),
        _counted(before.received_bytes, after.received_bytes),
        after.huge_bytes,
        after.far,
    )


def interface_bytes(net_dev: str, interface: str) -> tuple[int, int] | tuple[None, None]:
    """Bytes sent and received by an interface, out of the text of /proc/PID/net/dev (proc(5)).

    (None, None) if it is not among them.
    """
    for line in net_dev.splitlines():
        name, colon, counters = line.partition(":")
        fields = counters.split()
        if colon and name.strip() == interface and len(fields) >= 9:
            return int(fields[8]), int(fields[0])
    return None, None


def _since(earlier: ThreadTime | None, now: ThreadTime) -> ThreadTime:
    # A counter that went back is another thread's, under a recycled number.
    if earlier is None or now.cpu_ns < earlier.cpu_ns or now.switches < earlier.switches:
        return now
    return replace(
        now,
        cpu_ns=now.cpu_ns - earlier.cpu_ns,
        wait_ns=max(0, now.wait_ns - earlier.wait_ns),
        # The kernel scales these two so that they add up, and may move time between them.
        user_ns=max(0, now.user_ns - earlier.user_ns),
        system_ns=max(0, now.system_ns - earlier.system_ns),
        switches=now.switches - earlier.switches,
        preemptions=max(0, now.preemptions - earlier.preemptions),
        faults=max(0, now.faults - earlier.faults),
    )


def _counted(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _threads(process: str, role_of: Callable[[str], Role]) -> Iterator[ThreadTime]:
    """Read every thread of a process; those that end meanwhile are left out."""
    try:
        tasks = sorted(path.name for path in Path(f"{process}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return
    for task in tasks:
        if (thread := _thread(f"{process}/task/{task}", int(task), role_of)) is not None:
            yield thread


def _thread(task: str, tid: int, role_of: Callable[[str], Role]) -> ThreadTime | None:
    """Read one thread, or return None if it has ended."""
    stat, status, schedstat = (_read(f"{task}/{name}") for name in ("stat", "status", "schedstat"))
    if stat is None or status is None:
        return None
    if schedstat is None:
        if Path(task).exists():
            raise UnavailableError(
                "this kernel keeps no CPU time by thread: /proc/PID/schedstat is missing",
                "use a kernel with CONFIG_SCHED_INFO, as Debian's have it",
            )
        return None
    cpu_ns, wait_ns = (int(word) for word in schedstat.split()[:2])
    name, user_ns, system_ns, faults = _parse_stat(stat)
    switches = re.findall(r"^(non)?voluntary_ctxt_switches:\s*(\d+)$", status, re.MULTILINE)
    return ThreadTime(
        role_of(name),
        name,
        tid,
        cpu_ns,
        wait_ns,
        user_ns,
        system_ns,
        sum(int(count) for _, count in switches),
        sum(int(count) for against_its_will, count in switches if against_its_will),
        faults,
    )


class _KernelThreads:
    """Which processes are the kernel's threads that can work for a response.

    Whatever was looked at once is not looked at again while it lives: to read of every process
    whose child it is took longer than a session of UDP does.
    """

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._seen: dict[int, bool] = {}

    def look(self) -> list[int]:
        """Return their numbers."""
        there = [int(path.name) for path in self._proc.iterdir() if path.name.isdigit()]
        self._seen = {
            pid: self._seen[pid] if pid in self._seen else self._is_one(pid) for pid in there
        }
        return [pid for pid, is_one in self._seen.items() if is_one]

    def _is_one(self, pid: int) -> bool:
        stat = _read(f"{self._proc}/{pid}/stat")
        if stat is None or int(stat_fields(stat)[1]) != _KTHREADD:
            return False
        return _KERNEL_THREADS.match(stat[stat.index("(") + 1 :]) is not None


@cache
def _kernel(proc: Path) -> _KernelThreads:
    return _KernelThreads(proc)


def _parse_stat(stat: str) -> tuple[str, int, int, int]:
    """Name, user and system time in ns, faults. Source: proc(5), /proc/PID/stat fields 2, 10 to 15.

    Minor and major faults are fields 10 and 12.
    """
    fields = stat_fields(stat)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return (
        stat[stat.index("(") + 1 : stat.rindex(")")],
        int(fields[11]) * tick_ns,
        int(fields[12]) * tick_ns,
        int(fields[7]) + int(fields[9]),
    )


def descendants(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """Every process below one, by generation. Source: proc(5), /proc/PID/task/TID/children."""
    found: list[int] = []
    generation = [pid]
    while generation:
        generation = [child for parent in generation for child in _children(parent, proc)]
        found += generation
    return found


def _children(pid: int, proc: Path) -> list[int]:
    try:
        tasks = list(Path(f"{proc}/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    listed = (_read(f"{task}/children") or "" for task in tasks)
    return sorted(int(child) for children in listed for child in children.split())


def _rollup(process: Path) -> str:
    """What all mappings of a process hold together; empty where the kernel does not tell."""
    try:
        return _read(f"{process}/smaps_rollup") or ""
    except PermissionError:
        return ""


def _read(path: str) -> str | None:
    """Read a file of /proc, or return None if its process has ended."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode(errors="replace")
