"""A server's life in a session: it is started, gets ready, is looked after, and ends.

A shell starts it that tells its number where it runs, and gives its output to standard error, which
is kept in a file: nobody has to read it while it serves.
"""

from __future__ import annotations

import http.client
import re
import shlex
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from tare import netns
from tare.command import stat_fields
from tare.environments import Inside, ServerProcess
from tare.environments.in_guest import InsideGuest
from tare.errors import TrialError
from tare.failures import ProcessError, last_words
from tare.pauses import pauses
from tare.stepwise import Stepwise
from tare.undo import kill_all, processes
from tare.units import exact_duration
from tare.workloads.service.rows import Ready

_SERVE = "echo '{\"pid\": '$$'}'; exec \"$@\" >&2"
_CONSUMPTION = """
for stat in /proc/[0-9]*/stat; do read -r line <"$stat" && echo "$line"; done 2>/dev/null; true
"""
_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 20.0
_LOOK_TIMEOUT_S = 30.0
_TRY_S = 2.0
_LOOK_EACH_S = 1.0
_LOOK_EACH_IN_GUEST_S = 30.0
"""A guest's own processor tells: not while it is measured, if that can be helped."""
_NEVER_ASKED_S = 0.5
_FOREGROUND = "a server has to stay in the foreground, such as by `daemon off` or `--daemonize no`"
_TICKS_PER_S = 100
"""Source: proc(5), sysconf(_SC_CLK_TCK) on every machine that Linux has here."""


