"""What this machine can do, and for each "no" the reason and the remedy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare import environments
from tare.command import PATH
from tare.errors import UnavailableError

_BUILD = "build it: `make build`"
_TRANSPORTS = {
    "icmp": _BUILD,
    "udp": _BUILD,
    "tcp": _BUILD,
    "cyclonedds": "install cyclonedds-dev, then `make build`",
    "fastdds": "install libfastrtps-dev, libfastcdr-dev and fastddsgen, then `make build`",
    "zeromq": "install libzmq3-dev, then `make build`",
    "connext": "RTI Connext needs your own installation and licence: configure with"
    " `cmake -S . -B build -DRTI_CONNEXT_DIR=/path/to/rti_connext_dds-X.Y.Z`, set"
    " RTI_LICENSE_FILE, then `make build`",
}


_PROGRAMS: dict[str, dict[str, str]] = {
    "cpu": {"stress-ng": "stress-ng", "sysbench": "sysbench"},
    "memory": {"stress-ng": "stress-ng", "sysbench": "sysbench"},
    "disk": {"hdparm": "hdparm", "fio": "fio", "losetup": "mount"},
    "disk over NFS": {
        "ganesha.nfsd": "nfs-ganesha",
        "/usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so": "nfs-ganesha-vfs",
    },
    "network": {"iperf3": "iperf3", "nc.openbsd": "netcat-openbsd"},
}
"""Workload -> the programs that it runs, each with its Debian package."""


@dataclass(frozen=True)
class Finding:
    """One part that a user may want to use."""

    name: str
    available: bool
    detail: str
    remedy: str | None = None
    can: frozenset[str] = frozenset()
    cannot: Mapping[str, str] = field(default_factory=dict)
    """For what an environment cannot be asked for: the reason, and what to do instead."""

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "available": self.available,
            "detail": self.detail,
            "remedy": self.remedy,
            "can": sorted(self.can),
            "cannot": dict(self.cannot),
        }


def require_root() -> None:
    """Refuse early, in one sentence, what would fail in the middle.

    Raises:
        UnavailableError: not root.
    """
    finding = _root()
    if not finding.available:
        raise UnavailableError(finding.detail, finding.remedy)


def examine(programs: Path) -> list[Finding]:
    """Look at privileges, every environment, every transport, and what workloads run.

    Args:
        programs: the build directory.
    """
    return [_root(), *_environments(), *_transports(programs), *_workloads()]


def missing_transports(programs: Path, wanted: Iterable[str]) -> dict[str, str]:
    """Name the transports that were not built, with the reason.

    Raises:
        UnavailableError: none of them was.
    """
    wanted = set(wanted)
    missing = {
        name: f"not built; {_TRANSPORTS.get(name, _BUILD)}"
        for name in sorted(wanted)
        if not _is_built(programs, name)
    }
    if missing and len(missing) == len(wanted):
        shown = "; ".join(f"{name}: {why}" for name, why in missing.items())
        raise UnavailableError(f"no transport of this experiment can run here: {shown}")
    return missing


def _is_built(programs: Path, transport: str) -> bool:
    return os.access(programs / "echo" / f"echo-{transport}", os.X_OK)


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("privileges", True, "root: namespaces and real-time priorities")
    return Finding(
        "privileges",
        False,
        f"user {os.geteuid()}: network namespaces cannot be made",
        "run tare as root; reports and comparisons need no privileges",
    )


def _environments() -> list[Finding]:
    return [
        Finding(f"environment {name}", a.available, a.detail, a.remedy, a.can, a.cannot)
        for name, a in ((n, e.availability()) for n, e in environments.by_name().items())
    ]


def _workloads() -> list[Finding]:
    found = []
    for name, programs in _PROGRAMS.items():
        missing = [p for p in programs if not (Path(p).is_file() or shutil.which(p, path=PATH))]
        if missing:
            packages = " ".join(sorted({programs[program] for program in missing}))
            detail = f"not installed: {', '.join(Path(program).name for program in missing)}"
            found.append(Finding(f"workload {name}", False, detail, f"apt-get install {packages}"))
        else:
            names = ", ".join(Path(program).name for program in programs)
            found.append(Finding(f"workload {name}", True, names))
    return found


def _transports(programs: Path) -> list[Finding]:
    found = []
    for name, remedy in _TRANSPORTS.items():
        if _is_built(programs, name):
            found.append(Finding(f"transport {name}", True, "built"))
        else:
            found.append(Finding(f"transport {name}", False, "not built", remedy))
    return found
