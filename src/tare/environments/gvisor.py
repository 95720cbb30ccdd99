"""The server in gVisor: a kernel in user space (runsc), with a network stack of its own.

The bundle is the container's; runsc runs it with its systrap platform and takes the interface of a
host on the bridge that it has for itself. One sandbox is one session; each server is a fresh
process in it (`runsc exec`). runsc is built once, from its Go module, into the cache.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import platformdirs

from tare import accounting, process
from tare.accounting import Account
from tare.command import PATH, Command, Tool, by_name, start_time
from tare.environments import Availability, Facts, Inside, Row, Site, for_root, oci
from tare.environments.scratch_disk import Device, device_of
from tare.errors import TrialError
from tare.guests.cache import workspace
from tare.host import Host, resolved
from tare.hosts import OwnHost
from tare.pauses import pauses
from tare.stepwise import Stepwise
from tare.trees.merged import Merged, laid_out

_MODULE = "gvisor.dev/gvisor/runsc"
_VERSION = "v0.0.0-20260905035102-160fafc42237"
_GO_PATH = f"{PATH}:/usr/local/go/bin"
"""Where Go is looked for: go.dev's own archive unpacks there."""
_HANDED_ON = (
    "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GOTOOLCHAIN", "HTTPS_PROXY", "https_proxy",
    "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""Of the user's own environment: how Go reaches modules from here."""
_BUILD_TIMEOUT_S = 3600.0
_NO_DISK = (
    "it shows no block devices, and answers O_DIRECT on files from its page cache; measure the disk"
    " in a container or a guest"
)
_TIMEOUT_S = 30.0
_PROGRAM_SH = (resources.files("tare.guests") / "program.sh").read_text()


@dataclass(frozen=True)
class Gvisor:
    """gVisor by its systrap platform, which needs neither KVM nor privileges of the processor.

    Attributes:
        device: a disk to be measured; asked for one, it is not available.
    """

    device: Device | None = None
    name = "gvisor"
    row = Row("gVisor", "in gVisor", own_kernel=True, setup_s=2.0, session_s=0.8, request_s=800e-6)

    def with_options(self, plot: Mapping[str, str]) -> Gvisor:
        """With the device that a plot asks for."""
        return replace(self, device=device_of(plot))

    def availability(self) -> Availability:
        """Tell whether runsc is built, or could be. It builds nothing."""
        found = built(platformdirs.user_cache_path("tare"))
        if found is None and _go() is None:
            return Availability(
                False,
                "runsc is not built, and there is no Go to build it with",
                f"run `setup/go {_unpacked()}`, or unpack https://go.dev/dl/ into /usr/local/go",
            )
        detail = f"runsc {_VERSION}, systrap" if found else "runsc is built at the first start"
        if self.device is not None:
            return Availability(False, _NO_DISK)
        return for_root(detail, cannot={"disk": _NO_DISK})

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Start a sandbox that waits, to which servers are added; the first time, build runsc."""
        runsc = ensure(site.cache)
        name = f"tare-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        bundle = site.scratch / name
        # Its own TCP loses every segment that the host left to a network card to finish.
        site.hosts.turn_off_offloads()
        with ExitStack() as stack:
            merged = stack.enter_context(laid_out(site))
            stack.enter_context(site.leftovers.owing("directory", str(bundle)))
            # runsc keeps an empty network namespace there, for the process that opens files.
            null = bundle / "state" / "null-netns"
            stack.enter_context(site.leftovers.owing("mount", str(null)))
            host = stack.enter_context(site.hosts.own_host())
            oci.write_bundle(
                Host(site),
                bundle,
                name,
                read_only=(site.programs.resolve(),),
                writable=(site.scratch.resolve(),),
                netns=f"/run/netns/{host.netns}",
                bind="rbind",
                merged=merged,
            )
            sandbox = stack.enter_context(_Sandbox(runsc, name, bundle, site))
            sandbox.tool = merged.tool if merged else by_name
            yield _InsideGvisor(site, sandbox, host, merged)
            if merged is not None and merged.tree.keep:
                # Its kernel holds back what is written.
                process.run(sandbox.command("exec", name, *merged.tool("sync")), _TIMEOUT_S)


ENVIRONMENT = Gvisor()


class _Sandbox(Stepwise):
    """One sandbox, held by a runsc in the foreground; it dies with that, and that with us."""

    def __init__(self, runsc: Path, name: str, bundle: Path, site: Site) -> None:
        self.name = name
        self.tool: Tool = by_name
        self.bundle = bundle
        self._site = site
        state = ("--root", str(bundle / "state"))
        self._runsc = (
            str(runsc), *state, "--platform=systrap", "--network=sandbox", "--ignore-cgroups",
            # What is written to a tree lies in the tree's own layer, as everywhere.
            *(("--overlay2=none",) if site.tree else ()),
        )  # fmt: skip

    def _build(self, stack: ExitStack) -> None:
        pid_file = self.bundle / "pid"
        where = ("--bundle", str(self.bundle), "--pid-file", str(pid_file))
        # Never SCHED_FIFO: its kernel spins while it waits for a trap.
        running = stack.enter_context(self.start(self.name, "run", *where, self.name))
        self.pid = oci.await_pid(Host(self._site), pid_file, running)
        known = f"{self.pid}:{start_time(self.pid)}"
        stack.enter_context(self._site.leftovers.owing("process", known))

    def command(self, *words: str) -> Command:
        """Return a command to runsc about this sandbox."""
        return Command((*self._runsc, *words), cpus=self._site.placement.server)

    def sweep(self, session: int) -> None:
        """Kill what is left of a session: a program goes on in there when its `runsc exec` ends.

        Args:
            session: by its leader's number there.
        """
        sweep = (*self.tool("sh"), "-c", _PROGRAM_SH, "sh", "sweep", str(session))
        with suppress(TrialError):  # the sandbox has ended
            for _ in pauses(_TIMEOUT_S):
                if not process.run(self.killing(sweep), _TIMEOUT_S).stdout:
                    break

    def killing(self, words: Sequence[str]) -> Command:
        """Return a command inside that may signal another user's process."""
        return self.command("exec", "--cap=CAP_KILL", self.name, *words)

    def start(self, log_name: str, *words: str) -> process.Running:
        """Start a runsc that stays."""
        logs = self._site.scratch / "logs"
        return process.start(self.command(*words), log_dir=logs, name=log_name)


class _InsideGvisor:
    def __init__(self, site: Site, sandbox: _Sandbox, host: OwnHost, merged: Merged | None) -> None:
        self._site = site
        self._merged = merged
        self._sandbox = sandbox
        self._count = itertools.count()
        self.address = host.address
        self.interface = site.hosts.server_interface
        self.session = sandbox.name
        # As root's, by a tool that is there in any tree.
        asking = ("exec", sandbox.name, *sandbox.tool("uname"), "-r")
        facts = {
            "kernel": process.run(sandbox.command(*asking), _TIMEOUT_S).stdout.strip(),
            "runsc": _VERSION,
            "platform": "systrap",
            "root": "the host's, read-only",
            "network": "gVisor's own stack on a packet socket, without offloads on the wire",
            **(merged.facts(f"gVisor's file server over {merged.by}") if merged else {}),
        }
        self.facts = Facts.model_validate(facts)

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> _GvisorServer:
        written, pid_file = self._describe(argv, env)
        words = ("exec", "--process", str(written), "--internal-pid-file", str(pid_file))
        name = f"gvisor-{Path(argv[0]).name}"
        with ExitStack() as stack:
            running = stack.enter_context(self._sandbox.start(name, *words, self._sandbox.name))
            inner = oci.await_pid(Host(self._site), pid_file, running)
            stack.pop_all()
        return _GvisorServer(self._sandbox, running, inner, self.interface)

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> str:
        written, pid_file = self._describe(argv, env)
        words = ("exec", "--process", str(written), "--internal-pid-file", str(pid_file))
        try:
            command = self._sandbox.command(*words, self._sandbox.name)
            return process.run(command, timeout_s).stdout
        except TrialError:
            if pid_file.exists():  # else it was not started
                self._sandbox.sweep(int(pid_file.read_text()))
            raise

    def _describe(self, argv: Sequence[str], env: Mapping[str, str] | None) -> tuple[Path, Path]:
        """Write down a process for `runsc exec`; return that file, and where its pid will be.

        Without priority and processors of its own: in there they are gVisor's to give.
        """
        number = next(self._count)
        inner = Command(resolved(argv, self._site.programs), env=env or {})
        if self._merged is not None:
            inner = self._merged.placed(inner, argv)
        written = self._sandbox.bundle / f"process-{number}.json"
        words = inner.full_argv(self._sandbox.tool)
        written.write_text(json.dumps(oci.process(words, inner.full_env(), self._merged)))
        return written, self._sandbox.bundle / f"pid-{number}"


class _GvisorServer(AbstractContextManager["_GvisorServer"]):
    """See `ServerProcess`. Its own process is seen by gVisor alone; the host sees the sandbox."""

    def __init__(
        self, sandbox: _Sandbox, running: process.Running, inner_pid: int, interface: str
    ) -> None:
        self._sandbox = sandbox
        self._running = running
        self._inner_pid = inner_pid
        self._interface = interface

    def event(self, timeout_s: float) -> dict[str, Any]:
        return self._running.event(timeout_s)

    def account(self) -> Account:
        """Snapshot the sandbox: gVisor's kernel is `vmm`, what runs programs for it is `vcpu`."""
        seen = accounting.snapshot(self._sandbox.pid, "vcpu", interface=self._interface)
        try:
            tasks = Path(f"/proc/{self._sandbox.pid}/task")
            kernel = {int(task.name) for task in tasks.iterdir()}
        except FileNotFoundError as error:
            raise TrialError(f"the sandbox {self._sandbox.name} has ended") from error
        threads = tuple(replace(t, role="vmm") if t.tid in kernel else t for t in seen.threads)
        return accounting.combined(replace(seen, threads=threads), accounting.snapshot_kernel())

    def alive(self) -> bool:
        return self._running.alive()

    def stderr(self) -> str:
        return self._running.stderr()

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        # By a signal inside: `runsc exec` passes none on, and dies of it alone.
        kill = (*self._sandbox.tool("kill"), "-TERM", str(self._inner_pid))
        with suppress(TrialError):  # it has ended: `finish` tells how
            process.run(self._sandbox.killing(kill), _TIMEOUT_S)
        return self._running.finish(timeout_s, sent=signal.SIGTERM)

    def __exit__(self, *raised: object) -> None:
        with self._running:
            self._sandbox.sweep(self._inner_pid)


def built(cache: Path) -> Path | None:
    """Return the runsc of this version, if the cache has it."""
    path = cache / "gvisor" / f"runsc-{_VERSION}"
    return path if os.access(path, os.X_OK) else None


def ensure(cache: Path) -> Path:
    """Return the runsc of this version; build it first where the cache has none.

    Raises:
        TrialError: there is no Go, or it failed.
    """
    return built(cache) or _build(cache)


def _unpacked() -> Path:
    """Where `setup/go` puts one, where there is none."""
    return platformdirs.user_cache_path("tare") / "go"


@cache
def _go() -> str | None:
    own = next(_unpacked().glob("root/usr/lib/go-*/bin/go"), None)
    return shutil.which("go", path=_GO_PATH) if own is None else str(own)


def _build(cache: Path) -> Path:
    """Build runsc into the cache; modules and objects of the build go again.

    Raises:
        TrialError: there is no Go, or it failed.
    """
    go = _go()
    if go is None:
        raise TrialError("there is no Go to build runsc with", "`tare doctor` says what to do")
    folder = cache / "gvisor"
    with workspace(folder) as scratch:
        env = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
        env |= {
            "GOBIN": str(scratch / "bin"),
            "GOPATH": str(scratch / "go"),
            "GOCACHE": str(scratch / "objects"),
            "GOFLAGS": "-modcacherw",
            "CGO_ENABLED": "0",
        }
        install = ("nice", "-n", "10", go, "install", f"{_MODULE}@{_VERSION}")
        process.run(Command(install, env=env), _BUILD_TIMEOUT_S)
        (scratch / "bin" / "runsc").replace(folder / f"runsc-{_VERSION}")
    found = built(cache)
    assert found is not None
    return found
