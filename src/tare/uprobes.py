"""A tracepoint on a function of the C library: how often a program reads the clock.

Reading the clock is no system call on most kernels, so that no tracepoint of the kernel's sees it;
where an environment makes it one (User-Mode Linux) or traps it, it costs hundreds of times as much,
and a middleware reads it several times for each message.

Source: the kernel's Documentation/trace/uprobetracer.rst.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

_GROUP = "tare"
_EVENTS = Path("/sys/kernel/tracing/uprobe_events")


def add_clock_readings(name: str) -> str | None:
    """Make a tracepoint on the C library's clock_gettime, whoever calls it, until it is removed.

    It costs nothing while nobody counts by it. Programs that bring a C library of their own, and
    guests, are not seen.

    Returns:
        The event, as `perf stat --event` takes it; None where this kernel has no such tracepoints.
    """
    place = _place("clock_gettime")
    if place is None or not _EVENTS.exists():
        return None
    path, offset = place
    try:
        _say(f"p:{_GROUP}/{name} {path}:{offset:#x}")
    except OSError:  # a kernel that is locked down
        return None
    return f"{_GROUP}:{name}"


def remove(name: str) -> bool:
    """Take a tracepoint away again; tell whether it was there. The list is the whole machine's."""
    if not _EVENTS.exists() or f":{_GROUP}/{name} " not in _EVENTS.read_text():
        return False
    _say(f"-:{_GROUP}/{name}")
    return True


def _say(line: str) -> None:
    # Not by open(): it seeks to the end, which this file refuses, or truncates, which empties it.
    events = os.open(_EVENTS, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(events, f"{line}\n".encode())
    finally:
        os.close(events)


def _place(function: str) -> tuple[str, int] | None:
    """Where a function of the C library lies: (file, offset in it); None if not in a file."""
    library = ctypes.CDLL(None)
    address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value or 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) r-x\S* ([0-9a-f]+) \S+ \d+\s+(/\S+)$", line)
        if found is None:
            continue
        start, end, offset = (int(found[i], 16) for i in (1, 2, 3))
        if start <= address < end:
            return found[4], address - start + offset
    return None
