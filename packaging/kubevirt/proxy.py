"""A pageshare of one migration, and what becomes of it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from move import Move, RefusedError
from place import Place

_LOOK_S = 60.0
"""How often it is looked whether the pod that a proxy is for is still there."""
_LISTENING = "waiting for"


class Proxy:
    """One `pageshare send` or `receive`, for one migration.

    It works in the directory that the launcher shares, or in its own one there: a path from the
    root would be longer than the 107 bytes that a Unix socket's may have.
    """

    def __init__(
        self,
        role: str,
        move: Move,
        directory: Path,
        port: int,
        place: Place | None,
        process: asyncio.subprocess.Process,
    ) -> None:
        self.move, self.port, self.place = move, port, place
        self._directory, self._process = directory, process
        self._ready = asyncio.Event()
        self._words = "it said nothing"
        self._watch = asyncio.create_task(self._follow(role))

    @classmethod
    async def start(
        cls,
        move: Move,
        directory: Path,
        port: int,
        argv: Sequence[str],
        place: Place | None = None,
    ) -> Proxy:
        """Start it, to take a place if one is given; `listening` waits until it can be used."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=place.own if place else directory,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError:
            if place is not None:
                place.leave()
            raise
        return cls(argv[1], move, directory, port, place, process)

    @property
    def runs(self) -> bool:
        """Whether it may still carry its migration."""
        return not self._watch.done()

    @property
    def listens(self) -> bool:
        """Whether it can be connected to, or is."""
        return self.runs and self._ready.is_set()

    async def listening(self) -> None:
        """Wait until it listens.

        Raises:
            RefusedError: it ended before.
        """
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait([ready, self._watch], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            words = f"pageshare ended before it listened: {self._words}"
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, words)

    async def end(self, after_s: float = 0.0) -> None:
        """End it if it has not ended by itself by then."""
        await asyncio.wait([self._watch], timeout=after_s)
        self._terminate()
        await self._watch

    async def _follow(self, role: str) -> None:
        """Pass on what it says; end it once the pod that it is for is gone; tidy up after it."""
        telling = asyncio.create_task(self._tell(role))
        while not (await asyncio.wait([telling], timeout=_LOOK_S))[0]:
            if not self._directory.exists():
                self._terminate()
        await telling
        await self._process.wait()
        if self.place is not None:
            self.place.leave()

    async def _tell(self, role: str) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._words = line.decode(errors="replace").rstrip()
            say(f"{role} of migration {self.move.migration}: {self._words}")
            if _LISTENING in self._words:
                self._ready.set()

    def _terminate(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()


def say(words: str) -> None:
    """Tell the node's log."""
    sys.stderr.write(f"pageshare node hooks: {words}\n")
    sys.stderr.flush()
