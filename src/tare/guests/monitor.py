"""Ask QEMU, or the agent inside its guest, over a socket pair: synchronous, with a timeout always.

Both speak QEMU's machine protocol (QMP), the agent without greeting and negotiation. QEMU inherits
the far end of a connected pair, so there is no path in a file system to race for or to clean up.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any

from qemu.qmp import ExecuteError, QMPClient, QMPError

from tare.errors import TrialError

# It logs every failure that it raises; so would we, a second time.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class MonitorError(TrialError):
    """No usable answer came: silence past the timeout, or a broken connection."""


class RefusedError(TrialError):
    """The far side understood and said no."""


@dataclass(frozen=True)
class Event:
    """What QEMU tells unasked."""

    name: str
    time_ns: int
    """Of the real-time clock, by QEMU, to the microsecond."""
    data: dict[str, Any] = field(default_factory=dict)


class Monitor(AbstractContextManager["Monitor"]):
    """One connection. `far` goes to QEMU; `connect` once QEMU runs.

    Args:
        name: who is asked, for messages: "QEMU", "the guest agent".
        greets: whether the far side greets and negotiates (QMP proper).
    """

    def __init__(self, name: str, *, greets: bool) -> None:
        self.name = name
        self.far, self._near = socket.socketpair()
        # A runner turns Ctrl-C into the end of the question alone; raised anywhere in the loop it
        # could end a task of the library's, and leave a connection that nobody reads.
        self._runner = asyncio.Runner(loop_factory=_quiet_loop)
        self._closed = False
        self._client = QMPClient(name)
        self._client.await_greeting = greets
        self._client.negotiate = greets
        self._given_up = ""

    def connect(self, timeout_s: float) -> None:
        """Begin to talk; our copy of the far end is closed, so that QEMU's death is seen.

        Raises:
            MonitorError: it did not greet.
        """
        self.far.close()

        async def connect() -> None:
            await asyncio.wait_for(self._client.connect(self._near), timeout_s)

        self._run(connect(), f"did not greet within {timeout_s:g} s")

    def ask(self, command: str, timeout_s: float, **arguments: object) -> Any:
        """Run a command and return its answer; underscores in argument names become hyphens.

        Raises:
            MonitorError: no answer within the timeout, or the connection broke.
            RefusedError: the answer is an error.
        """
        named = {name.replace("_", "-"): value for name, value in arguments.items()}

        async def ask() -> Any:
            return await asyncio.wait_for(self._client.execute(command, named), timeout_s)

        return self._run(ask(), f"did not answer {command} within {timeout_s:g} s")

    def event(self, timeout_s: float) -> Event | None:
        """Return the next event, which may have come long ago; None if none comes in time.

        Raises:
            MonitorError: the connection broke.
        """

        async def next_event() -> Event | None:
            try:
                message: Any = await asyncio.wait_for(self._client.events.get(), timeout_s)
            except TimeoutError:
                return None
            when = message["timestamp"]
            time_ns = when["seconds"] * 10**9 + when["microseconds"] * 1000
            return Event(message["event"], time_ns, dict(message.get("data", {})))

        event: Event | None = self._run(next_event(), "")
        return event

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, whatever state the far side is in. Idempotent."""
        self.far.close()
        if self._closed:
            return
        self._closed = True

        async def disconnect() -> None:
            # Whatever broke the connection was told when it did; the library raises it once more.
            with suppress(Exception):
                await asyncio.wait_for(self._client.disconnect(), 1)

        try:
            self._runner.run(disconnect())
        finally:
            self._runner.close()
            self._near.close()

    def _run(self, question: Coroutine[Any, Any, Any], silence: str) -> Any:
        if self._given_up:
            # One silence is enough: whoever cleans up need not wait for the next.
            question.close()
            raise MonitorError(self._given_up)
        try:
            return self._runner.run(question)
        except ExecuteError as error:
            raise RefusedError(f"{self.name} refused: {error}") from error
        except TimeoutError:
            self._given_up = f"{self.name} {silence}"
            raise MonitorError(self._given_up) from None
        except (QMPError, OSError, EOFError, ValueError, RecursionError) as error:
            # The last two: bytes that are no JSON at all, which the library does not foresee.
            self._given_up = f"{self.name} hung up: {error or type(error).__name__}"
            raise MonitorError(self._given_up) from error


def _quiet_loop() -> asyncio.AbstractEventLoop:
    """A loop that logs no task's end: a signal leaves questions behind that nobody asks any more.

    Whatever else ends a question is raised to whoever asks it.
    """
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _loop, _context: None)
    return loop
