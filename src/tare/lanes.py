"""Threads in which several hosts are measured at once, one trial at a time on each.

A thread only waits for another machine: what is set up, recorded and taken down is left to whoever
has the threads. So there is one writer, and what is made here is made by one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue

from tare.record import Trial

Ready = tuple[str, Callable[[], Trial]]
"""A cell that is set up, and what measures a trial of it."""
_MOST = 256
"""Hosts that are measured at once; further ones wait for a thread."""


class Lanes(AbstractContextManager["Lanes"]):
    """The threads. Leaving waits for them.

    Whoever leaves early lets none begin another trial (`leave`), and then hangs up on the hosts,
    which ends what the threads wait for.
    """

    def __init__(self) -> None:
        self._leaving = threading.Event()
        self._pool = ThreadPoolExecutor(_MOST, thread_name_prefix="tare-host")
        self._lock = threading.Lock()
        self._running: dict[str, set[str]] = {}

    def measured(self, hosts: Sequence[Sequence[Ready]]) -> Iterator[Trial]:
        """Measure, and return every trial as it ends, told which others ran beside it.

        Args:
            hosts: the trials of each, in order.
        """
        ended: SimpleQueue[Trial | None] = SimpleQueue()

        def work(trials: Sequence[Ready]) -> None:
            try:
                for cell, measured in trials:
                    if self._leaving.is_set():
                        return
                    with self._among(cell) as others:
                        trial = measured()
                    ended.put(trial.model_copy(update={"beside": tuple(sorted(others))}))
            finally:
                ended.put(None)

        working = [self._pool.submit(work, trials) for trials in hosts if trials]
        for _ in working:
            while (trial := ended.get()) is not None:
                yield trial
        for one in working:
            one.result()  # what went wrong that no trial could tell

    @contextmanager
    def _among(self, cell: str) -> Iterator[set[str]]:
        """Be one of those that run; the others that did at some moment are known in the end."""
        others: set[str] = set()
        with self._lock:
            for other, beside in self._running.items():
                others.add(other)
                beside.add(cell)
            self._running[cell] = others
        try:
            yield others
        finally:
            with self._lock:
                del self._running[cell]

    def leave(self) -> None:
        """Let no trial begin any more."""
        self._leaving.set()

    def __exit__(self, *raised: object) -> None:
        self.leave()
        self._pool.shutdown()
