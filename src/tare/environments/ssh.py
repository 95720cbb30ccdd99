"""The server on another machine, reached over ssh: a board, a rack's node, any hypervisor's guest.

The level names the machine: `ssh user@host:port`. This machine's programs are pushed there and go
again; one connection is one session. There is no bridge in between but the network that there is,
so the client lives in this machine's own network (or the namespace that the level names).
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tare import accounting
from tare.accounting import Account
from tare.command import PATH, Command
from tare.environments import Availability, Inside, Site
from tare.environments.on_host import real_time
from tare.environments.tools import named_in
from tare.errors import TrialError, UsageError
from tare.guests.program import account_in

if TYPE_CHECKING:
    from tare.far import Connection, Far, Folder, Programs, Target

__all__ = ["Ssh"]

_NO_DISK = (
    "no device is made on a machine that is not ours; run Tare there, with `environment: native`"
)
_ASK_TIMEOUT_S = 20.0
_OWN_NETWORK = "/proc/self/ns/net"
_TELL_PID = 'echo "{\\"pid\\": $$}" && exec "$@"'
_CONSUMPTION = (
    'cd /proc && grep -Hs "" "$1/status" "$1"/task/*/stat "$1"/task/*/status'
    ' "$1"/task/*/schedstat; grep -Hs "" net/dev'
)
_COUNTERS = "net/dev:"


@dataclass(frozen=True)
class Ssh:
    """Another machine.

    Attributes:
        target: which; None only stands for the kind, as in `tare doctor`.
    """

    target: Target | None = None
    name = "ssh"

    @staticmethod
    def parse(text: str) -> Ssh:
        """Read what follows `ssh` in a level.

        Raises:
            UsageError: it names no machine.
        """
        from tare.far import Target  # noqa: PLC0415 - asyncssh is slow to import

        return Ssh(Target.parse(text))

    def availability(self) -> Availability:
        """Tell whether this machine can reach others. It connects to none."""
        if not shutil.which("strip", path=PATH):
            return Availability(False, "strip is not installed", "apt-get install binutils")
        can = frozenset({"network", "pinning", "accounting"})
        detail = f"asyncssh {metadata.version('asyncssh')}; keys only, hosts by known_hosts"
        remedy = None if self.target else "name a machine as a level: `ssh user@host:port`"
        return Availability(True, detail, remedy, can=can, cannot={"disk": _NO_DISK})

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Connect, and keep a folder there as long as the connection lasts."""
        from tare.far import Connection, Folder, Programs  # noqa: PLC0415 - as above

        if self.target is None:
            raise UsageError("ssh names no machine", "write the level as `ssh user@host:port`")
        with (
            Connection(self.target) as connection,
            Folder(connection) as folder,
            site.hosts.client_elsewhere(self.target.netns or _OWN_NETWORK, connection.own_address),
        ):
            programs = Programs(connection, folder, site.programs, site.scratch / "pushed")
            inside = _InsideSsh(site, connection, folder, programs)
            inside.check_priority()
            yield inside


class _InsideSsh:
    def __init__(
        self, site: Site, connection: Connection, folder: Folder, programs: Programs
    ) -> None:
        self._site = site
        self._connection = connection
        self._folder = folder
        self._programs = programs
        self.address = connection.address
        self.interface = self._interface()
        self.session = f"ssh-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        self.facts: Mapping[str, Any] = {
            "machine": str(connection.target),
            "kernel": self.run(("uname", "-r"), _ASK_TIMEOUT_S).strip(),
            "processor": self._processor(),
            "network": "between the machines; no bridge of ours",
            "libraries": "the far machine's; pushed with a program that misses one",
        }

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> _SshServer:
        words = ("sh", "-c", _TELL_PID, "sh", *self._words(argv, env))
        far = self._connection.start(words, name=argv[0])
        return _SshServer(self._connection, far, argv[0], self.interface)

    def run(self, argv: Sequence[str], timeout_s: float) -> str:
        done = self._connection.run(self._words(argv, None), timeout_s, name=argv[0])
        if done.code != 0:
            words = _last_words(done.stderr)
            raise TrialError(
                f"{argv[0]} ended with code {done.code} on {self._connection.target}{words}"
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
        asked = self._connection.run(["chrt", "--fifo", str(fifo), "true"], _ASK_TIMEOUT_S)
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
        show = ["ip", "-oneline", "-4", "address", "show", "to", self.address]
        words = self._connection.run(show, _ASK_TIMEOUT_S).stdout.decode(errors="replace").split()
        if len(words) < 2:
            raise TrialError(
                f"{self._connection.target} has no interface with the address {self.address}",
                "reach it without address translation, and have iproute2 there",
            )
        return words[1]

    def _processor(self) -> str:
        read = ["grep", "-m1", "model name", "/proc/cpuinfo"]
        said = self._connection.run(read, _ASK_TIMEOUT_S).stdout.decode(errors="replace")
        return said.partition(":")[2].strip() or "unknown"


class _SshServer(AbstractContextManager["_SshServer"]):
    """See `ServerProcess`."""

    def __init__(self, connection: Connection, far: Far, name: str, interface: str) -> None:
        self._connection = connection
        self._far = far
        self._name = name
        self._interface = interface
        self._last_event: dict[str, Any] | None = None
        self._ended = False
        self.pid = int(self._next(_ASK_TIMEOUT_S, "to start")["pid"])

    def event(self, timeout_s: float) -> dict[str, Any]:
        self._last_event = self._next(timeout_s, "for its next event")
        return self._last_event

    def account(self) -> Account:
        """Snapshot what its threads have consumed, and its interface's bytes."""
        look = ["sh", "-c", _CONSUMPTION, "sh", str(self.pid)]
        listing = self._connection.run(look, _ASK_TIMEOUT_S).stdout.decode(errors="replace")
        seen = account_in(listing, self.pid)
        lines = [line[len(_COUNTERS) :] for line in listing.split("\n") if _COUNTERS in line[:8]]
        sent, received = accounting.interface_bytes("\n".join(lines), self._interface)
        threads = tuple(replace(thread, role="server") for thread in seen.threads)
        return replace(seen, threads=threads, sent_bytes=sent, received_bytes=received)

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        self._signal("TERM")
        while line := self._far.line(timeout_s):
            if (event := self._parsed(line)) is not None:
                self._last_event = event
        done = self._far.finished(timeout_s)
        self._ended = True
        if done.code not in (0, -1):
            raise TrialError(
                f"{self._whoami()} ended with code {done.code}{_last_words(done.stderr)}"
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
            self._far.finished(_ASK_TIMEOUT_S)

    def _next(self, timeout_s: float, waiting: str) -> dict[str, Any]:
        while line := self._far.line(timeout_s):
            if (event := self._parsed(line)) is not None:
                return event
        done = self._far.finished(_ASK_TIMEOUT_S)
        self._ended = True
        how = f"ended with code {done.code}" if done.code >= 0 else "was killed"
        raise TrialError(
            f"{self._whoami()} {how} while we waited {waiting}{_last_words(done.stderr)}"
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
        self._connection.run(["kill", "-s", name, str(self.pid)], _ASK_TIMEOUT_S)

    def _whoami(self) -> str:
        return f"{self._name} on {self._connection.target}"


def _last_words(stderr: str) -> str:
    text = " | ".join(stderr.strip().splitlines()[-8:])
    return f"; its last words: {text}" if text else ""
