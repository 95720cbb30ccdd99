"""The server in a container: runc, with its host's root read-only and the server's network.

One container is one session; each server is a fresh process in it (`runc exec`), whose output runc
passes on. The container's first process only waits; it and every server die with the runc that
started them, and that dies with us, or on another machine with our folder there.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from tare import capabilities, process, rootless
from tare.accounting import descendants
from tare.command import Command, by_name
from tare.environments import Availability, Facts, Inside, Row, Site, for_root, oci, scratch_disk
from tare.environments.on_host import OnAnyHost, Server
from tare.environments.scratch_disk import Device, device_of
from tare.errors import TrialError
from tare.host import Host, Process, require
from tare.process import ProcessError
from tare.trees.merged import Merged, laid_out

_TIMEOUT_S = 30.0
_REAPING_S = 5.0
RUNC = ("runc", "--rootless=true") if rootless.is_on() else ("runc",)
_CPU_GROUP = Path("/sys/fs/cgroup/cpu")


@dataclass(frozen=True)
class Container(OnAnyHost):
    """A container as runc makes it, without a seccomp filter.

    Attributes:
        device: a disk to be measured, if one is asked for.
    """

    device: Device | None = None
    name = "container"
    row = Row(
        "Container (runc)", "in the container (runc)", setup_s=0.7, session_s=0.2, request_s=60e-6
    )
    needs = ("runc", "runc")

    def with_options(self, plot: Mapping[str, str]) -> Container:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether runc is here and this user may use it."""
        try:
            said = process.run(Command(("runc", "--version")), _TIMEOUT_S).stdout
        except ProcessError:
            return Availability(False, "runc is not installed", "apt-get install runc")
        if self.device == "nfs":
            return scratch_disk.NO_NFS
        return for_root(_version(said), also_rootless=True, needs=capabilities.CONTAINER)

    @contextmanager
    def on(self, site: Site, host: Host) -> Iterator[Inside]:
        """Start a container that waits, to which servers are added."""
        require(host, *self.needs, self.name)
        if not host.is_root:
            raise TrialError(f"{host.name} holds no container: we are not root", "log in as root")
        name = f"tare-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        bundle = host.folder / name
        with ExitStack() as stack:
            merged = stack.enter_context(laid_out(site))
            host.owe_container(stack, name, bundle)
            disk = stack.enter_context(scratch_disk.on_host(site, self.device))
            oci.write_bundle(
                host,
                bundle,
                name,
                read_only=() if host.far else (site.programs.resolve(),),
                writable=(Path(host.folder).resolve(),),
                netns=None if host.far else f"/run/netns/{site.hosts.server_ns}",
                devices=(Path(disk.path),) if disk else (),
                merged=merged,
            )
            runc = (*RUNC, "--root", str(bundle / "state"))
            held = (*runc, "run", "--bundle", str(bundle), "--pid-file", str(bundle / "pid"), name)
            # In the foreground: a detached runc would leave its output pipes to the container.
            holder = stack.enter_context(host.start(Command(held), name=name))
            stack.callback(_end, host, holder)
            oci.await_pid(host, bundle / "pid", holder)
            budgeted = host.read(_CPU_GROUP / "cpu.rt_runtime_us") != ""
            with_the_host = site.placement.fifo is not None and budgeted
            facts = {
                **host.facts,
                "runtime": _version(host.run(Command(("runc", "--version")), _TIMEOUT_S)),
                "root": f"the {'far machine' if host.far else 'host'}'s, read-only",
                "capabilities": list(oci.CAPABILITIES),
                "seccomp": "none",
                "cpu_group": "the host's" if with_the_host else "its own",
                **(disk.facts() if disk else {}),
                **(merged.facts() if merged else {}),
            }
            yield _InsideContainer(host, name, bundle, facts, merged, with_the_host=with_the_host)


ENVIRONMENT = Container()


class _InsideContainer:
    """See `Inside`.

    Args:
        host: that holds it.
        name: of the container.
        bundle: its folder there.
        facts: what the report must name.
        merged: the tree that it has for its root, whose user its processes are.
        with_the_host: whether a server is moved into the host's own group of the cpu controller,
            before it is under SCHED_FIFO. That is the instrument's choice, against noise, and no
            container's. Where the kernel budgets real-time by group, nothing in a new group may run
            under it, and each of its switches walks one run queue more and keeps its accounts,
            which would be reported as the container's cost. Under SCHED_OTHER, as containers run,
            the server stays where runc put it.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        bundle: PurePath,
        facts: Mapping[str, Any],
        merged: Merged | None,
        *,
        with_the_host: bool,
    ) -> None:
        self.host = host
        self.address = host.address
        self.interface = host.interface
        self.session = name
        self.facts = Facts.model_validate(facts)
        self._bundle = bundle
        self._merged = merged
        self._with_the_host = with_the_host
        self._count = itertools.count()

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Server:
        with ExitStack() as stack:
            running, pid = self._added(stack, argv, env)
            stack.pop_all()
        return _ContainedServer(self.host, running, pid)

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> str:
        with ExitStack() as stack:
            return self._added(stack, argv, env)[0].output(timeout_s)

    def _added(
        self, stack: ExitStack, argv: Sequence[str], env: Mapping[str, str] | None
    ) -> tuple[Process, int]:
        """Add a process to the container; return what speaks for it, and its pid."""
        number = next(self._count)
        written, pid_file = (self._bundle / f"{kind}-{number}" for kind in ("process", "pid"))
        inner = replace(self.host.placed(argv, env), netns=None)
        before: list[str] = []
        if self._merged is not None:
            inner = self._merged.placed(inner, argv)
            before.append(oci.limit_again())
        tool = self._merged.tool if self._merged else by_name
        if self._with_the_host:
            before.append("read -r go")
        shell = (*tool("sh"), "-c", " && ".join([*before, 'exec "$@"']), "sh") if before else ()
        words = [*shell, *inner.full_argv(tool)]
        described = oci.process(words, self.host.environment(inner), self._merged)
        self.host.write(written, json.dumps(described))
        runc = (*RUNC, "--root", str(self._bundle / "state"), "exec", "--process", str(written))
        adding = Command((*runc, "--pid-file", str(pid_file), self.session))
        running = stack.enter_context(self.host.start(adding, name=f"container-{inner.name}"))
        pid = oci.await_pid(self.host, pid_file, running)
        if self._with_the_host:
            self.host.write(_CPU_GROUP / "cgroup.procs", str(pid))
            running.tell("go")
        return running, pid


class _ContainedServer(Server):
    """A server that `runc exec` started."""

    def __exit__(self, *raised: object) -> None:
        _end(self._host, self._process)
        super().__exit__(*raised)


def _end(host: Host, starter: Process) -> None:
    """Kill who is in a container before the runc that started them, which then reaps them.

    They would otherwise be orphans, and the container could not end until PID 1 reaps them. Where
    PID 1 is no init, as in a container that Tare runs in, that takes seconds, or never happens.
    """
    if host.far or not starter.alive():
        return
    for pid in (inner := descendants(starter.pid)):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    if inner:
        process.wait_pid(starter.pid, _REAPING_S)


def _version(said: str) -> str:
    return said.splitlines()[0].replace("version ", "")
