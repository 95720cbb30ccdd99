"""A server whose process is an ordinary process of the host, as native and container have it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tare import accounting, process
from tare.accounting import Account
from tare.command import Command
from tare.placement import Placement
from tare.process import Running, wait_pid

if TYPE_CHECKING:
    from tare.environments import Site

__all__ = ["OnHostServer", "beside", "real_time", "resolved"]

_DEATH_TIMEOUT_S = 5.0


class OnHostServer(AbstractContextManager["OnHostServer"]):
    """See `ServerProcess`.

    Args:
        running: what speaks for the server: itself, or the program that started it.
        interface: whose bytes are counted, in the server's network namespace.
        pid: the server's own, as the host sees it.
    """

    def __init__(self, running: Running, interface: str, pid: int) -> None:
        self.pid = pid
        self._running = running
        self._interface = interface

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        return self._running.event(timeout_s)

    def account(self) -> Account:
        """Snapshot what its threads and the kernel's have consumed so far."""
        server = accounting.snapshot(self.pid, "server", interface=self._interface)
        return accounting.combined(server, accounting.snapshot_kernel())

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line; kill it after the timeout."""
        return self._running.stop(timeout_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.__exit__(kind, error, trace)
        # What started it is gone; the kernel is killing the server, which may still hold its port.
        wait_pid(self.pid, _DEATH_TIMEOUT_S)


def resolved(argv: Sequence[str], programs: Path) -> tuple[str, ...]:
    """Find argv[0]: a path below `programs`, or by its bare name a program of the system."""
    program = argv[0]
    return (program if "/" not in program else str(programs / program), *argv[1:])


def beside(
    site: Site, argv: Sequence[str], party: str, namespace: str, cpus: tuple[int, ...]
) -> OnHostServer:
    """Start a process of the host beside the environment.

    Args:
        site: whose hosts there are.
        argv: what runs, as `resolved` takes it.
        party: on whose behalf, for its log's name.
        namespace: the network namespace that it runs in.
        cpus: processors that it may use; any, where empty.
    """
    command = Command(resolved(argv, site.programs), netns=namespace, cpus=cpus)
    running = process.start(command, log_dir=site.scratch / "logs", name=f"{party}-{command.name}")
    return OnHostServer(running, site.hosts.server_interface, running.pid)


def real_time(argv: Sequence[str], placement: Placement) -> int | None:
    """SCHED_FIFO priority for a program: a program of the system (interference) never has one."""
    return placement.fifo if "/" in argv[0] else None
