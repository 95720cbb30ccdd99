"""What the machine did beside a trial, and what machine it is.

`state` is cheap (small files of /proc) and is read before and after every trial. `fingerprint`
is taken once a run and says all that can change a figure: results under unlike fingerprints do not
merge, and `unlike` names what differs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

import tare
from tare import process
from tare.command import Command
from tare.process import ProcessError
from tare.told import Told

_PACKAGES = (
    # beneath every program, and around it
    "libc6", "libstdc++6", "libgomp1", "coreutils", "util-linux", "mount", "iproute2",
    # environments and guests
    "runc", "user-mode-linux", "linux-image-cloud-amd64", "busybox-static", "seabios",
    "qemu-system-x86", "qemu-system-common", "qemu-system-data", "qemu-utils", "qemu-guest-agent",
    # transports
    "libddsc0*", "cyclonedds-dev", "libfastrtps[0-9]*", "libfastdds[0-9]*", "libfastrtps-dev",
    "libfastdds-dev", "libfastcdr[0-9]*", "libzmq5",
    # what others wrote to measure with
    "stress-ng", "sysbench", "iperf3", "netcat-openbsd", "fio", "hdparm", "linux-perf",
    "nfs-ganesha", "nfs-ganesha-vfs",
    # MPI programs, their libraries and file systems
    "mpich", "libmpich[0-9]*", "libucx[0-9]*", "openmpi-bin", "libopenmpi[0-9]*", "libdnnl[0-9]*",
    "libpmem2", "python3.[0-9][0-9]", "python3-numpy", "python3-mpi4py", "python3-h5py-mpi",
    "libhdf5-openmpi-[0-9]*", "libpnetcdf[0-9]*", "glusterfs-server", "glusterfs-client",
    "glusterfs-common", "cgroup-tools", "e2fsprogs",
)  # fmt: skip
"""Debian packages whose version can change a figure; those that are not installed are left out.

Where a name counts the library's releases, any of them.
"""

_PROGRAMS = (
    "echo/echo-*", "probe/probe", "probe/execute",
    "nvio/nvio", "nvio/nvio-manager", "nvio/lib*.so", "nvio/grid-*", "nvio/programs/slab*",
    "walks/walks-mpich", "walks/walks-openmpi",
    "qemu-newer/root/usr/bin/qemu-system-x86_64",
)  # fmt: skip
"""What a trial can run of the build directory; tests, fuzz targets and benchmarks run in none."""
_INSTRUMENT = ("echo/echo-null", "probe/*")
"""What every session is calibrated with, and meets by."""
_PAGESHARE = "target/release/pageshare"
"""Cargo builds it, beside the build directory."""

_NEVER_MERGED = ("cpu.", "memory_bytes", "kernel.", "packages.", "programs.")
IDENTITY = ("cpu.model", "cpu.online", "cpu.usable", "cpu.virtual", "memory_bytes")
"""What makes it another machine. All else may be what a comparison is about."""
_MAY_CHANGE = ("kernel.same_page_merging",)
"""A daemon (ksmtuned) turns it on and off within a run as well."""

_DISTRIBUTIONS = ("numpy", "scipy", "pyroute2", "pyarrow", "qemu.qmp")
_TIMEOUT_S = 20.0


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


class Cpu(Told):
    """The processor, in a fingerprint."""

    model: str | None = None
    # Earlier versions listed them.
    usable: Annotated[
        int | None, BeforeValidator(lambda told: len(told) if isinstance(told, list) else told)
    ] = None


class Fingerprint(Told):
    """What `fingerprint` found: whole as it was told, and what is read of it."""

    cpu: Cpu = Cpu()
    system: str | None = None


def state(proc: Path = Path("/proc"), kvm: Path = Path("/sys/kernel/debug/kvm")) -> State:
    """Read the machine's counters.

    Sources: proc(5) for stat, loadavg, interrupts, vmstat and cpuinfo; the kernel's psi.rst.
    """
    # Right before the clock: a share of the time between two clocks is what they are read for.
    pressure = {what: _pressure(proc / "pressure" / what) for what in ("cpu", "memory", "io")}
    now = time.monotonic_ns()
    stat, vmstat = (proc / "stat").read_text(), _read(proc / "vmstat") or ""
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
        timer_interrupts=_timer_interrupts(_read(proc / "interrupts") or ""),
        page_faults=_vm_event(vmstat, "pgfault"),
        huge_page_faults=_vm_event(vmstat, "thp_fault_alloc"),
        frequency_mhz=_frequency(_read(proc / "cpuinfo") or ""),
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


def fingerprint(programs: Path) -> dict[str, Any]:
    """Describe all of this machine and its software that can change a figure; JSON-able.

    Reads every program once, of a whole build some hundred megabytes: take it once a run.

    Args:
        programs: the build directory; its programs, and the pageshare beside it, are named by their
            hashes. Parts that were not built are left out.
    """
    return {
        "cpu": _cpu(),
        "kernel": _kernel(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "cgroups": _cgroups(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", "unknown"),
        "packages": _packages(),
        "python": {
            "version": platform.python_version(),
            **{name: metadata.version(name) for name in _DISTRIBUTIONS},
        },
        "tare": {"version": tare.__version__, "commit": commit()},
        "programs": _hashes(programs),
    }


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name what differs between two fingerprints: `{"kernel.release": (this, that), ...}`.

    What only one of them has is None in the other.
    """
    flat_one, flat_other = dict(_flattened(one)), dict(_flattened(other))
    return {
        key: (flat_one.get(key), flat_other.get(key))
        for key in sorted(flat_one.keys() | flat_other.keys())
        if flat_one.get(key) != flat_other.get(key)
    }


