"""Another machine as a host: what is started there carries the folder's mark, and goes with it."""

# ruff: noqa: D102 - what a host does is said by `tare.host.Host`
from __future__ import annotations

import hashlib
import shlex
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from tare import accounting
from tare.accounting import Account, Role
from tare.command import PATH, Command
from tare.errors import TrialError, UnavailableError
from tare.events import Events
from tare.failures import last_words
from tare.far.connection import Connection, Far
from tare.far.folder import Folder
from tare.far.programs import Programs
from tare.guests.program import account_in
from tare.host import Host
from tare.placement import Placement, in_list
from tare.site import Site
from tare.tools import named_in

_TIMEOUT_S = 20.0
"""For a question that it can answer at once."""
_TELL_PID = 'echo "{\\"pid\\": $$}" && exec "$@"'
# Its number may be another's by now.
_KILL_OURS = 'grep -qsF "$1" "/proc/$2/environ" && kill -s KILL "$2"'
_WRITE = 'mkdir -p "${1%/*}" && cat >"$1"'
_MAY_OPEN = '[ -r "$1" ] && [ -w "$1" ]'
_BIND = 'taskset --cpu-list --pid "$1" "$2" >/dev/null || [ ! -e "/proc/$2" ]'
_CONSUMPTION = (
    'cd /proc && grep -Hs "" "$1/status" "$1"/task/*/stat "$1"/task/*/status'
    ' "$1"/task/*/schedstat; grep -Hs "" net/dev'
)
_COUNTERS = "net/dev:"
# QEMU's own two pipes. Without the shell's standard error, which would keep the line open.
_CARRY = 'exec 2>/dev/null; cat "$1.out" & exec cat >"$1.in"'
_FINGERPRINT = {
    "host_processors": "/sys/devices/system/cpu/online",
    "host_memory": "/proc/meminfo",
    "host_clock_source": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "host_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "host_system": "/etc/debian_version",
    "host_id": "/etc/machine-id",
}
"""What can change a figure there -> the file whose first line tells it, where there is one."""
_ENDED_AS_ASKED = (0, -1, 128 + 15)
"""By itself, by our signal, or as a shell or runc says the latter."""
_FORGET = """
cd {bundle} && runc --root state delete --force {name} >/dev/null 2>&1
for again in 1 2 3 4 5 6 7 8 9 10; do
  left=
  for group in /sys/fs/cgroup/{name} /sys/fs/cgroup/*/{name}; do
    [ ! -d "$group" ] || rmdir "$group" 2>/dev/null || left=yes
  done
  [ "$left" ] || break
  sleep 0.1
done
"""


