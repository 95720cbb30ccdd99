"""The OCI bundle of a container: the host's root, read-only, with the server's network namespace.

The bundle's own root is an empty folder into which the runtime binds each folder of the host's
root, in the container's mount namespace: the host sees none of these mounts, and none is to undo.
Source: the OCI runtime specification 1.0.2, config.md and config-linux.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from tare.command import Command
from tare.environments import Site

__all__ = [
    "CAPABILITIES",
    "WAITS",
    "Root",
    "configuration",
    "process",
    "schedules_real_time_by_group",
    "write_bundle",
]

_OWN_ROOT_FOLDERS = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
"""Folders of the root that a container has for itself, or must not see."""

CAPABILITIES = ("CAP_SYS_NICE",)
"""For `chrt` and `taskset` inside: runc itself has to start as SCHED_OTHER."""

WAITS = ("env", "--ignore-signal=CHLD", "sleep", "infinity")
"""The first process of a container: ignoring SIGCHLD, it reaps whoever is left to it."""

_RT_PERIOD_US = 1_000_000
_RT_RUNTIME_US = 950_000
"""What the root of the hierarchy has too, so that a container is throttled no sooner than the
host. Two containers that want it at once do not fit, and the second is refused by the kernel."""


@dataclass(frozen=True)
class Root:
    """What lies in the root folder of the machine whose root a container is given.

    Attributes:
        folders: those in it.
        links: name of a symbolic link -> what it says.
    """

    folders: tuple[PurePosixPath, ...]
    links: Mapping[str, str]

    @staticmethod
    def here() -> Root:
        """This machine's."""
        paths = sorted(Path("/").iterdir())
        links = {path.name: str(path.readlink()) for path in paths if path.is_symlink()}
        found = [path for path in paths if path.is_dir() and not path.is_symlink()]
        return Root(tuple(map(PurePosixPath, found)), links)


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
    root = Root.here()
    for link, target in root.links.items():
        (rootfs / link).symlink_to(target)
    waiting = Command(WAITS)
    config = configuration(
        name,
        root,
        init=process(waiting.full_argv(), waiting.full_env()),
        read_only=(PurePosixPath(site.programs.resolve()),),
        writable=(PurePosixPath(site.scratch.resolve()),),
        netns=f"/run/netns/{netns or site.hosts.server_ns}",
        bind=bind,
        devices=devices,
        real_time=site.placement.fifo is not None and schedules_real_time_by_group(),
    )
    (bundle / "config.json").write_text(json.dumps(config, indent=1))


def configuration(
    name: str,
    root: Root,
    *,
    init: Mapping[str, Any],
    read_only: Sequence[PurePosixPath] = (),
    writable: Sequence[PurePosixPath] = (),
    netns: str | None = None,
    bind: Literal["bind", "rbind"] = "bind",
    devices: Sequence[Path] = (),
    real_time: bool = False,
) -> dict[str, Any]:
    """Say what a container is, as config.json has it.

    Args:
        name: of its cgroup.
        root: whose folders it sees, read-only. The links are to be in its skeleton.
        init: its first process, as `process` describes one.
        read_only: further folders that it sees.
        writable: those that it may write to.
        netns: path of its network namespace; None leaves it in that of whoever starts it.
        bind: as `write_bundle`.
        devices: block devices of this machine that it may use.
        real_time: whether its group needs time to run anything under SCHED_FIFO.
    """
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
    seen = [path for path in root.folders if path.name not in _OWN_ROOT_FOLDERS]
    # The last may lie below a folder that the container has for itself, or elsewhere altogether.
    mounts += [_bound(path, bind, "ro") for path in (*seen, *read_only)]
    mounts += [_bound(path, bind, "rw") for path in writable]
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    if netns is not None:
        namespaces.append({"type": "network", "path": netns})
    linux: dict[str, Any] = {
        "cgroupsPath": f"/{name}",
        "namespaces": namespaces,
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
    if real_time:
        cpu = {"realtimePeriod": _RT_PERIOD_US, "realtimeRuntime": _RT_RUNTIME_US}
        linux.setdefault("resources", {})["cpu"] = cpu
    return {
        "ociVersion": "1.0.2",
        "process": init,
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "tare",
        "mounts": mounts,
        "linux": linux,
    }


def process(argv: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Describe a process to runc: all of its arguments, and all of its environment."""
    kinds = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(argv),
        "env": [f"{key}={value}" for key, value in env.items()],
        "cwd": "/",
        "capabilities": {kind: list(CAPABILITIES) for kind in kinds},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        "noNewPrivileges": True,
    }


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def _bound(path: PurePosixPath, bind: str, access: str) -> dict[str, Any]:
    options = [bind, access, "nosuid", "nodev"]
    return {"destination": str(path), "type": "bind", "source": str(path), "options": options}


def _block_device(path: Path) -> dict[str, Any]:
    number = path.stat().st_rdev
    return {"path": str(path), "type": "b", "major": os.major(number), "minor": os.minor(number)}


def schedules_real_time_by_group() -> bool:
    """Tell whether a new cgroup may run nothing under SCHED_FIFO until it is given time for it."""
    return Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists()
