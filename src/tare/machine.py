"""What machine it is: a fingerprint, taken once a run, of all that can change a figure.

Results under unlike fingerprints do not merge, and `unlike` names what differs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

import tare
from tare import mounts, process
from tare.command import Command
from tare.meanwhile import text_of
from tare.process import ProcessError
from tare.told import Told

_PACKAGES = (
    # beneath every program, and around it
    "libc6", "libstdc++6", "libgomp1", "coreutils", "util-linux", "mount", "iproute2",
    # environments and guests
    "runc", "user-mode-linux", "linux-image-cloud-amd64", "busybox-static", "seabios",
    "qemu-system-x86", "qemu-system-common", "qemu-system-data", "qemu-utils", "qemu-guest-agent",
    "virtiofsd",
    # transports
    "libddsc0*", "cyclonedds-dev", "libfastrtps[0-9]*", "libfastdds[0-9]*", "libfastrtps-dev",
    "libfastdds-dev", "libfastcdr[0-9]*", "libzmq5",
    # what others wrote to measure with
    "stress-ng", "sysbench", "iperf3", "netcat-openbsd", "fio", "hdparm", "linux-perf",
    "nfs-ganesha", "nfs-ganesha-vfs",
    # MPI programs, their libraries and file systems
    "mpich", "libmpich[0-9]*", "libucx[0-9]*", "openmpi-bin", "libopenmpi[0-9]*", "libdnnl[0-9]*",
    "libpmem2", "python3.[0-9][0-9]", "python3-numpy", "python3-mpi4py", "python3-h5py",
    "python3-h5py-mpi", "libhdf5-openmpi-[0-9]*", "libpnetcdf[0-9]*", "glusterfs-server",
    "glusterfs-client", "glusterfs-common", "e2fsprogs",
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

_PLACE = re.compile(
    r"(root|nfsroot|netroot|resume(_offset)?|cryptdevice|BOOT_IMAGE|BOOTIF|ip|ifname"
    r"|rd\.(lvm|luks|md|iscsi)\.[^=]*|systemd\.machine_id|[^=]*uuid[^=]*)=",
    re.IGNORECASE,
)
"""A word of a kernel's command line that names a disk or an interface: each node has its own."""

_KEPT_SHARE = 0.05
"""By how much of itself the memory of one machine may differ from one look to the next."""

_DISTRIBUTIONS = ("numpy", "scipy", "pyroute2", "pyarrow", "qemu.qmp")
_TIMEOUT_S = 20.0


def counted(usable: Any) -> Any:
    """How many processors a fingerprint tells of; those of earlier versions listed them."""
    return len(usable) if isinstance(usable, list) else usable


class Cpu(Told):
    """The processor, in a fingerprint."""

    model: str | None = None
    online: str | None = None
    smt: str | None = None
    usable: Annotated[int | None, BeforeValidator(counted)] = None

    @property
    def is_one_core(self) -> bool:
        """Whether the machine's two processors are threads of one core; False if it is not told."""
        return self.smt == "1" and self.online in ("0-1", "0,1")


class Fingerprint(Told):
    """What `fingerprint` found: whole as it was told, and what is read of it."""

    cpu: Cpu = Cpu()
    system: str | None = None


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


def with_programs(found: Mapping[str, Any], called: Iterable[Path]) -> dict[str, Any]:
    """A fingerprint that tells of a user's programs and files, too.

    Args:
        found: as `fingerprint` made it.
        called: absolute, as no name of Tare's own programs is; what cannot be read is left out.
    """
    told = {str(path): _version(path) for path in called if os.access(path, os.R_OK)}
    return {**found, "programs": {**found["programs"], **told}}


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name what differs between two fingerprints: `{"kernel.release": (this, that), ...}`.

    What only one of them has is None in the other.
    """
    flat_one, flat_other = dict(flattened(one)), dict(flattened(other))
    return {
        key: (flat_one.get(key), flat_other.get(key))
        for key in sorted(flat_one.keys() | flat_other.keys())
        if flat_one.get(key) != flat_other.get(key)
    }


def another(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Name what makes two fingerprints those of two machines, as `unlike` does."""
    differing = unlike(one, other)
    return {
        key: differing[key]
        for key in IDENTITY
        if key in differing and _differ(key, *differing[key])
    }


