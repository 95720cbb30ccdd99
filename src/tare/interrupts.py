"""Ctrl-C and its like, put off while what has begun must come to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def put_off() -> Iterator[None]:
    """Let no interrupt through until the context is left, however often it comes."""
    if threading.current_thread() is not threading.main_thread():
        yield  # the main thread alone gets it
        return
    came: list[int] = []
    usual = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in _INTERRUPTS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
