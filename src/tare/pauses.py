"""Waiting for what tells nobody when it happens: looking again and again, ever more seldom."""

from __future__ import annotations

import time
from collections.abc import Iterator

_FIRST_S = 0.002
_LONGEST_S = 0.05


def pauses(timeout_s: float, longest_s: float = _LONGEST_S) -> Iterator[None]:
    """Yield, with growing pauses, until the timeout is over; at least twice.

    A look costs processor time, often of what is waited for.

    Args:
        timeout_s: after which there is one look more.
        longest_s: of a pause.
    """
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_S
    yield
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(pause, left))
        pause = min(2 * pause, longest_s)
        yield