def _differ(key: str, one: Any, other: Any) -> bool:
    """Whether two values that are not the same are of two machines."""
    if key == "kernel.command_line" and one is not None and other is not None:
        one, other = _without_places(one), _without_places(other)
    if key == "cpu.usable":
        one, other = counted(one), counted(other)
    if key == "memory_bytes" and one is not None and other is not None:
        return not same_memory(one, other)
    return bool(one != other)


def _without_places(command_line: str) -> list[str]:
    return [word for word in command_line.split() if not _PLACE.match(word)]


def same_memory(one: int, other: int) -> bool:
    """Whether both may be one machine's: firmware, kernel and balloon keep some of it."""
    return abs(one - other) <= _KEPT_SHARE * max(one, other)


def changed(began: Mapping[str, Any], now: Mapping[str, Any], programs: Iterable[str]) -> list[str]:
    """Name what forbids that trials of two moments are put into one result.

    What else differs (Tare's own commit, the analysis' libraries, programs that no trial runs)
    stands on record with each resumption.

    Args:
        began: a fingerprint.
        now: another.
        programs: patterns of the programs that the workload runs (`Workload.programs`); what is
            absolute is the user's own, and run.
    """
    run = [f"programs.{pattern}" for pattern in (*_INSTRUMENT, "/*", *programs)]
    return [
        key
        for key, (then, later) in unlike(began, now).items()
        if key.startswith(_NEVER_MERGED)
        and key not in _MAY_CHANGE
        and _differ(key, then, later)
        and (not key.startswith("programs.") or any(fnmatchcase(key, one) for one in run))
    ]


def flattened(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Every value in a tree, by the way to it: `kernel.release`; a tuple as a list."""
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            rows += flattened(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", list(value) if isinstance(value, tuple) else value))
    return rows


def _cpu() -> dict[str, Any]:
    info = text_of(Path("/proc/cpuinfo")) or ""
    model = re.search(r"^model name\s*:\s*(.+)$", info, re.MULTILINE)
    microcode = re.search(r"^microcode\s*:\s*(.+)$", info, re.MULTILINE)
    system = Path("/sys/devices/system/cpu")
    return {
        "model": model[1] if model else platform.machine(),
        "microcode": microcode[1] if microcode else None,
        "online": text_of(system / "online"),
        "usable": len(os.sched_getaffinity(0)),
        # Placements count from the first or the last of them: as many others are other cores.
        "affinity": sorted(os.sched_getaffinity(0)),
        "smt": text_of(system / "smt/active"),
        "governor": text_of(system / "cpu0/cpufreq/scaling_governor"),
        "idle_driver": text_of(system / "cpuidle/current_driver"),
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", info, re.MULTILINE)),
    }


def _kernel() -> dict[str, Any]:
    system = Path("/sys/devices/system")
    vulnerabilities = sorted((system / "cpu/vulnerabilities").glob("*"))
    # What follows a lone double dash is for init, not for the kernel.
    command_line = (text_of(Path("/proc/cmdline")) or "").partition(" -- ")[0]
    return {
        "release": platform.release(),
        "build": platform.version(),
        "command_line": command_line,
        "clock_source": text_of(system / "clocksource/clocksource0/current_clocksource"),
        "real_time_runtime_us": text_of(Path("/proc/sys/kernel/sched_rt_runtime_us")),
        "huge_pages": text_of(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        "same_page_merging": text_of(Path("/sys/kernel/mm/ksm/run")),
        "mitigations": {path.name: text_of(path) for path in vulnerabilities},
    }


def _cgroups() -> list[str]:
    """List the hierarchies: `cgroup2`, or `cgroup` with its controllers."""
    found = set()
    for one in mounts.listed():
        if one.kind == "cgroup2":
            found.add(one.kind)
        elif one.kind == "cgroup":
            found.add(f"{one.kind} {one.options.removeprefix('rw,')}")
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


def _version(path: Path) -> str:
    """Of a file that is no program its content stays untold: it may be long, or a secret."""
    if os.access(path, os.X_OK):
        return _hash(path)
    status = path.stat()
    return f"{status.st_size} bytes, modified at {status.st_mtime_ns} ns"


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
