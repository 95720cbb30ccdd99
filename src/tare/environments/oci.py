"""The OCI bundle of a container: the host's root, read-only, with the server's network namespace.

The bundle's own root is an empty folder into which the runtime binds each folder of the host's
root, in the container's mount namespace: the host sees none of these mounts, and none is to undo.
Source: the OCI runtime specification 1.0.2, config.md and config-linux.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from tare.command import Command
from tare.environments import Site

__all__ = ["CAPABILITIES", "process", "schedules_real_time_by_group", "write_bundle"]

_OWN_ROOT_FOLDERS = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
"""Folders of the root that a container has for itself, or must not see."""

CAPABILITIES = ("CAP_SYS_NICE",)
"""For `chrt` and `taskset` inside: runc itself has to start as SCHED_OTHER."""

_RT_PERIOD_US = 1_000_000
_RT_RUNTIME_US = 950_000
"""What the root of the hierarchy has too, so that a container is throttled no sooner than the
host. Two containers that want it at once do not fit, and the second is refused by the kernel."""


def write_bundle(
    bundle: Path,
    name: str,
    site: Site,
    *,
    netns: str | None = None,
    bind: Literal["bind", "rbind"] = "bind",
    devices: Sequence[Path] = (),
) -> None:
    """Write a bundle: config.json, and the root's skeleton.

    Args:
        bundle: a folder that this makes.
        name: of the container's cgroup.
        site: whose programs and scratch folder the container is given.
        netns: its network namespace; None is the server's.
        bind: whether it sees what is mounted below the host's folders. A runtime that binds from a
            user namespace of its own (runsc) may not leave it out.
        devices: block devices of the host that it may use.
    """
    rootfs = bundle / "rootfs"
    rootfs.mkdir(parents=True)
    mounts = [
        _mount("/proc", "proc", ["nosuid", "noexec", "nodev"]),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=64k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
        # Fast DDS and others pass data through it.
        _mount("/dev/shm", "tmpfs", ["nosuid", "nodev", "mode=1777"]),  # noqa: S108
        _mount("/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
        _mount("/tmp", "tmpfs", ["nosuid", "nodev", "mode=1777"]),  # noqa: S108
        _mount("/run", "tmpfs", ["nosuid", "nodev", "mode=755"]),
    ]
    for path in sorted(Path("/").iterdir()):
        if path.is_symlink():
            (rootfs / path.name).symlink_to(path.readlink())
        elif path.is_dir() and path.name not in _OWN_ROOT_FOLDERS:
            mounts.append(_bound(path, bind, "ro"))
    # Both may lie below a folder that the container has for itself, or on another file system.
    mounts.append(_bound(site.programs.resolve(), bind, "ro"))
    mounts.append(_bound(site.scratch.resolve(), bind, "rw"))
    linux: dict[str, Any] = {
        "cgroupsPath": f"/{name}",
        "namespaces": [
            {"type": "pid"},
            {"type": "ipc"},
            {"type": "uts"},
            {"type": "mount"},
            {"type": "network", "path": f"/run/netns/{netns or site.hosts.server_ns}"},
        ],
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
        "readonlyPaths": ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    }
    if devices:
        nodes = [_block_device(path) for path in devices]
        linux["devices"] = [{**node, "fileMode": 0o600, "uid": 0, "gid": 0} for node in nodes]
        allowed = [
            {"allow": True, "access": "rwm", **{k: node[k] for k in ("type", "major", "minor")}}
            for node in nodes
        ]
        linux["resources"] = {"devices": [{"allow": False, "access": "rwm"}, *allowed]}
    if site.placement.fifo is not None and schedules_real_time_by_group():
        cpu = {"realtimePeriod": _RT_PERIOD_US, "realtimeRuntime": _RT_RUNTIME_US}
        linux.setdefault("resources", {})["cpu"] = cpu
    config = {
        "ociVersion": "1.0.2",
        # Ignoring SIGCHLD, the container's init reaps whoever is left to it.
        "process": process(Command(("env", "--ignore-signal=CHLD", "sleep", "infinity"))),
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "tare",
        "mounts": mounts,
        "linux": linux,
    }
    (bundle / "config.json").write_text(json.dumps(config, indent=1))


def process(command: Command) -> dict[str, Any]:
    """Describe a process to runc; its exec chain ties it to runc's own life."""
    kinds = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": command.full_argv(),
        "env": [f"{key}={value}" for key, value in command.full_env().items()],
        "cwd": "/",
        "capabilities": {kind: list(CAPABILITIES) for kind in kinds},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        "noNewPrivileges": True,
    }


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def _bound(path: Path, bind: str, access: str) -> dict[str, Any]:
    options = [bind, access, "nosuid", "nodev"]
    return {"destination": str(path), "type": "bind", "source": str(path), "options": options}


def _block_device(path: Path) -> dict[str, Any]:
    number = path.stat().st_rdev
    return {"path": str(path), "type": "b", "major": os.major(number), "minor": os.minor(number)}


def schedules_real_time_by_group() -> bool:
    """Tell whether a new cgroup may run nothing under SCHED_FIFO until it is given time for it."""
    return Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists()
