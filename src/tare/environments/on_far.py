"""A server on another machine, as an ssh environment and what it may hold have it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tare import accounting
from tare.accounting import Account, Role
from tare.command import PATH, Command
from tare.environments import Site
from tare.environments.on_host import real_time
from tare.environments.tools import named_in
from tare.errors import TrialError
from tare.guests.program import account_in

if TYPE_CHECKING:
    from tare.far import Connection, Far, Folder

__all__ = ["ASK_TIMEOUT_S", "FarServer", "InsideFar", "far_account", "last_words"]

ASK_TIMEOUT_S = 20.0
"""For a question to the far machine that it can answer at once."""
_TELL_PID = 'echo "{\\"pid\\": $$}" && exec "$@"'
_CONSUMPTION = (
    'cd /proc && grep -Hs "" "$1/status" "$1"/task/*/stat "$1"/task/*/status'
    ' "$1"/task/*/schedstat; grep -Hs "" net/dev'
)
_COUNTERS = "net/dev:"
_ENDED_AS_ASKED = (0, -1, 128 + 15)
"""By itself, by our signal, or as a shell or runc says the latter."""


class InsideFar:
    """See `Inside`.

    Args:
        site: whose programs are brought there.
        connection: to the far machine.
        folder: there.
    """

    def __init__(self, site: Site, connection: Connection, folder: Folder) -> None:
        from tare.far import Programs  # noqa: PLC0415 - asyncssh is slow to import

        self._site = site
        self._connection = connection
        self._folder = folder
        self._programs = Programs(connection, folder, site.programs, site.scratch / "pushed")
        self.address = connection.address
        self.interface = self._interface()
        self.session = f"ssh-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        self.facts: Mapping[str, Any] = {
            "machine": str(connection.target),
            "kernel": self._said("uname", "-r").strip(),
            "processor": self._processor(),
            "network": "between the machines; no bridge of ours",
            "libraries": "the far machine's; pushed with a program that misses one",
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> FarServer:
        """Start a fresh process there."""
        words = ("sh", "-c", _TELL_PID, "sh", *self._words(argv, env))
        far = self._connection.start(words, name=argv[0])
        return FarServer(self._connection, far, argv[0], self.interface)

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        """Run a program to its end there."""
        return self._ran(self._words(argv, None), timeout_s, argv[0])

    def _ran(self, words: Sequence[str], timeout_s: float, name: str) -> str:
        done = self._connection.run(words, timeout_s, name=name)
        if done.code != 0:
            said = last_words(done.stderr)
            raise TrialError(
                f"{name} ended with code {done.code} on {self._connection.target}{said}"
            )
        return done.stdout.decode(errors="replace")

    def check_priority(self) -> None:
        """See that real-time priority, if it is asked for, is given there.

        Raises:
            TrialError: it is not.
        """
        fifo = self._site.placement.fifo
        if fifo is None:
            return
        asked = self._connection.run(["chrt", "--fifo", str(fifo), "true"], ASK_TIMEOUT_S)
        if asked.code != 0:
            raise TrialError(
                f"{self._connection.target} gives this user no real-time priority:"
                f" {asked.stderr.strip()}",
                "log in as root there, or measure with `scheduling: other`",
            )

    def _words(self, argv: Sequence[str], env: Mapping[str, str] | None) -> list[str]:
        """Put together what is run there: mark, variables, processors, priority, program."""
        program: tuple[str, ...] = (argv[0],)
        if "/" in argv[0]:
            program = self._programs.command(argv[0])
        placement = self._site.placement
        chain = Command(
            (*program, *argv[1:]), cpus=placement.server, fifo=real_time(argv, placement)
        )
        for tool in named_in(argv):
            self._programs.bring(tool)
        variables = [f"{name}={value}" for name, value in (env or {}).items()]
        return [
            "env",
            self._folder.mark,
            "LC_ALL=C",
            f"PATH={self._programs.tools}:{PATH}",
            *variables,
            *chain.untied_argv(),
        ]

    def _interface(self) -> str:
        """Name the interface that has the address by which the machine is reached."""
        show = ("ip", "-oneline", "-4", "address", "show", "to", self.address)
        words = self._said(*show).split()
        if len(words) < 2:
            raise TrialError(
                f"{self._connection.target} has no interface with the address {self.address}",
                "reach it without address translation, and have iproute2 there",
            )
        return words[1]

    def _processor(self) -> str:
        said = self._said("grep", "-m1", "model name", "/proc/cpuinfo")
        return said.partition(":")[2].strip() or "unknown"

    def _said(self, *argv: str) -> str:
        return self._connection.run(argv, ASK_TIMEOUT_S).stdout.decode(errors="replace")


class FarServer(AbstractContextManager["FarServer"]):
    """See `ServerProcess`.

    Args:
        connection: to the far machine.
        far: a line to the program, which first tells its pid there.
        name: what to call it.
        interface: whose bytes are counted.
    """

    def __init__(self, connection: Connection, far: Far, name: str, interface: str) -> None:
        self._connection = connection
        self._far = far
        self._name = name
        self._interface = interface
        self._last_event: dict[str, Any] | None = None
        self._ended = False
        self.pid = int(self._next(ASK_TIMEOUT_S, "to start")["pid"])

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        self._last_event = self._next(timeout_s, "for its next event")
        return self._last_event

    def account(self) -> Account:
        """Snapshot what its threads have consumed, and its interface's bytes."""
        return far_account(self._connection, self.pid, lambda _: "server", self._interface)

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line."""
        self._signal("TERM")
        while line := self._far.line(timeout_s):
            if (event := self._parsed(line)) is not None:
                self._last_event = event
        done = self._far.finished(timeout_s)
        self._ended = True
        if done.code not in _ENDED_AS_ASKED:
            raise TrialError(
                f"{self._whoami()} ended with code {done.code}{last_words(done.stderr)}"
            )
        return self._last_event or {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        # Where the connection is lost, the folder's keeper kills it.
        with suppress(TrialError):
            self._signal("KILL")
            self._far.finished(ASK_TIMEOUT_S)

    def _next(self, timeout_s: float, waiting: str) -> dict[str, Any]:
        while line := self._far.line(timeout_s):
            if (event := self._parsed(line)) is not None:
                return event
        done = self._far.finished(ASK_TIMEOUT_S)
        self._ended = True
        how = f"ended with code {done.code}" if done.code >= 0 else "was killed"
        raise TrialError(
            f"{self._whoami()} {how} while we waited {waiting}{last_words(done.stderr)}"
        )

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        if not line.startswith(b"{"):
            return None
        try:
            event: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TrialError(f"{self._whoami()} wrote no JSON: {line[:200]!r}") from error
        return event

    def _signal(self, name: str) -> None:
        self._connection.run(["kill", "-s", name, str(self.pid)], ASK_TIMEOUT_S)

    def _whoami(self) -> str:
        return f"{self._name} on {self._connection.target}"


def far_account(
    connection: Connection, pid: int, role: Callable[[str], Role], interface: str | None = None
) -> Account:
    """Snapshot what a process of the far machine has consumed, and an interface's bytes there.

    Raises:
        TrialError: it has ended, or the connection is lost.
    """
    look = ["sh", "-c", _CONSUMPTION, "sh", str(pid)]
    listing = connection.run(look, ASK_TIMEOUT_S).stdout.decode(errors="replace")
    seen = account_in(listing, pid)
    threads = tuple(replace(thread, role=role(thread.name)) for thread in seen.threads)
    if interface is None:
        return replace(seen, threads=threads, far=True)
    lines = [line[len(_COUNTERS) :] for line in listing.split("\n") if _COUNTERS in line[:8]]
    sent, received = accounting.interface_bytes("\n".join(lines), interface)
    return replace(seen, threads=threads, sent_bytes=sent, received_bytes=received, far=True)


def last_words(stderr: str) -> str:
    """What to add to a message of what a program wrote last."""
    text = " | ".join(stderr.strip().splitlines()[-8:])
    return f"; its last words: {text}" if text else ""