class FarHost(Host):
    """See `Host`.

    Args:
        site: whose programs are brought there, and whose processors are used.
        connection: to the machine.
        folder: there.
    """

    far = True

    def __init__(self, site: Site, connection: Connection, folder: Folder) -> None:
        super().__init__(site)
        self.mark = folder.mark
        self.name = str(connection.destination)
        self.folder = self.logs = PurePosixPath(folder.path)
        self.address = connection.address
        self._connection = connection
        self._folder = folder
        self._brought: dict[Path, PurePath] = {}
        self._programs = Programs(connection, folder, site.programs, site.scratch / "pushed")
        self.interface = self._interface()
        self.is_root = self._said("id", "-u").strip() == "0"
        self.site = replace(site, placement=self._placement(site.placement))
        processor = self._said("grep", "-m1", "model name", "/proc/cpuinfo").partition(":")[2]
        self.facts = {
            "machine": self.name,
            "kernel": self._said("uname", "-r").strip(),
            "processor": processor.strip() or "unknown",
            **self._fingerprint(),
            "network": "between the machines; no bridge of ours",
            "libraries": "the far machine's; pushed with a program that misses one",
        }

    def found(self, argv: Sequence[str]) -> tuple[str, ...]:
        program = self._programs.command(argv[0]) if "/" in argv[0] else (argv[0],)
        for tool in named_in(argv):
            self._programs.bring(tool)
        return (*program, *argv[1:])

    def environment(self, command: Command) -> dict[str, str]:
        mark, _, value = self.mark.partition("=")
        path = f"{self._programs.tools}:{PATH}"
        return {"PATH": path, "HOME": "/", "LC_ALL": "C", mark: value, **command.env}

    def start(
        self,
        command: Command,
        *,
        name: str | None = None,
        pass_fds: Sequence[int] = (),  # they are tied by `line`
    ) -> FarProcess:
        told = replace(command, argv=("sh", "-c", _TELL_PID, "sh", *command.untied_argv()))
        words = self._words(replace(told, cpus=(), fifo=None, within=()))
        called = name or command.name
        return FarProcess(self._connection, self._connection.start(words, name=called), called)

    def run(self, command: Command, timeout_s: float, stdin: bytes = b"") -> str:
        done = self._connection.run(self._words(command), timeout_s, stdin, name=command.name)
        if done.code != 0:
            raise TrialError(
                f"{command.name} ended with code {done.code} on {self.name}"
                f"{last_words(done.stderr)}"
            )
        return done.stdout.decode(errors="replace")

    def has(self, program: str) -> bool:
        return self._succeeds("sh", "-c", 'command -v "$1"', "sh", program)

    def may_open(self, path: str) -> bool:
        return self._succeeds("sh", "-c", _MAY_OPEN, "sh", path)

    def read(self, path: PurePath) -> str:
        return self._said("tail", "-c", str(1 << 16), str(path))

    def write(self, path: PurePath, content: str) -> None:
        self.run(Command(("sh", "-c", _WRITE, "sh", str(path))), _TIMEOUT_S, content.encode())

    def bring(self, path: Path) -> PurePath:
        if path not in self._brought:
            self._put(path)
            self._brought[path] = self.folder / path.name
        return self._brought[path]

    def bring_later(self, path: Path) -> tuple[PurePath, Callable[[], None]]:
        target = self.folder / path.name
        room = ("truncate", "-s", str(path.stat().st_size), str(target))
        self.run(Command(room), _TIMEOUT_S)
        return target, lambda: self._put(path)

    def line(self, end: socket.socket, name: str) -> str:
        base = self.folder / name
        self.run(Command(("mkfifo", f"{base}.in", f"{base}.out")), _TIMEOUT_S)
        words = self._words(Command(("sh", "-c", _CARRY, "sh", str(base))))
        self._connection.plug(words, end, name=name)
        return f"pipe,id={name},path={base}"

    def bind(self, tid: int, cpus: Sequence[int]) -> None:
        words = ("sh", "-c", _BIND, "sh", ",".join(map(str, cpus)), str(tid))
        self.run(Command(words), _TIMEOUT_S)

    def account(
        self, pid: int, role: Role | Callable[[str], Role], interface: str | None = None
    ) -> Account:
        listing = self._said("sh", "-c", _CONSUMPTION, "sh", str(pid))
        seen = account_in(listing, pid)
        role_of = role if callable(role) else lambda _: role
        threads = tuple(replace(thread, role=role_of(thread.name)) for thread in seen.threads)
        if interface is None:
            return replace(seen, threads=threads, far=True)
        lines = [line[len(_COUNTERS) :] for line in listing.split("\n") if _COUNTERS in line[:8]]
        sent, received = accounting.interface_bytes("\n".join(lines), interface)
        return replace(seen, threads=threads, sent_bytes=sent, received_bytes=received, far=True)

    def kernel_account(self) -> Account:
        return Account()

    def see_off(self, pid: int) -> None:
        with suppress(TrialError):  # where the connection is lost, the folder's keeper does it
            self._succeeds("sh", "-c", _KILL_OURS, "sh", self.mark, str(pid))

    def owe_container(self, stack: ExitStack, name: str, bundle: PurePath) -> None:
        self._folder.owe(_FORGET.format(bundle=shlex.quote(str(bundle)), name=name))

    def _put(self, path: Path) -> None:
        target = PurePosixPath(self.folder) / path.name
        self._folder.put(path.read_bytes(), path.name, target)

    def _fingerprint(self) -> dict[str, str]:
        said = self._said("grep", "-Hsm1", "", *_FINGERPRINT.values())
        told = dict(line.split(":", 1) for line in said.splitlines())
        found = {
            name: told[path].removeprefix("MemTotal:").strip()
            for name, path in _FINGERPRINT.items()
            if path in told
        }
        if "host_id" in found:  # itself it is nobody else's to know (machine-id(5))
            hashed = hashlib.sha256(f"tare {found['host_id']}".encode())
            found["host_id"] = hashed.hexdigest()[:16]
        return found

    def _placement(self, asked: Placement) -> Placement:
        """What was asked for, by the processors that there are: this machine's are others."""
        said = self._said("grep", "-s", "Cpus_allowed_list", "/proc/self/status").split()
        try:
            return asked.there(in_list(said[1]), self.name) if said else asked
        except UnavailableError as error:
            raise TrialError(error.what, "ask for processors that it has") from error

    def _interface(self) -> str:
        """Name the interface that has the address by which the machine is reached."""
        words = self._said("ip", "-oneline", "-4", "address", "show", "to", self.address).split()
        if len(words) < 2:
            raise TrialError(
                f"{self.name} has no interface with the address {self.address}",
                "reach it without address translation, and have iproute2 there",
            )
        return words[1]

    def _words(self, command: Command) -> list[str]:
        variables = [f"{key}={value}" for key, value in self.environment(command).items()]
        return ["env", *variables, *command.untied_argv()]

    def _said(self, *argv: str) -> str:
        done = self._connection.run(self._words(Command(argv)), _TIMEOUT_S, name=argv[0])
        return done.stdout.decode(errors="replace")

    def _succeeds(self, *argv: str) -> bool:
        return self._connection.run(self._words(Command(argv)), _TIMEOUT_S).code == 0


