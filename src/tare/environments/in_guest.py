"""A server inside a guest that sits on the bridge by a tap, as QEMU and User-Mode Linux have it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from tare import accounting
from tare.accounting import Account, Role
from tare.command import PATH, given
from tare.environments import Facts
from tare.environments.tree_in_guest import TREE
from tare.errors import TrialError
from tare.failures import last_words
from tare.guests.agent import Agent
from tare.guests.program import Program
from tare.host import Host
from tare.hosts import Tap
from tare.trees.merged import Merged

_WITH_FILES = 'ulimit -n "$1"; ulimit -Sn "$2"; shift 2; exec "$@"'
_MOST_FILES = 1 << 20
"""That a kernel allows unless it is told otherwise. Source: Linux, fs/file.c, sysctl_nr_open."""


class Guest(Protocol):
    """A running guest."""

    @property
    def agent(self) -> Agent:
        """Who is asked in it."""
        ...

    def explained(self, phase: str) -> AbstractContextManager[None]:
        """Add to an error what is known of the guest."""
        ...


class InsideGuest:
    """See `Inside`.

    Args:
        guest: where it is.
        on_host: snapshots what runs the guest, as the machine below it counts.
        address: at which the client reaches it.
        session: names the boot.
        facts: what the report must name.
        kernel: snapshots the threads of the kernel below, where it is ours to look at.
        resolved: finds a program in the guest; called before it is started.
        merged: the tree that its programs see instead, which is at `TREE`.
    """

    interface = "eth0"

    def __init__(
        self,
        guest: Guest,
        on_host: Callable[[], Account],
        address: str,
        session: str,
        facts: Mapping[str, Any],
        resolved: Callable[[Sequence[str]], tuple[str, ...]],
        kernel: Callable[[], Account] = accounting.snapshot_kernel,
        merged: Merged | None = None,
    ) -> None:
        self._guest = guest
        self._on_host = on_host
        self._resolved = resolved
        self._merged = merged
        self._kernel = kernel
        self.address = address
        self.session = session
        self.facts = Facts.model_validate(facts)

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> GuestServer:
        """Start a fresh process in it."""
        with self._guest.explained(f"while {argv[0]} was started in it"):
            name = Path(argv[0]).name
            program = Program(self._guest.agent, *self._words(argv, env), name)
            return GuestServer(self._guest, program, self._on_host, self._kernel)

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a program to its end in it."""
        with self._guest.explained(f"while {argv[0]} ran in it"):
            words, variables = self._words(argv, env)
            ended = self._guest.agent.run(words, timeout_s, variables)
            if ended.code != 0:
                last = last_words(ended.stderr)
                raise TrialError(f"{argv[0]} ended with code {ended.code} in the guest{last}")
            return ended.stdout

    def _words(
        self, argv: Sequence[str], env: Mapping[str, str] | None
    ) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """What is to be started for a program, with its variables and those of its user."""
        if self._merged is None:
            return self._resolved(argv), env or {}
        within = ("chroot", TREE, *self._merged.within(), *self._merged.found(argv))
        words = ("sh", "-c", _WITH_FILES, "sh", *map(str, _files()), *within)
        return words, {"PATH": PATH, **self._merged.tree.user.environment(), **given(env or {})}


def _files() -> tuple[int, int]:
    """How many files may be open here: what a process may take, and what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    return most, most if soft == resource.RLIM_INFINITY else min(soft, most)


class GuestServer(AbstractContextManager["GuestServer"]):
    """See `ServerProcess`.

    Args:
        guest: where it runs.
        program: the server, started.
        on_host, kernel: as `InsideGuest`.
    """

    def __init__(
        self,
        guest: Guest,
        program: Program,
        on_host: Callable[[], Account],
        kernel: Callable[[], Account],
    ) -> None:
        self._guest = guest
        self._on_host = on_host
        self._program = program
        self._kernel = kernel
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
        return accounting.combined(account, self._kernel(), guest)

    def alive(self) -> bool:
        """Tell whether it still runs."""
        with self._guest.explained(f"while {self._program.name} was looked at"):
            return self._program.alive()

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        with self._guest.explained(f"while {self._program.name} was read"):
            return self._program.stderr()

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line; kill it after the timeout."""
        with self._guest.explained(f"while {self._program.name} was stopped"):
            return self._program.stop(timeout_s)

    def __exit__(self, *raised: object) -> None:
        # A guest that does not answer ends with everything in it when the environment is left.
        with suppress(TrialError):
            self._program.kill()


def seen_by_host(host: Host, pid: int, role: Callable[[str], Role], tap: Tap | None) -> Account:
    """Snapshot a guest on its host: its process, and its tap's bytes, as the guest counts them.

    Args:
        host: where it is.
        pid: of its process.
        role: tells what a thread of that process is, by its name.
        tap: whose bytes are counted; those of a guest without one are not.
    """
    account = host.account(pid, role, tap.name if tap else None)
    # The tap counts from the host's side; what it received, the guest sent.
    return replace(account, sent_bytes=account.received_bytes, received_bytes=account.sent_bytes)


def _sum(one: accounting.ThreadTime, other: accounting.ThreadTime) -> accounting.ThreadTime:
    return replace(
        one,
        cpu_ns=one.cpu_ns + other.cpu_ns,
        wait_ns=one.wait_ns + other.wait_ns,
        user_ns=one.user_ns + other.user_ns,
        system_ns=one.system_ns + other.system_ns,
        switches=one.switches + other.switches,
    )
