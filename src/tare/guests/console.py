"""What a guest's console tells of its end. Guests may write anything to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tare.errors import TrialError
from tare.failures import ProcessError
from tare.guests.monitor import MonitorError

_TAIL_LINES = 8
_CAUSE = re.compile(r"Kernel panic|BUG:|Oops:|Out of memory|init failed")
_CAUSES = 3


@contextmanager
def explained(
    who: str, phase: str, state: Callable[[], str], console: Callable[[], str]
) -> Iterator[None]:
    """Add to an error what is known of a guest.

    Of one that answers, only what may be a cause is told: a program may fail by itself.

    Args:
        who: the guest's name.
        phase: what was done, such as "while it booted".
        state: tells whether what runs it still does, and what that said.
        console: reads the end of its console.
    """
    try:
        yield
    except (MonitorError, ProcessError) as error:
        what = f"{who} failed {phase}: {error.what} ({state()})"
        if words := " | ".join(causes_and_tail(console())):
            what += f"; the guest's console ends: {words}"
        raise TrialError(what, error.remedy) from error
    except TrialError as error:
        if found := causes(console()):
            what = f"{error.what}; the guest's console says: {' | '.join(found)}"
            raise TrialError(what, error.remedy) from error
        raise


def causes_and_tail(text: str) -> list[str]:
    """Return the last lines, and above them those that tell why the kernel died."""
    tail = _lines(text)[-_TAIL_LINES:]
    return [cause for cause in causes(text) if cause not in tail] + tail


def causes(text: str) -> list[str]:
    """Return the last lines that may tell why the kernel died."""
    return [line for line in _lines(text) if _CAUSE.search(line)][-_CAUSES:]


def _lines(text: str) -> list[str]:
    """Return the lines that hold anything, without what cannot be printed."""
    stripped = (line.strip() for line in text.splitlines())
    return ["".join(c if c.isprintable() else "?" for c in line) for line in stripped if line]
