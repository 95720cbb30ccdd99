"""A pageshare of one migration, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc
from move import Move, RefusedError

_LOOK_S = 60.0
"""How often it is looked whether the pod that a proxy is for is still there."""
_LISTENING = "waiting for"


class Proxy:
    """One `pageshare send` or `receive`, for one migration.

    It works in the directory that the launcher shares: a path from the root would be longer than
    the 107 bytes that a Unix socket's may have.
    """

    def __init__(
        self, role: str, move: Move, directory: Path, port: int, process: asyncio.subprocess.Process
    ) -> None:
        self.move, self.directory, self.port = move, directory, port
        self.socket: tuple[int, int] | None = None
        """Device and inode of the socket that it listens at, in the place of virt-handler's."""
        self._process = process
        self._ready = asyncio.Event()
        self._words = "it said nothing"
        self._watch = asyncio.create_task(self._follow(role))

    @classmethod
    async def start(cls, move: Move, directory: Path, port: int, argv: Sequence[str]) -> Proxy:
        """Start it; `listening` waits until it can be used."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=directory,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        return cls(argv[1], move, directory, port, process)

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

    def take(self, own: Path, place: Path) -> None:
        """Put its socket into the place of virt-handler's, at once, for the same user."""
        before = place.lstat()
        os.chown(own, before.st_uid, before.st_gid)
        own.chmod(before.st_mode & 0o777)
        own.rename(place)
        self.socket = identity(place)

    async def end(self, after_s: float = 0.0) -> None:
        """End it if it has not ended by itself by then."""
        await asyncio.wait([self._watch], timeout=after_s)
        self._terminate()
        await self._watch

    async def _follow(self, role: str) -> None:
        """Pass on what it says; end it once the pod that it is for is gone; tidy up after it."""
        telling = asyncio.create_task(self._tell(role))
        while not (await asyncio.wait([telling], timeout=_LOOK_S))[0]:
            if not self.directory.exists():
                self._terminate()
        await telling
        await self._process.wait()
        path = self.directory / self.move.stream
        if self.socket is not None and identity(path) == self.socket:
            path.unlink(missing_ok=True)

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


def identity(path: Path) -> tuple[int, int] | None:
    """Which file is there: its device and inode; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def say(words: str) -> None:
    """Tell the node's log."""
    sys.stderr.write(f"pageshare node hooks: {words}\n")
    sys.stderr.flush()