class FarProcess(AbstractContextManager["FarProcess"]):
    """See `tare.host.Process`.

    Args:
        connection: to the far machine.
        far: a line to the program, which first tells its pid there.
        name: what to call it.
    """

    def __init__(self, connection: Connection, far: Far, name: str) -> None:
        self._connection = connection
        self._far = far
        self._whoami = f"{name} on {connection.destination}"
        self._events = Events(self._whoami)
        self._ended = False
        self.pid = int(self._next(_TIMEOUT_S, "to start")["pid"])

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        return self._next(timeout_s, "for its next event")

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        self._far.tell(line.encode() + b"\n")

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return self._far.runs()

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        return self._far.stderr()

    def output(self, timeout_s: float) -> str:
        """Wait for its end and return what else it wrote to standard output."""
        done = self._far.finished(timeout_s)
        self._ended = True
        if done.code != 0:
            raise TrialError(f"{self._whoami} ended with code {done.code}{last_words(done.stderr)}")
        return done.stdout.decode(errors="replace")

    def stop(self, timeout_s: float = 5.0) -> dict[str, Any]:
        """Ask it to end and return its last JSON line."""
        self._signal("TERM")
        while line := self._far.line(timeout_s):
            self._events.add(line)
        done = self._far.finished(timeout_s)
        self._ended = True
        if done.code not in _ENDED_AS_ASKED:
            raise TrialError(f"{self._whoami} ended with code {done.code}{last_words(done.stderr)}")
        return self._events.finish()

    def __exit__(self, *raised: object) -> None:
        if self._ended:
            return
        # Where the connection is lost, the folder's keeper kills it.
        with suppress(TrialError):
            self._signal("KILL")
            self._far.finished(_TIMEOUT_S)

    def _next(self, timeout_s: float, waiting: str) -> dict[str, Any]:
        while line := self._far.line(timeout_s):
            self._events.add(line)
            if (event := self._events.next()) is not None:
                return event
        done = self._far.finished(_TIMEOUT_S)
        self._ended = True
        how = f"ended with code {done.code}" if done.code >= 0 else "was killed"
        raise TrialError(f"{self._whoami} {how} while we waited {waiting}{last_words(done.stderr)}")

    def _signal(self, name: str) -> None:
        # The shell's own: the program is in a package that a machine may lack.
        kill = ["sh", "-c", 'kill -s "$1" "$2"', "sh", name, str(self.pid)]
        self._connection.run(kill, _TIMEOUT_S)