class Serving(Stepwise):
    """A server, from its start until it is ended.

    Args:
        inside: where it runs.
        argv: what it is started by.
        env: its variables.
        port: where it is to listen.
        server_ns: the network namespace that it runs in, where this machine's kernel runs it.
        client_ns: that of whoever asks it.
    """

    def __init__(
        self,
        inside: Inside,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        port: int,
        server_ns: str,
        client_ns: str,
    ) -> None:
        self._inside = inside
        self._argv = argv
        self._env = env
        self._at = (inside.address, port)
        self._server_ns = server_ns
        self._client_ns = client_ns
        in_guest = isinstance(inside, InsideGuest)
        self._look_each_s = _LOOK_EACH_IN_GUEST_S if in_guest else _LOOK_EACH_S

    def _build(self, stack: ExitStack) -> None:
        words = ("sh", "-c", _SERVE, "sh", *self._argv)
        self._dwells = netns.dwells_in(self._server_ns)
        self._earlier = frozenset(processes(self._dwells))
        stack.push(self._see_off)
        self._process: ServerProcess = stack.enter_context(self._inside.start(words, self._env))
        stack.callback(self._end)
        self._pid = int(self._process.event(_START_TIMEOUT_S)["pid"])

    @property
    def process(self) -> ServerProcess:
        """Its process, to be accounted for."""
        return self._process

    def await_ready(
        self, ready: Ready, patience_ns: int, run: Callable[[str, float], object]
    ) -> None:
        """Wait until it can be asked.

        Args:
            ready: how that is told; with the names in braces put in.
            patience_ns: after which it is given up.
            run: runs a shell line where the client is, for so many seconds at most; raises
                TrialError where that fails.

        Raises:
            TrialError: it ended, or was not ready in time.
        """
        deadline = time.monotonic() + patience_ns / 1e9
        for _ in pauses(patience_ns / 1e9):
            is_ready = self._is_ready(ready, run, deadline)
            self.look()
            if is_ready:
                return
        raise TrialError(
            f"`{self}` was not ready ({ready}) at {self._at[0]} port {self._at[1]} within"
            f" {exact_duration(patience_ns)}{last_words(self._process.stderr())}",
            "see that it serves on {address} and {port}, or give it more `patience`",
        )

    def look(self) -> None:
        """See that it runs.

        Raises:
            TrialError: it has ended; with its last words.
        """
        if self._process.alive():
            return
        words = last_words(self._process.stderr())
        how = "ended"
        try:
            self._process.stop(_NEVER_ASKED_S)
        except TrialError as error:
            how = re.sub(r"^.*?(?=was killed|ended with)|;.*", "", error.what, flags=re.DOTALL)
        raise TrialError(
            f"the server `{self}` {how}{words}",
            _FOREGROUND if how == "ended" else None,
        )

    def consumed_ns(self) -> int:
        """Processor time of it and all its descendants, also those that ended, by its kernel."""
        said = self._inside.run(("sh", "-c", _CONSUMPTION), _LOOK_TIMEOUT_S)
        return consumed_in(said, self._pid)

    def watched(self, client: Any) -> Watched:
        """A client's events, as long as this server runs."""
        return Watched(client, self.look, self._look_each_s)

    def _is_ready(self, ready: Ready, run: Callable[[str, float], object], deadline: float) -> bool:
        if ready.kind == "output":
            return re.search(ready.what, self._process.stderr(), re.MULTILINE) is not None
        if ready.kind == "command":
            try:
                run(ready.what, max(0.0, deadline - time.monotonic()))
            except TrialError:
                return False
            return True
        ask = self._connects if ready.kind == "tcp" else lambda: self._answers(ready.what)
        return netns.within(self._client_ns, lambda _: ask())

    def _connects(self) -> bool:
        with suppress(OSError):
            socket.create_connection(self._at, _TRY_S).close()
            return True
        return False

    def _answers(self, path: str) -> bool:
        connection = http.client.HTTPConnection(*self._at, timeout=_TRY_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _end(self) -> None:
        """Have it end in order, so that it can be started on its data again."""
        with suppress(TrialError):
            self._process.stop(_STOP_TIMEOUT_S)

    def _see_off(self, failed: object, *_: object) -> None:
        """Kill what went on in the background, out of its session, whatever its environment.

        Raises:
            TrialError: there was something, and nothing else has failed.
        """

        def is_left(pid: int) -> bool:
            return pid not in self._earlier and self._dwells(pid)

        # What ends with it may take a moment.
        if any(not processes(is_left) for _ in pauses(_NEVER_ASKED_S)):
            return
        if kill_all(is_left) and failed is None:
            raise TrialError(
                f"the server `{self}` put a process into the background, which went on without it"
                " and was killed",
                _FOREGROUND,
            )

    def __str__(self) -> str:
        """As it was asked for."""
        return shlex.join(self._argv)


class Watched:
    """A client's events; a server that ends meanwhile is what is told.

    Args:
        client: started.
        look: raises TrialError where the server has ended.
        each_s: how often it is called.
    """

    def __init__(self, client: Any, look: Callable[[], None], each_s: float) -> None:
        self._client = client
        self._look = look
        self._each_s = each_s

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next event of the client."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                found: dict[str, Any] = self._client.event(min(self._each_s, max(0, left)))
            except ProcessError as error:
                self._look()
                if error.kind != "timeout" or left <= self._each_s:
                    raise
            else:
                return found


def consumed_in(stats: str, pid: int) -> int:
    """Processor time of a process and its descendants, in ns, to a tick for each.

    A process that ended is in what its parent waited for.

    Args:
        stats: lines of /proc/PID/stat of all processes.
        pid: the first.

    Raises:
        TrialError: it is not among them.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for line in stats.splitlines():
        number, _, _ = line.partition(" ")
        # Source: proc(5): ppid is the 4th field, utime to cstime 14th to 17th.
        fields = stat_fields(line)
        if number.isdecimal() and len(fields) > 14:
            parents[int(number)] = int(fields[1])
            ticks[int(number)] = sum(map(int, fields[11:15]))
    if pid not in ticks:
        raise TrialError(f"process {pid} ended before its consumption could be read")
    family = {pid}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[one] for one in family) * 1_000_000_000 // _TICKS_PER_S
