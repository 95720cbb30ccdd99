"""The server in a container: runc, with the host's root read-only and the server's network.

The root is an empty folder into which runc binds each folder of the host's root, read-only, in the
container's own mount namespace: the host sees none of these mounts. One container is one session;
each server is a fresh process in it (`runc exec`), whose output runc passes on and which is gone
from the measured path.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tare import process
from tare.command import Command
from tare.environments import Availability, Inside, Site
from tare.environments.on_host import OnHostServer, real_time, resolved
from tare.errors import TrialError
from tare.process import ProcessError

__all__ = ["Container"]

_TIMEOUT_S = 30.0
_OWN_ROOT_FOLDERS = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
"""Folders of the root that a container has for itself, or must not see."""

_CAPABILITIES = ("CAP_SYS_NICE",)
"""For `chrt` and `taskset` inside: runc itself has to start as SCHED_OTHER."""

_RT_PERIOD_US = 1_000_000
_RT_RUNTIME_US = 950_000
"""What the root of the hierarchy has too, so that a container is throttled no sooner than the
host. Two containers that want it at once do not fit, and the second is refused by the kernel."""


class Container:
    """A container as runc makes it, without a seccomp filter."""

    name = "container"

    def availability(self) -> Availability:
        """Tell whether runc is here and this user may use it."""
        version = _runc_version()
        if version is None:
            return Availability(False, "runc is not installed", "apt-get install runc")
        if os.geteuid() != 0:
            return Availability(False, f"{version}, but this user is not root", "run as root")
        can = frozenset({"network", "disk", "pinning", "accounting"})
        return Availability(True, version, can=can)

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Start a container that waits, to which servers are added."""
        name = f"tare-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        bundle = site.scratch / name
        state = bundle / "state"
        with ExitStack() as stack:
            stack.enter_context(site.leftovers.owing("directory", str(bundle)))
            for cgroup in _cgroups(name):
                stack.enter_context(site.leftovers.owing("cgroup", str(cgroup)))
            stack.enter_context(site.leftovers.owing("container", name, str(state)))
            _write_bundle(bundle, name, site)
            waiting = stack.enter_context(_started(name, bundle, state, site.scratch / "logs"))
            _await_pid(bundle / "pid", waiting)
            yield _InsideContainer(site, name, bundle, state)


