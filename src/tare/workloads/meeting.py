"""A barrier between programs on several machines, and when each of them ended, on one clock.

Every side runs `probe meet`, which connects here and waits; `let_go` releases all of them at once.
A side's connection closes when its program ends, which is noted on this machine's clock: clocks of
guests are never compared with each other. How far off that is, is the way of one packet.

A program that tells one rate of all of its time is run again and again (`held_again`) until every
side has ended enough runs: then those count that lie within the time in which all sides ran.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from tare import netns
from tare.environments import Site
from tare.errors import TrialError
from tare.stepwise import Stepwise

_ARRIVAL_TIMEOUT_S = 30.0
_LOOK_TIMEOUT_S = 0.5
_ANSWER_TIMEOUT_S = 30.0
_MESSAGE_BYTES = 4096
_ALIVE_S = 10


class Side(Protocol):
    """A started `probe meet`, wherever it runs."""

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        ...


@dataclass(frozen=True)
class OneOfMany:
    """One run of a program that was run again and again; times as those of `Run`."""

    began: float
    ended: float
    output: str


@dataclass(frozen=True)
class Run:
    """How one side's program ran; times on this machine's clock, in seconds.

    Of a program that was run again and again: from the first start to the last end.
    """

    began: float
    ended: float
    cpu_ns: int
    """User and system time, as its own kernel counts."""
    output: str
    """Of the last run."""
    each: tuple[OneOfMany, ...] = ()
    """Its runs in order, where it was run again and again."""

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.ended - self.began

    def within(self, window: tuple[float, float]) -> tuple[OneOfMany, ...]:
        """Those of its runs that began and ended within a window."""
        return tuple(o for o in self.each if window[0] <= o.began and o.ended <= window[1])


def overlap(runs: Sequence[Run]) -> tuple[float, float]:
    """When all of them ran: from the last beginning to the first end, which may come before it."""
    return max(run.began for run in runs), min(run.ended for run in runs)


class Meeting(Stepwise):
    """A meeting point in the client's network, which every host and guest reaches.

    Args:
        site: whose hosts meet.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._there: list[socket.socket] = []
        self._ended: dict[socket.socket, float] = {}
        """When a side was seen to be gone, on this machine's clock, in seconds."""

    def _build(self, stack: ExitStack) -> None:
        """Open it."""
        hosts = self._site.hosts
        # The socket stays in the namespace of the thread that made it.
        self._door = netns.within(
            hosts.client_ns, lambda _: socket.create_server((hosts.client_address, 0))
        )
        stack.enter_context(self._door)

    def command(self, argv: Sequence[str], *, again: bool = False) -> tuple[str, ...]:
        """Return what runs a program from here on; `again`: again and again, for `held_again`."""
        flags = ("--again",) if again else ()
        return ("probe/probe", "meet", *self.where, *flags, "--", *argv)

    @property
    def where(self) -> tuple[str, ...]:
        """The options that tell a program of `probe/` where to connect."""
        address, port = self._door.getsockname()
        return ("--at", address, "--port", str(port))

    def arrived(self, side: Side) -> None:
        """Wait until the side that was started last is here; sides are told apart by that.

        Raises:
            TrialError: it does not come.
        """
        self._door.settimeout(_ARRIVAL_TIMEOUT_S)
        try:
            connection, _ = self._door.accept()
        except TimeoutError:
            # One that failed says why; one that is merely late says nothing.
            side.event(_LOOK_TIMEOUT_S)
            raise TrialError("a side did not come to the meeting point") from None
        self._steps.enter_context(connection)
        self._there.append(connection)

    def held(self, sides: Sequence[Side], timeout_s: float) -> list[Run]:
        """Let all sides go, wait until each has ended, and return their runs, in order of arrival.

        Raises:
            TrialError: a program failed, or did not end in time.
        """
        self._say()
        return self._runs(sides, time.monotonic() + timeout_s)

    def held_again(self, sides: Sequence[Side], least: int, timeout_s: float) -> list[Run]:
        """As `held`, of programs that are run again and again until each has ended `least` runs.

        Every side runs on until the slowest has, so that none is at work alone before that.
        """
        deadline = time.monotonic() + timeout_s
        self._say()
        self._await_ends(least, deadline)
        self._say()
        return self._runs(sides, deadline)

    def await_end(self, timeout_s: float) -> None:
        """Wait until every side is gone; also one whose machine is, which says nothing more.

        Raises:
            TrialError: one did not end in time.
        """
        for connection in self._there:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _ALIVE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ALIVE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        self._await_gone(time.monotonic() + timeout_s)

    def _say(self) -> None:
        """Say the one word there is: first "go", then "enough"."""
        for connection in self._there:
            # One that has failed is gone; what it printed is read later.
            with suppress(ConnectionError):
                connection.sendall(b"!")

    def _runs(self, sides: Sequence[Side], deadline: float) -> list[Run]:
        self._await_gone(deadline)
        return [
            read_run(side.event(_ANSWER_TIMEOUT_S), self._ended[connection])
            for side, connection in zip(sides, self._there, strict=True)
        ]

    def _await_ends(self, least: int, deadline: float) -> None:
        """Wait until every side has ended so many runs, or one of them is gone."""
        missing = dict.fromkeys(self._there, least)
        while not self._ended and any(runs > 0 for runs in missing.values()):
            for connection, runs in self._heard(self._there, deadline).items():
                missing[connection] -= runs

    def _await_gone(self, deadline: float) -> None:
        while left := [c for c in self._there if c not in self._ended]:
            self._heard(left, deadline)

    def _heard(
        self, connections: Sequence[socket.socket], deadline: float
    ) -> dict[socket.socket, int]:
        """Wait for word of these sides: how many runs each has ended. Note when one is gone."""
        ready, _, _ = select.select(connections, [], [], max(0.0, deadline - time.monotonic()))
        now = time.monotonic()
        if not ready:
            raise TrialError("a program did not end in time at the meeting")
        heard = {connection: _received(connection) for connection in ready}
        self._ended |= {connection: now for connection, runs in heard.items() if not runs}
        return heard


def _received(connection: socket.socket) -> int:
    """Take what a side has said, a byte for each run that ended; 0 when it is gone."""
    try:
        return len(connection.recv(_MESSAGE_BYTES))
    except (ConnectionError, TimeoutError):
        return 0


def read_run(said: Mapping[str, Any], ended: float) -> Run:
    """Read what `probe meet` printed of a side whose end was seen here.

    Args:
        said: its line.
        ended: on this machine's clock, in seconds.

    Raises:
        TrialError: the program failed, or the line is another.
    """
    try:
        code, output = int(said["code"]), str(said["output"])
        wall_ns, cpu_ns = int(said["wall_ns"]), int(said["user_ns"] + said["system_ns"])
        each = tuple(
            OneOfMany(
                ended - (wall_ns - int(one["start_ns"])) / 1e9,
                ended - (wall_ns - int(one["end_ns"])) / 1e9,
                str(one["output"]),
            )
            for one in said.get("runs", ())
        )
        began = ended - wall_ns / 1e9
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise TrialError(f"probe meet printed something else: {said}") from error
    if code != 0:
        raise TrialError(f"a program ended with code {code}: {output[-500:].strip()}")
    return Run(began, ended, cpu_ns, output, each)
