"""The server in a container: runc, with the host's root read-only and the server's network.

One container is one session; each server is a fresh process in it (`runc exec`), whose output runc
passes on. The container's first process only waits; it and every server die with the runc that
started them, and that dies with us.
"""

from __future__ import annotations

import itertools
import json
import platform
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tare import process
from tare.command import Command
from tare.environments import (
    Availability,
    Inside,
    Row,
    Site,
    for_root,
    oci,
    scratch_disk,
)
from tare.environments.on_host import OnHostServer, real_time, resolved
from tare.environments.scratch_disk import Device, Disk, device_of
from tare.errors import TrialError
from tare.process import ProcessError

__all__ = ["ENVIRONMENT", "Container"]

_TIMEOUT_S = 30.0
_REAL_TIME_PATIENCE_S = 60.0
_REAL_TIME_RETRY_S = 0.5
_HOSTS_CPU_GROUP = Path("/sys/fs/cgroup/cpu/cgroup.procs")
_REAL_TIME_REFUSED = "cpu.rt_runtime_us"
"""In runc's complaint when another container holds the machine's real-time budget."""


@dataclass(frozen=True)
class Container:
    """A container as runc makes it, without a seccomp filter.

    Attributes:
        device: a disk to be measured, if one is asked for.
    """

    device: Device | None = None
    name = "container"
    row = Row(
        "Container (runc)", "in the container (runc)", setup_s=0.9, session_s=0.3, request_s=60e-6
    )

    def with_options(self, plot: Mapping[str, str]) -> Container:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether runc is here and this user may use it."""
        version = _runc_version()
        if version is None:
            return Availability(False, "runc is not installed", "apt-get install runc")
        if self.device == "nfs":
            return scratch_disk.NO_NFS
        return for_root(version)

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
            disk = stack.enter_context(scratch_disk.on_host(site, self.device))
            devices = (Path(disk.path),) if disk else ()
            try:
                oci.write_bundle(bundle, name, site, devices=devices)
            except OSError as error:
                what = f"cannot write the container's bundle {bundle}: {error.strerror}"
                raise TrialError(what, "make room") from error
            stack.enter_context(_started(name, bundle, state, site.scratch / "logs"))
            yield _InsideContainer(site, name, bundle, state, disk)


ENVIRONMENT = Container()


class _InsideContainer:
    def __init__(self, site: Site, name: str, bundle: Path, state: Path, disk: Disk | None) -> None:
        self._site = site
        self._name = name
        self._bundle = bundle
        self._state = state
        self._count = itertools.count()
        self.address = site.hosts.server_address
        self.interface = site.hosts.server_interface
        self.session = name
        self._scheduled_with_the_host = (
            site.placement.fifo is not None and oci.schedules_real_time_by_group()
        )
        self.facts: Mapping[str, Any] = {
            "kernel": platform.release(),
            "runtime": _runc_version(),
            "root": "the host's, read-only",
            "capabilities": list(oci.CAPABILITIES),
            "seccomp": "none",
            "cpu_group": "the host's" if self._scheduled_with_the_host else "its own",
            **(disk.facts() if disk else {}),
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> OnHostServer:
        command, pid_file = self._exec(argv, env)
        name = f"container-{Path(argv[0]).name}"
        with ExitStack() as stack:
            running = stack.enter_context(
                process.start(command, log_dir=self._site.scratch / "logs", name=name)
            )
            pid = _await_pid(pid_file, running)
            if self._scheduled_with_the_host:
                _schedule_with_the_host(pid)
            server = OnHostServer(running, self.interface, pid)
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
        written.write_text(json.dumps(oci.process(inner.full_argv(), inner.full_env())))
        pid_file = self._bundle / f"pid-{number}"
        runc = ("runc", "--root", str(self._state), "exec", "--process", str(written))
        return Command((*runc, "--pid-file", str(pid_file), self._name)), pid_file


def _schedule_with_the_host(pid: int) -> None:
    """Put a server under SCHED_FIFO into the host's own group of the cpu controller.

    SCHED_FIFO is the instrument's choice, against noise, and no container's. Where the kernel
    budgets real-time by group, each of its switches walks one run queue more and keeps its
    accounts, which would be reported as the container's cost. Under SCHED_OTHER, as containers run,
    the server stays where runc put it.
    """
    with suppress(ProcessLookupError):  # it has ended, and its event will say how
        _HOSTS_CPU_GROUP.write_text(str(pid))


@contextmanager
def _started(name: str, bundle: Path, state: Path, logs: Path) -> Iterator[None]:
    """Hold a container; wait for real-time budget while another run's container has it.

    In the foreground: a detached runc would leave its output pipes to the container.
    """
    runc = ("runc", "--root", str(state), "run", "--bundle", str(bundle))
    command = Command((*runc, "--pid-file", str(bundle / "pid"), name))
    deadline = time.monotonic() + _REAL_TIME_PATIENCE_S
    while True:
        with process.start(command, log_dir=logs, name=name) as waiting:
            try:
                _await_pid(bundle / "pid", waiting)
            except TrialError:
                if _REAL_TIME_REFUSED not in waiting.stderr():
                    raise
            else:
                yield
                return
        if time.monotonic() > deadline:
            raise TrialError(
                "the container got no real-time budget: another container on this machine holds it",
                "let the other run end, or measure with `scheduling: other`",
            )
        time.sleep(_REAL_TIME_RETRY_S)


def _await_pid(pid_file: Path, running: process.Running) -> int:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline and running.alive():
        # runc writes it elsewhere and renames it, so that it is whole once it is there.
        if pid_file.exists():
            return int(pid_file.read_text())
        time.sleep(0.002)
    raise TrialError(f"runc did not start {running.command}: {running.stderr().strip()}")


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


@cache
def _runc_version() -> str | None:
    try:
        out = process.run(Command(("runc", "--version")), _TIMEOUT_S).stdout
    except ProcessError:
        return None
    return out.splitlines()[0].replace("version ", "")
