"""How a process can fail, in words: what happened, to which program, with its last words."""

from __future__ import annotations

import signal
from typing import Literal

from tare.command import Command
from tare.errors import TrialError

_STDERR_TAIL_LINES = 8
_STDERR_TAIL_BYTES = 4096

Failure = Literal["not found", "exit", "signal", "timeout", "protocol"]


class ProcessError(TrialError):
    """A process could not be started, failed, was killed, took too long or talked nonsense.

    Attributes:
        kind: which of these.
        code: for "exit" the exit code, for "signal" minus the signal's number, else None.
    """

    def __init__(
        self, kind: Failure, what: str, remedy: str | None = None, code: int | None = None
    ) -> None:
        super().__init__(what, remedy)
        self.kind: Failure = kind
        self.code = code


def ended(who: str, command: Command, code: int, circumstance: str, words: str) -> ProcessError:
    """Word the end of a process that should not have ended so.

    Args:
        who: its name, with its pid where one helps.
        command: what it was started by.
        code: its exit code, or minus the signal that killed it (as `subprocess` has it).
        circumstance: what was waited for in vain, or nothing.
        words: its last words, from `last_words`.
    """
    tail = f" {circumstance}" if circumstance else ""
    if code < 0:
        name = signal.strsignal(-code) or "a real-time signal"
        what = f"{who} was killed by signal {-code} ({name}){tail}{words}"
        return ProcessError("signal", what, code=code)
    what = f"{who} ended with exit code {code}{tail}{words}"
    return ProcessError("exit", what, f"try it by hand: {command}" if code else None, code)


def late(who: str, timeout_s: float, words: str) -> ProcessError:
    """Word that a process was killed since it took too long; see `ended`."""
    what = f"{who} did not end within {timeout_s:g} s and was killed{words}"
    return ProcessError("timeout", what)


def last_words(stderr: bytes | str) -> str:
    """Put the last lines of standard error into words, or nothing if there are none."""
    end = stderr[-_STDERR_TAIL_BYTES:]
    text = (end if isinstance(end, str) else end.decode(errors="replace")).strip()
    lines = text.splitlines()[-_STDERR_TAIL_LINES:]
    return "; its last words: " + " | ".join(lines) if lines else ""
