"""A host: where processes are started and files lie. This machine, or another one by ssh.

An environment is made once, of what a host does; how another machine does it, and undoes it, is
said in `far/host.py`.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path, PurePath
from typing import Any, Protocol

from tare import accounting, bounds, process
from tare.accounting import Account, Role
from tare.command import PATH, Command
from tare.errors import TrialError, remedy_of
from tare.placement import Placement
from tare.process import wait_pid
from tare.site import Site

_DEATH_TIMEOUT_S = 5.0
_END_BYTES = 1 << 16


class Process(AbstractContextManager["Process"], Protocol):
    """A process that a host has started; leaving the context kills it."""

    pid: int

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        ...

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        ...

    def alive(self) -> bool:
        """Tell whether it still runs."""
        ...

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        ...

    def output(self, timeout_s: float) -> str:
        """Wait for its end and return what else it wrote to standard output."""
        ...

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line."""
        ...


class Host:
    """This machine, as where a session lives. Whatever of a host fails raises TrialError.

    Args:
        site: whose server's namespace, processors, programs and scratch folder are used.

    Attributes:
        far: whether it is another machine than this one.
        name: what messages call it.
        folder: of the session there; what is put into it goes with it.
        logs: folder there of what processes write.
        address: at which the client reaches what is served there.
        interface: that has the address.
        is_root: whether we are root there.
        facts: what a report must name of it.
    """

    far = False

    def __init__(self, site: Site) -> None:
        self.site = site
        self.name = "this machine"
        self.folder: PurePath = site.scratch
        self.logs: PurePath = site.scratch / "logs"
        self.address = site.hosts.server_address
        self.interface = site.hosts.server_interface
        self.is_root = os.geteuid() == 0
        self.facts: Mapping[str, Any] = {"kernel": platform.release()}

    def placed(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> Command:
        """Say how a program is started for a server's side: where, and as what.

        Args:
            argv: argv[0] is a path below the build directory, or by its bare name a tool.
            env: variables beyond the usual.
            within: what starts it, such as `chroot FOLDER`.
        """
        placement = self.site.placement
        return Command(
            self.found(argv),
            env=env or {},
            netns=None if self.far else self.site.hosts.server_ns,
            cpus=placement.server,
            fifo=real_time(argv, placement),
            within=tuple(within),
        )

    def found(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command line as it is there, with what it needs."""
        return resolved(argv, self.site.programs)

    def environment(self, command: Command) -> dict[str, str]:
        """All that a process finds in its environment there."""
        return command.full_env()

    def start(
        self, command: Command, *, name: str | None = None, pass_fds: Sequence[int] = ()
    ) -> Process:
        """Start a process; `name` is what messages and logs call it."""
        return process.start(command, log_dir=Path(self.logs), name=name, pass_fds=pass_fds)

    def run(self, command: Command, timeout_s: float, stdin: bytes = b"") -> str:
        """Run a program to its end and return its standard output."""
        return process.run(command, timeout_s, stdin=stdin.decode()).stdout

    def has(self, program: str) -> bool:
        """Tell whether a program of the system is there."""
        return shutil.which(program, path=PATH) is not None

    def may_open(self, path: str) -> bool:
        """Tell whether this user may read and write a file there."""
        return os.access(path, os.R_OK | os.W_OK)

    def read(self, path: PurePath) -> str:
        """Return the end of a file, 64 KiB of it; empty if it is not there."""
        return end_of(Path(path))

    def write(self, path: PurePath, content: str) -> None:
        """Write a file, and make its folder."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(content)
        except OSError as error:
            raise TrialError(f"cannot write {path}: {error.strerror}", remedy_of(error)) from error

    def bring(self, path: Path) -> PurePath:
        """See that a file of this machine is there; return its path."""
        return path

    def bring_later(self, path: Path) -> tuple[PurePath, Callable[[], None]]:
        """Keep room for a file; return its path there, and what brings its content."""
        return path, lambda: None

    def line(self, end: socket.socket, name: str) -> str:
        """Tie a socket to a character device of QEMU's; return that device as an option.

        Args:
            end: to be passed on when QEMU is started.
            name: of the device.
        """
        return f"socket,id={name},fd={end.fileno()}"

    def bind(self, tid: int, cpus: Sequence[int]) -> None:
        """Bind a thread to processors; one that has just ended is no error."""
        with suppress(ProcessLookupError):
            os.sched_setaffinity(tid, cpus)

    def account(
        self, pid: int, role: Role | Callable[[str], Role], interface: str | None = None
    ) -> Account:
        """Snapshot what a process has consumed, and the bytes of an interface that it sees."""
        return accounting.snapshot(pid, role, interface=interface)

    def kernel_account(self) -> Account:
        """Snapshot the kernel's own threads, where they are ours to look at."""
        return accounting.snapshot_kernel()

    def see_off(self, pid: int) -> None:
        """See that a process is gone whose starter was killed: it may still hold its port."""
        wait_pid(pid, _DEATH_TIMEOUT_S)

    def owe_container(self, stack: ExitStack, name: str, bundle: PurePath) -> None:
        """Have a container forgotten in the end, whatever happens. Call it before making it."""
        owing = self.site.leftovers.owing
        stack.enter_context(owing("directory", str(bundle)))
        for cgroup in _cgroups(name):
            stack.enter_context(owing("cgroup", str(cgroup)))
        stack.enter_context(owing("container", name, str(bundle / "state")))


def require(host: Host, program: str, package: str, what: str) -> None:
    """See that a host has what `what` takes.

    Raises:
        TrialError: it has not.
    """
    if not host.has(program):
        raise TrialError(
            f"{host.name} holds no {what}: it lacks {program}", f"apt-get install {package} there"
        )


def resolved(argv: Sequence[str], programs: Path) -> tuple[str, ...]:
    """Find argv[0]: a path below `programs`, or by its bare name a program of the system."""
    program = argv[0]
    return (program if "/" not in program else str(programs / program), *argv[1:])


def real_time(argv: Sequence[str], placement: Placement) -> int | None:
    """SCHED_FIFO priority for a program: a program of the system (interference) never has one."""
    return placement.fifo if "/" in argv[0] else None


def end_of(path: Path) -> str:
    """Return the end of a file, 64 KiB of it; empty if it is not there."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _END_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _cgroups(name: str) -> list[Path]:
    """List where runc makes a cgroup of this name, in every hierarchy that is mounted.

    Within bounds (`oci.configuration`) it is made beneath the group that we are in.
    """
    inside = bounds.are_on()
    return [(one.own if inside else one.point) / name for one in bounds.hierarchies()]
