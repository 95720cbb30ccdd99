"""What the machine did beside a trial: counters of the kernel, read before and after every one.

Cheap: small files of /proc and /sys.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class State:
    """Counters since boot, and the load, at one moment. None: this kernel does not count it."""

    monotonic_ns: int
    load_1min: float
    steal_ns: int
    """Time that a hypervisor took from this machine's processors, summed over them."""
    idle_ns: int
    context_switches: int
    interrupts: int
    """Of every kind, timers included."""
    timer_interrupts: int | None
    """Of the processors' own timers."""
    page_faults: int | None
    huge_page_faults: int | None
    """Faults that were answered with a transparent huge page."""
    frequency_mhz: float | None
    """Mean over the processors, as the kernel knows it; a virtual machine is told a constant."""
    kvm: Mapping[str, int]
    """Exits of all guests by kind, as KVM counts below debugfs; empty where it does not."""
    pressure_us: Mapping[str, int | None]
    """Time in which some task waited for `cpu`, `memory`, `io` (PSI, line `some`)."""


@dataclass(frozen=True)
class Meanwhile:
    """What the machine did between two states, as `State` counts it.

    Load and frequency are the later state's. None: this kernel does not count it, or nobody looked.
    """

    seconds: float | None = None
    load_1min: float | None = None
    steal_ns: int | None = None
    idle_ns: int | None = None
    context_switches: int | None = None
    interrupts: int | None = None
    timer_interrupts: int | None = None
    page_faults: int | None = None
    huge_page_faults: int | None = None
    frequency_mhz: float | None = None
    kvm: Mapping[str, int] = field(default_factory=dict)
    pressure_us: Mapping[str, int | None] = field(default_factory=dict)


def state(proc: Path = Path("/proc"), kvm: Path = Path("/sys/kernel/debug/kvm")) -> State:
    """Read the machine's counters.

    Sources: proc(5) for stat, loadavg, interrupts, vmstat and cpuinfo; the kernel's psi.rst.
    """
    # Right before the clock: a share of the time between two clocks is what they are read for.
    pressure = {what: _pressure(proc / "pressure" / what) for what in ("cpu", "memory", "io")}
    now = time.monotonic_ns()
    stat, vmstat = (proc / "stat").read_text(), text_of(proc / "vmstat") or ""
    cpu = [int(word) for word in stat.partition("\n")[0].split()[1:]]
    switches = re.search(r"^ctxt (\d+)$", stat, re.MULTILINE)
    assert switches is not None
    interrupts = re.search(r"^intr (\d+)", stat, re.MULTILINE)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return State(
        monotonic_ns=now,
        load_1min=float((proc / "loadavg").read_text().split()[0]),
        steal_ns=cpu[7] * tick_ns,
        idle_ns=cpu[3] * tick_ns,
        context_switches=int(switches[1]),
        interrupts=int(interrupts[1]) if interrupts else 0,
        timer_interrupts=_timer_interrupts(text_of(proc / "interrupts") or ""),
        page_faults=_vm_event(vmstat, "pgfault"),
        huge_page_faults=_vm_event(vmstat, "thp_fault_alloc"),
        frequency_mhz=_frequency(text_of(proc / "cpuinfo") or ""),
        kvm=_kvm_exits(kvm),
        pressure_us=pressure,
    )


def difference(before: State, after: State) -> Meanwhile:
    """Tell what the machine did between two states, for the record."""
    return Meanwhile(
        seconds=(after.monotonic_ns - before.monotonic_ns) / 1e9,
        load_1min=after.load_1min,
        steal_ns=max(0, after.steal_ns - before.steal_ns),
        idle_ns=max(0, after.idle_ns - before.idle_ns),
        context_switches=after.context_switches - before.context_switches,
        interrupts=after.interrupts - before.interrupts,
        timer_interrupts=_since(before.timer_interrupts, after.timer_interrupts),
        page_faults=_since(before.page_faults, after.page_faults),
        huge_page_faults=_since(before.huge_page_faults, after.huge_page_faults),
        frequency_mhz=after.frequency_mhz,
        # Counters of a guest that has ended are gone with it.
        kvm={kind: max(0, count - before.kvm.get(kind, 0)) for kind, count in after.kvm.items()},
        pressure_us={
            what: _since(before.pressure_us[what], now) for what, now in after.pressure_us.items()
        },
    )


def _since(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _vm_event(vmstat: str, name: str) -> int | None:
    found = re.search(rf"^{name} (\d+)$", vmstat, re.MULTILINE)
    return int(found[1]) if found else None


def _timer_interrupts(interrupts: str) -> int | None:
    """Sum over the processors of the line LOC, which x86 has; Arm counts them by device."""
    found = re.search(r"^\s*LOC:((?:\s+\d+)+)", interrupts, re.MULTILINE)
    return sum(int(count) for count in found[1].split()) if found else None


def _frequency(cpuinfo: str) -> float | None:
    found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", cpuinfo, re.MULTILINE)
    return sum(float(value) for value in found) / len(found) if found else None


def _kvm_exits(folder: Path) -> dict[str, int]:
    """Counters such as exits, halt_exits, mmio_exits, summed by the kernel over all guests.

    Source: the kernel's virt/kvm/kvm_main.c, which makes a file for each statistic.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.name.endswith("exits"))
    except OSError:
        return {}
    counts = {path.name: text_of(path) or "" for path in files}
    return {name: int(count) for name, count in counts.items() if count.isdecimal()}


def _pressure(path: Path) -> int | None:
    text = text_of(path)
    found = re.search(r"^some .*total=(\d+)$", text or "", re.MULTILINE)
    return int(found[1]) if found else None


def text_of(path: Path) -> str | None:
    """What a small file of the kernel's holds; None where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
