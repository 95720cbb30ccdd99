"""A barrier between programs on several machines, and when each of them ended, on one clock.

Every side runs `probe meet`, which connects here and waits; `let_go` releases all of them at once.
A side's connection closes when its program ends, which is noted on this machine's clock: clocks of
guests are never compared with each other. How far off that is, is the way of one packet.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tare import netns
from tare.errors import TrialError
from tare.stepwise import Stepwise

if TYPE_CHECKING:
    from tare.environments import Site

__all__ = ["Meeting", "Run"]

_ARRIVAL_TIMEOUT_S = 30.0
_LOOK_TIMEOUT_S = 0.5
_ANSWER_TIMEOUT_S = 30.0


class Side(Protocol):
    """A started `probe meet`, wherever it runs."""

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON line of its standard output."""
        ...


@dataclass(frozen=True)
class Run:
    """How one side's program ran; times on this machine's clock, in seconds."""

    began: float
    ended: float
    cpu_ns: int
    """User and system time, as its own kernel counts."""
    output: str

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return self.ended - self.began


class Meeting(Stepwise):
    """A meeting point in the client's network, which every host and guest reaches.

    Args:
        site: whose hosts meet.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._there: list[socket.socket] = []

    def _build(self, stack: ExitStack) -> None:
        """Open it."""
        hosts = self._site.hosts
        # The socket stays in the namespace of the thread that made it.
        self._door = netns.within(
            hosts.client_ns, lambda _: socket.create_server((hosts.client_address, 0))
        )
        stack.enter_context(self._door)

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return what runs a program from here on."""
        address, port = self._door.getsockname()
        return ("probe/probe", "meet", "--at", address, "--port", str(port), "--", *argv)

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
        for connection in self._there:
            connection.sendall(b"!")
        ended = self._ends(time.monotonic() + timeout_s)
        runs = []
        for side, connection in zip(sides, self._there, strict=True):
            said = side.event(_ANSWER_TIMEOUT_S)
            try:
                code, output = int(said["code"]), str(said["output"])
                wall_ns, cpu_ns = int(said["wall_ns"]), int(said["user_ns"] + said["system_ns"])
            except (KeyError, TypeError, ValueError) as error:
                raise TrialError(f"probe meet printed something else: {said}") from error
            if code != 0:
                raise TrialError(f"a program ended with code {code}: {output[-500:].strip()}")
            end = ended[connection]
            runs.append(Run(end - wall_ns / 1e9, end, cpu_ns, output))
        return runs

    def _ends(self, deadline: float) -> dict[socket.socket, float]:
        ended: dict[socket.socket, float] = {}
        while left := [c for c in self._there if c not in ended]:
            ready, _, _ = select.select(left, [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TrialError("a program did not end in time at the meeting")
            ended |= dict.fromkeys(ready, time.monotonic())
        return ended