def changed(began: Mapping[str, Any], now: Mapping[str, Any], programs: Iterable[str]) -> list[str]:
    """Name what forbids that trials of two moments are put into one result.

    What else differs (Tare's own commit, the analysis' libraries, programs that no trial runs)
    stands on record with each resumption.

    Args:
        began: a fingerprint.
        now: another.
        programs: patterns of the programs that the workload runs (`Workload.programs`).
    """
    run = [f"programs.{pattern}" for pattern in (*_INSTRUMENT, *programs)]
    return [
        key
        for key in unlike(began, now)
        if key.startswith(_NEVER_MERGED)
        and key not in _MAY_CHANGE
        and (not key.startswith("programs.") or any(fnmatchcase(key, one) for one in run))
    ]


def _flattened(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            rows += _flattened(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", list(value) if isinstance(value, tuple) else value))
    return rows


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
    counts = {path.name: _read(path) or "" for path in files}
    return {name: int(count) for name, count in counts.items() if count.isdecimal()}


def _pressure(path: Path) -> int | None:
    text = _read(path)
    found = re.search(r"^some .*total=(\d+)$", text or "", re.MULTILINE)
    return int(found[1]) if found else None


def _cpu() -> dict[str, Any]:
    info = _read(Path("/proc/cpuinfo")) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    microcode = re.search(r"^microcode\s*:\s*(.+)$", info, re.MULTILINE)
    system = Path("/sys/devices/system/cpu")
    return {
        "model": model[1] if model else platform.machine(),
        "microcode": microcode[1] if microcode else None,
        "online": _read(system / "online"),
        "usable": len(os.sched_getaffinity(0)),
        # Placements count from the first or the last of them: as many others are other cores.
        "affinity": sorted(os.sched_getaffinity(0)),
        "smt": _read(system / "smt/active"),
        "governor": _read(system / "cpu0/cpufreq/scaling_governor"),
        "idle_driver": _read(system / "cpuidle/current_driver"),
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE)),
    }


def _kernel() -> dict[str, Any]:
    system = Path("/sys/devices/system")
    vulnerabilities = sorted((system / "cpu/vulnerabilities").glob("*"))
    # What follows a lone double dash is for init, not for the kernel.
    command_line = (_read(Path("/proc/cmdline")) or "").partition(" -- ")[0]
    return {
        "release": platform.release(),
        "build": platform.version(),
        "command_line": command_line,
        "clock_source": _read(system / "clocksource/clocksource0/current_clocksource"),
        "real_time_runtime_us": _read(Path("/proc/sys/kernel/sched_rt_runtime_us")),
        "huge_pages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "same_page_merging": _read(Path("/sys/kernel/mm/ksm/run")),
        "mitigations": {path.name: _read(path) for path in vulnerabilities},
    }


def _cgroups() -> list[str]:
    """List the hierarchies: `cgroup2`, or `cgroup` with its controllers."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        kind, _, options = line.partition(" - ")[2].split()[:3]
        if kind == "cgroup2":
            found.add(kind)
        elif kind == "cgroup":
            found.add(f"{kind} {options.removeprefix('rw,')}")
    return sorted(found)


def _packages() -> dict[str, str]:
    show = ("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Package}=${Version}\\n")
    try:
        # It ends with 1 if one of them is unknown.
        out = process.run(Command((*show, *_PACKAGES)), _TIMEOUT_S, accept=(0, 1)).stdout
    except ProcessError:
        return {}  # not a Debian: the hashes of the programs still tell
    installed = [line[3:].partition("=") for line in out.splitlines() if line.startswith("ii ")]
    return {name: version for name, _, version in sorted(installed)}


def commit() -> str | None:
    """Tell the commit of the checkout that this code runs from, with `+changes` if it has any."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    git = ("git", "-c", f"safe.directory={root}", "-C", str(root))
    try:
        head = process.run(Command((*git, "rev-parse", "HEAD")), _TIMEOUT_S).stdout.strip()
        changed = process.run(
            Command((*git, "status", "--porcelain", "--untracked-files=no")), _TIMEOUT_S
        ).stdout
    except ProcessError:
        return None
    return f"{head}+changes" if changed else head


def _hashes(programs: Path) -> dict[str, str]:
    """SHA-256 of every program that a trial can run, by its path below `programs` or beside it."""
    found = {
        str(path.relative_to(programs)): path
        for pattern in _PROGRAMS
        for path in sorted(programs.glob(pattern))
    }
    found[_PAGESHARE] = programs.parent / _PAGESHARE
    return {name: _hash(path) for name, path in found.items() if path.is_file()}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