class _InsideContainer:
    def __init__(self, site: Site, name: str, bundle: Path, state: Path) -> None:
        self._site = site
        self._name = name
        self._bundle = bundle
        self._state = state
        self._count = itertools.count()
        self.address = site.hosts.server_address
        self.interface = site.hosts.server_interface
        self.session = name
        self.facts: Mapping[str, Any] = {
            "kernel": platform.release(),
            "runtime": _runc_version(),
            "root": "the host's, read-only",
            "capabilities": list(_CAPABILITIES),
            "seccomp": "none",
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> OnHostServer:
        command, pid_file = self._exec(argv, env)
        name = f"container-{Path(argv[0]).name}"
        with ExitStack() as stack:
            running = stack.enter_context(
                process.start(command, log_dir=self._site.scratch / "logs", name=name)
            )
            server = OnHostServer(running, self.interface, _await_pid(pid_file, running))
            stack.pop_all()
        return server

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        command, _ = self._exec(argv, None)
        return process.run(command, timeout_s).stdout

    def _exec(self, argv: Sequence[str], env: Mapping[str, str] | None) -> tuple[Command, Path]:
        """Write down a process for `runc exec`; return the command and where its pid will be."""
        placement = self._site.placement
        inner = Command(
            resolved(argv, self._site.programs),
            env=env or {},
            cpus=placement.server,
            fifo=real_time(argv, placement),
        )
        number = next(self._count)
        written = self._bundle / f"process-{number}.json"
        written.write_text(json.dumps(_process(inner)))
        pid_file = self._bundle / f"pid-{number}"
        runc = ("runc", "--root", str(self._state), "exec", "--process", str(written))
        return Command((*runc, "--pid-file", str(pid_file), self._name)), pid_file


def _started(name: str, bundle: Path, state: Path, logs: Path) -> process.Running:
    """Start a container whose first process does nothing, and dies with runc, which dies with us.

    In the foreground: a detached runc would leave its output pipes to the container.
    """
    runc = ("runc", "--root", str(state), "run", "--bundle", str(bundle))
    pid_file = ("--pid-file", str(bundle / "pid"))
    return process.start(Command((*runc, *pid_file, name)), log_dir=logs, name=name)


def _await_pid(pid_file: Path, running: process.Running) -> int:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and running.alive():
        # runc writes it elsewhere and renames it, so that it is whole once it is there.
        if pid_file.exists():
            return int(pid_file.read_text())
        time.sleep(0.002)
    raise TrialError(f"runc did not start {running.command}: {running.stderr().strip()}")


def _write_bundle(bundle: Path, name: str, site: Site) -> None:
    """Write an OCI bundle: the root's skeleton and config.json."""
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
            mounts.append(_bound(path, "ro"))
    # Both may lie below a folder that the container has for itself, or on another file system.
    mounts.append(_bound(site.programs.resolve(), "ro"))
    mounts.append(_bound(site.scratch.resolve(), "rw"))
    linux: dict[str, Any] = {
        "cgroupsPath": f"/{name}",
        "namespaces": [
            {"type": "pid"},
            {"type": "ipc"},
            {"type": "uts"},
            {"type": "mount"},
            {"type": "network", "path": f"/run/netns/{site.hosts.server_ns}"},
        ],
        "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list"],
        "readonlyPaths": ["/proc/bus", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
    }
    if site.placement.fifo is not None and _schedules_real_time_by_group():
        cpu = {"realtimePeriod": _RT_PERIOD_US, "realtimeRuntime": _RT_RUNTIME_US}
        linux["resources"] = {"cpu": cpu}
    config = {
        "ociVersion": "1.0.2",
        # Ignoring SIGCHLD, the container's init reaps whoever is left to it.
        "process": _process(Command(("env", "--ignore-signal=CHLD", "sleep", "infinity"))),
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "tare",
        "mounts": mounts,
        "linux": linux,
    }
    (bundle / "config.json").write_text(json.dumps(config, indent=1))


def _process(command: Command) -> dict[str, Any]:
    """Describe a process to runc; its exec chain ties it to runc's own life."""
    kinds = ("bounding", "effective", "permitted")
    return {
        "terminal": False,
        "user": {"uid": 0, "gid": 0},
        "args": command.full_argv(),
        "env": [f"{key}={value}" for key, value in command.full_env().items()],
        "cwd": "/",
        "capabilities": {kind: list(_CAPABILITIES) for kind in kinds},
        "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
        "noNewPrivileges": True,
    }


def _mount(destination: str, kind: str, options: list[str]) -> dict[str, Any]:
    return {"destination": destination, "type": kind, "source": kind, "options": options}


def _bound(path: Path, access: str) -> dict[str, Any]:
    options = ["bind", access, "nosuid", "nodev"]
    return {"destination": str(path), "type": "bind", "source": str(path), "options": options}


def _cgroups(name: str) -> list[Path]:
    """List where runc makes a cgroup of this name, in every hierarchy that is mounted.

    Source: proc(5), /proc/PID/mountinfo; field 5 is the mount point, the type follows the dash.
    """
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split()[4]) / name)
    return found


def _schedules_real_time_by_group() -> bool:
    """Tell whether a new cgroup may run nothing under SCHED_FIFO until it is given time for it."""
    return Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists()


@cache
def _runc_version() -> str | None:
    try:
        out = process.run(Command(("runc", "--version")), _TIMEOUT_S).stdout
    except ProcessError:
        return None
    return out.splitlines()[0].replace("version ", "")
