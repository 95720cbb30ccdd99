"""Commands inside a guest, through the QEMU guest agent. Everything has a timeout.

The agent answers one command at a time and forks for `guest-exec`; under emulation an answer takes
milliseconds. It is asked before and after the measured part of a trial, never during it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tare.errors import TrialError
from tare.guests.monitor import Monitor, MonitorError, RefusedError
from tare.pauses import pauses

PATH = "/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin"
_ENVIRONMENT = {"PATH": PATH, "HOME": "/", "LC_ALL": "C.UTF-8"}

_CHUNK = 1 << 16


@dataclass(frozen=True)
class Ended:
    """How a process in the guest ended, and what it wrote if that was captured."""

    code: int
    """Its exit code, or minus the signal that killed it."""
    stdout: str = ""
    stderr: str = ""


class Agent:
    """The agent of one guest.

    Args:
        monitor: the connection to it.
        timeout_s: after so long without an answer to a small command the guest counts as hung.
    """

    def __init__(self, monitor: Monitor, timeout_s: float = 10.0) -> None:
        self._monitor = monitor
        self.timeout_s = timeout_s

    def wait(self, timeout_s: float) -> None:
        """Wait until it answers: the guest is up.

        Raises:
            MonitorError: it did not in time, or QEMU ended.
        """
        self._monitor.ask("guest-ping", timeout_s)

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, *, capture: bool = False
    ) -> int:
        """Start a process and return its pid in the guest.

        Raises:
            RefusedError: there is no such program.
            MonitorError: the guest does not answer.
        """
        with _understood("guest-exec"):
            answer = self.ask(
                "guest-exec",
                path=argv[0],
                arg=list(argv[1:]),
                env=[f"{name}={value}" for name, value in {**_ENVIRONMENT, **(env or {})}.items()],
                capture_output=capture,
            )
            return int(answer["pid"])

    def ended(self, pid: int) -> Ended | None:
        """Tell how a process that `start` started ended, or None if it runs.

        An end is told once: the agent forgets the process then.
        """
        with _understood("guest-exec-status"):
            answer = self.ask("guest-exec-status", pid=pid)
            if not answer["exited"]:
                return None
            code = -int(answer["signal"]) if "signal" in answer else int(answer.get("exitcode", 0))
            return Ended(code, _decoded(answer.get("out-data")), _decoded(answer.get("err-data")))

    def wait_for(self, pid: int, timeout_s: float) -> Ended | None:
        """Wait for the end of a process; None if it still runs after the timeout."""
        for _ in pauses(timeout_s):
            if (ended := self.ended(pid)) is not None:
                return ended
        return None

    def run(
        self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None
    ) -> Ended:
        """Run a program to its end and return what it wrote; it is killed after the timeout.

        Raises:
            TrialError: it took too long, there is no such program, or the guest does not answer.
        """
        pid = self.start(argv, env, capture=True)
        ended = self.wait_for(pid, timeout_s)
        if ended is None:
            self.start(["/bin/kill", "-KILL", str(pid)])
            raise TrialError(f"{argv[0]} did not end within {timeout_s:g} s in the guest")
        return ended

    def create(self, path: str) -> GuestFile:
        """Create an empty file, and read what others write to it."""
        return self._open(path, "w+")

    def read(self, path: str) -> bytes:
        """Return a small file's content.

        Raises:
            RefusedError: it cannot be opened.
        """
        file = self._open(path, "r")
        try:
            return file.read()
        finally:
            file.close()

    def ask(self, command: str, **arguments: object) -> Any:
        """Run one of the agent's own commands and return its answer."""
        return self._monitor.ask(command, self.timeout_s, **arguments)

    def _open(self, path: str, mode: str) -> GuestFile:
        with _understood("guest-file-open"):
            return GuestFile(self, int(self.ask("guest-file-open", path=path, mode=mode)))


class GuestFile:
    """An open file in the guest, read from where the last read ended."""

    def __init__(self, agent: Agent, handle: int) -> None:
        self._agent = agent
        self._handle = handle

    def read(self) -> bytes:
        """Return what has been added since the last read; empty if nothing was."""
        parts: list[bytes] = []
        while True:
            with _understood("guest-file-read"):
                answer = self._agent.ask("guest-file-read", handle=self._handle, count=_CHUNK)
                parts.append(base64.b64decode(answer["buf-b64"]))
            if len(parts[-1]) < _CHUNK:
                return b"".join(parts)

    def close(self) -> None:
        """Close it; a guest that no longer knows it is no error."""
        try:
            self._agent.ask("guest-file-close", handle=self._handle)
        except RefusedError:
            return


@contextmanager
def _understood(command: str) -> Iterator[None]:
    """Make an error of an answer that does not have the form that it should: guests may lie."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MonitorError(
            f"the guest agent answered {command} with nonsense: {error!r}"
        ) from error


def _decoded(data: str | None) -> str:
    return base64.b64decode(data or "").decode(errors="replace")
