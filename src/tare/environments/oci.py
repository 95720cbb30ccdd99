"""The OCI bundle of a container: the root of its host, read-only, with a network namespace of it.

The bundle's own root is an empty folder into which the runtime binds each folder of the host's
root, in the container's mount namespace: the host sees none of these mounts, and none is to undo.
Source: the OCI runtime specification 1.0.2, config.md and config-linux.md.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal

from tare import bounds, rootless
from tare.command import Command, by_name
from tare.errors import TrialError
from tare.host import Host, Process
from tare.pauses import pauses
from tare.tree import CAPABILITIES as OF_A_USER
from tare.trees.merged import Merged

_OWN_ROOT_FOLDERS = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
"""Folders of the root that a container has for itself, or must not see."""

CAPABILITIES = ("CAP_SYS_NICE",)
"""For `chrt` and `taskset` inside: runc itself has to start as SCHED_OTHER."""

_DESCRIPTORS = 1024
"""That our programs may have open inside: some close all that there could be, one by one."""
_LIMITS = tuple(
    f"RLIMIT_{name}"
    for name in (
        "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC",
        "RSS", "RTPRIO", "RTTIME", "SIGPENDING", "STACK",
    )
)  # fmt: skip

_TIMEOUT_S = 30.0
_START_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.002


def write_bundle(
    host: Host,
    bundle: PurePath,
    name: str,
    *,
    read_only: Sequence[PurePath] = (),
    writable: Sequence[PurePath] = (),
    netns: str | None = None,
    bind: Literal["bind", "rbind"] = "rbind" if rootless.is_on() else "bind",
    devices: Sequence[Path] = (),
    merged: Merged | None = None,
) -> None:
    """Write a bundle there: config.json, and an empty root.

    Args:
        host: where it is to be.
        bundle: its folder.
        name, read_only, writable, netns, bind, devices: as `configuration` has them.
        merged: the whole root that it sees and may write to, instead of any other folder.
    """
    found = () if merged else _folders(host)
    tool = merged.tool if merged else by_name
    # Ignoring SIGCHLD, it reaps whoever is left to it.
    waiting = Command((*tool("env"), "--ignore-signal=CHLD", *tool("sleep"), "infinity"))
    config = configuration(
        name,
        found,
        init={
            **process(waiting.full_argv(tool), host.environment(waiting)),
            # gVisor gives these to whatever is added.
            "rlimits": _limits(merged),
        },
        read_only=read_only,
        writable=writable,
        netns=netns,
        bind=bind,
        devices=devices,
        tree=merged.root if merged else None,
    )
    host.write(bundle / "config.json", json.dumps(config, indent=1))
    host.run(Command(("mkdir", str(bundle / "rootfs"))), _TIMEOUT_S)


def _folders(host: Host) -> list[PurePosixPath]:
    look = Command(("find", "/", "-mindepth", "1", "-maxdepth", "1", "-xtype", "d"))
    return sorted(map(PurePosixPath, host.run(look, _TIMEOUT_S).splitlines()))


def await_pid(host: Host, file: PurePath, starter: Process) -> int:
    """Wait until a runtime has written down the pid of what it started.

    Raises:
        TrialError: it ended before, or took too long.
    """
    for _ in pauses(_START_TIMEOUT_S, longest_s=_LOOK_AGAIN_S):
        on = starter.alive()
        if (written := host.read(file).strip()).isdecimal():
            return int(written)
        if not on:
            break
    words = starter.stderr().strip()[-1000:]
    raise TrialError(f"the container's runtime did not start it on {host.name}: {words}")


def configuration(
    name: str,
    root: Sequence[PurePath],
    *,
    init: Mapping[str, Any],
    read_only: Sequence[PurePath] = (),
    writable: Sequence[PurePath] = (),
    netns: str | None = None,
    bind: Literal["bind", "rbind"] = "rbind" if rootless.is_on() else "bind",
    devices: Sequence[Path] = (),
    tree: Path | None = None,
) -> dict[str, Any]:
    """Say what a container is, as config.json has it.

    Args:
        name: of its cgroup.
        root: folders in the root folder of its machine, links to folders among them.
        init: its first process, as `process` describes one.
        read_only: further folders that it sees.
        writable: those that it may write to.
        netns: path of its network namespace; None leaves it in that of whoever starts it.
        bind: whether it sees what is mounted below the host's folders. A runtime that binds from a
            user namespace of its own (runsc) may not leave it out.
        devices: block devices of this machine that it may use.
        tree: the whole root that it sees and may write to, instead of any other folder.
    """
    mounts = [
        _mount("/proc", "proc", ["nosuid", "noexec", "nodev"]),
        _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=64k"]),
        _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666"]),
        # Fast DDS and others pass data through it.
        _mount("/dev/shm", "tmpfs", ["nosuid", "nodev", "mode=1777"]),  # noqa: S108
        _mount("/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"]),
    ]
    if tree is None:
        mounts += [
            _mount("/tmp", "tmpfs", ["nosuid", "nodev", "mode=1777"]),  # noqa: S108
            _mount("/run", "tmpfs", ["nosuid", "nodev", "mode=755"]),
        ]
        seen = [path for path in root if path.name not in _OWN_ROOT_FOLDERS]
        # The last may lie below a folder that it has for itself, or elsewhere altogether.
        mounts += [_bound(path, bind, "ro") for path in (*seen, *read_only)]
        mounts += [_bound(path, bind, "rw") for path in writable]
    namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
    if netns is not None:
        namespaces.append({"type": "network", "path": netns})
    linux: dict[str, Any] = {
        # Named, it would have to be made; rootless it cannot be. Relative, it is beneath our own.
        **({} if rootless.is_on() else {"cgroupsPath": name if bounds.are_on() else f"/{name}"}),
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
    return {
        "ociVersion": "1.0.2",
        "process": init,
        "root": {"path": str(tree or "rootfs"), "readonly": tree is None},
        "hostname": "tare",
        "mounts": mounts,
        "linux": linux,
    }


def process(
    argv: Sequence[str], env: Mapping[str, str], merged: Merged | None = None
) -> dict[str, Any]:
    """Describe a process to runc: all of its arguments, and all of its environment.

    Args:
        argv, env: these.
        merged: the tree that it has for its root, where it is a user's: it is capable of what it
            may have there, beside `CAPABILITIES`, and has the limits that it would have natively.
    """
    capable = [*CAPABILITIES, *(f"CAP_{name.upper()}" for name in (OF_A_USER if merged else ()))]
    kinds = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": list(argv),
        "env": [f"{key}={value}" for key, value in env.items()],
        "cwd": "/",
        "capabilities": dict.fromkeys(kinds, capable),
        "rlimits": _limits(merged),
        "noNewPrivileges": True,
    }


def _limits(merged: Merged | None) -> list[dict[str, Any]]:
    """Those of this process for a user's; ours may have few descriptors open."""
    if merged:
        return [_limit(name, *resource.getrlimit(getattr(resource, name))) for name in _LIMITS]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    # Raising ours takes CAP_SYS_RESOURCE.
    few = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(_DESCRIPTORS, most)
    return [_limit("RLIMIT_NOFILE", few, few)]


def limit_again() -> str:
    """Return the shell's command for the limit of a user's process that runc may have raised.

    Built with Go 1.19, as Debian 12's is, it raises its own number of descriptors to the most, now
    before it is told the process's limits, now after.
    """
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"ulimit -S -n {'unlimited' if soft == resource.RLIM_INFINITY else soft}"


def _limit(name: str, soft: int, hard: int) -> dict[str, Any]:
    # Without a limit: the largest number there, -1 here.
    return {"type": name, "soft": soft % (1 << 64), "hard": hard % (1 << 64)}


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def _bound(path: PurePath, bind: str, access: str) -> dict[str, Any]:
    options = [bind, access, "nosuid", "nodev"]
    return {"destination": str(path), "type": "bind", "source": str(path), "options": options}


def _block_device(path: Path) -> dict[str, Any]:
    number = path.stat().st_rdev
    return {"path": str(path), "type": "b", "major": os.major(number), "minor": os.minor(number)}
