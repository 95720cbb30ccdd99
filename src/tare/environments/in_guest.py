"""A server inside a guest that sits on the bridge by a tap, as QEMU and User-Mode Linux have it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol

from tare import accounting
from tare.accounting import Account, Role
from tare.errors import TrialError
from tare.guests.program import Program
from tare.hosts import Tap

__all__ = ["Guest", "GuestServer"]


class Guest(Protocol):
    """A running guest."""

    @property
    def pid(self) -> int:
        """Its process on the host."""
        ...

    def explained(self, phase: str) -> AbstractContextManager[None]:
        """Add to an error what is known of the guest."""
        ...


class GuestServer(AbstractContextManager["GuestServer"]):
    """See `ServerProcess`.

    Args:
        guest: where it runs.
        tap: the guest's, whose bytes are counted.
        program: the server, started.
        role: tells what a thread of the guest's process on the host is, by its name.
    """

    def __init__(
        self, guest: Guest, tap: Tap, program: Program, role: Callable[[str], Role]
    ) -> None:
        self._guest = guest
        self._tap = tap
        self._program = program
        self._role = role
        self._own_cost: dict[int, accounting.ThreadTime] = {}

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        with self._guest.explained(f"while {self._program.name} was waited for"):
            return self._program.event(timeout_s)

    def account(self) -> Account:
        """Snapshot the guest's threads on the host, the kernel's there, and the guest's own view.

        To ask the guest costs its virtual processor some milliseconds. Between two snapshots that
        cost does not show: it is measured, and left out of all later ones.
        """
        with self._guest.explained(f"while the account of {self._program.name} was taken"):
            first = self._on_host()
            guest = self._program.consumption()
            asked = accounting.difference(first, self._on_host())
        without = accounting.difference(Account(tuple(self._own_cost.values())), first)
        for thread in asked.threads:
            earlier = self._own_cost.get(thread.tid)
            self._own_cost[thread.tid] = thread if earlier is None else _sum(earlier, thread)
        account = replace(without, sent_bytes=first.sent_bytes, received_bytes=first.received_bytes)
        return accounting.combined(account, accounting.snapshot_kernel(), guest)

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line; kill it after the timeout."""
        with self._guest.explained(f"while {self._program.name} was stopped"):
            return self._program.stop(timeout_s)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A guest that does not answer ends with everything in it when the environment is left.
        with suppress(TrialError):
            self._program.kill()

    def _on_host(self) -> Account:
        account = accounting.snapshot(self._guest.pid, self._role, interface=self._tap.name)
        # The tap counts from the host's side; what it received, the guest sent.
        return replace(
            account, sent_bytes=account.received_bytes, received_bytes=account.sent_bytes
        )


def _sum(one: accounting.ThreadTime, other: accounting.ThreadTime) -> accounting.ThreadTime:
    return replace(
        one,
        cpu_ns=one.cpu_ns + other.cpu_ns,
        wait_ns=one.wait_ns + other.wait_ns,
        user_ns=one.user_ns + other.user_ns,
        system_ns=one.system_ns + other.system_ns,
        switches=one.switches + other.switches,
    )
