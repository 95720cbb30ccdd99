"""What this machine can do, and for each "no" the reason and the remedy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare import capabilities, environments, filesystems, operations, rootless, transports
from tare.command import missing_packages
from tare.errors import UnavailableError
from tare.packages import PROGRAMS

_BUILD = "build it in a checkout: `make build`"


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
        return {**vars(self), "can": sorted(self.can), "cannot": dict(self.cannot)}


def require_root() -> None:
    """Refuse early, in one sentence, what would fail in the middle.

    Raises:
        UnavailableError: not root.
    """
    finding = _root()
    if not finding.available:
        raise UnavailableError(finding.detail, finding.remedy)


def examine(programs: Path) -> list[Finding]:
    """Look at privileges, environments, transports, what workloads run, and what they run on.

    Args:
        programs: the build directory.
    """
    return [
        _root(),
        *_environments(),
        *_transports(programs),
        *_workloads(),
        _counting(),
        *_file_systems(),
        *_remedies(programs),
    ]


def _root() -> Finding:
    # Hosts are mounts; the smallest Debian 13 has none of its programs.
    if missing := missing_packages({"umount": "mount"}):
        remedy = f"apt-get install {missing}"
        return Finding("privileges", False, f"not installed: {missing}", remedy)
    if rootless.is_root():
        if absent := capabilities.lacking(*capabilities.RUN):
            return Finding("privileges", False, f"root, but {absent}", capabilities.REMEDY)
        return Finding("privileges", True, "root: namespaces and real-time priorities")
    user = f"user {rootless.STARTED_AS}"
    if rootless.is_on():
        detail = f"{user}, root of a user namespace: {rootless.LACKS}"
        return Finding("privileges", True, detail, "run tare as root for these")
    return Finding(
        "privileges",
        False,
        f"{user}: network namespaces cannot be made",
        "run tare as root, or allow users namespaces (kernel.unprivileged_userns_clone,"
        " kernel.apparmor_restrict_unprivileged_userns); reports need no privileges",
    )


def _environments() -> list[Finding]:
    return [
        _of(f"environment {name}", kind.availability())
        for name, kind in environments.by_name().items()
    ]


def _file_systems() -> list[Finding]:
    return [
        _of(f"file system {name}", filesystems.named(name).availability())
        for name in filesystems.NAMES
    ]


def _of(name: str, found: environments.Availability) -> Finding:
    return Finding(name, found.available, found.detail, found.remedy, found.can, found.cannot)


def _remedies(programs: Path) -> list[Finding]:
    """What Tare itself takes cost away with; the workloads migration and mpi-io judge it."""
    found = {
        "pageshare": programs.parent / "target" / "release" / "pageshare",
        "nvio": programs / "nvio" / "nvio",
        "walks": programs / "walks" / "walks-mpich",
    }
    return [_built(f"program {name}", path, _BUILD) for name, path in found.items()]


def _workloads() -> list[Finding]:
    found = []
    for name, programs in PROGRAMS.items():
        said, remedy = ", ".join(Path(program).name for program in programs), None
        if missing := missing_packages(programs):
            said, remedy = f"not installed: {missing}", f"apt-get install {missing}"
        found.append(Finding(f"workload {name}", not missing, said, remedy))
    return found


def _counting() -> Finding:
    """What the sessions of `causes` need, and with them `tare predict` and `tare explain`."""
    try:
        operations.require_perf()
    except UnavailableError as error:
        return Finding("operations counted", False, error.what, error.remedy)
    return Finding("operations counted", True, "perf, and the kernel's tracepoints")


def _transports(programs: Path) -> list[Finding]:
    return [
        _built(f"transport {row.name}", programs / row.program, row.remedy)
        for row in transports.by_name().values()
    ]


def _built(name: str, path: Path, remedy: str) -> Finding:
    if os.access(path, os.X_OK):
        return Finding(name, True, "built")
    return Finding(name, False, "not built", remedy)
