"""What the Python programs share: the command line, the clock, the check, the line at the end."""

import json
import sys
import time
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI


@dataclass(frozen=True)
class Asked:
    """The command line; the array has `rows` rows of `comm.size * piece` bytes."""

    path: str
    reading: bool
    piece: int
    rows: int
    sync: bool
    comm: MPI.Intracomm


class Clock:
    """Seconds of each phase."""

    def __init__(self) -> None:
        MPI.COMM_WORLD.Barrier()
        self._last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.monotonic()
        self.laps[phase] = now - self._last
        self._last = now


def parse() -> Asked:
    """Read the command line; exits with 2 where it is wrong."""
    words = sys.argv[1:]
    if (
        len(words) not in (4, 5)
        or words[1] not in ("read", "write")
        or words[4:] not in ([], ["sync"])
    ):
        sys.exit(f"usage: {sys.argv[0]} FILE read|write PIECE_BYTES FILE_BYTES [sync]")
    comm = MPI.COMM_WORLD
    piece, size = int(words[2]), int(words[3])
    rows = size // (piece * comm.size)
    return Asked(words[0], words[1] == "read", piece, rows, words[4:] == ["sync"], comm)


def content(asked: Asked) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """What this rank writes, shape (piece,)."""
    return np.full(asked.piece, asked.comm.rank + 1, np.uint8)


def check(asked: Asked, piece: "np.ndarray[tuple[int], np.dtype[np.uint8]]", row: int) -> None:
    """End the job where something else was read than was written."""
    if not (piece == asked.comm.rank + 1).all():
        sys.stderr.write(f"rank {asked.comm.rank} read something else in row {row}\n")
        asked.comm.Abort(3)


def tell(asked: Asked, clock: Clock) -> None:
    """Print the line of JSON."""
    laps = dict(clock.laps, total=sum(clock.laps.values()))
    slowest = {name: asked.comm.reduce(lap, MPI.MAX) for name, lap in laps.items()}
    if asked.comm.rank == 0:
        operations = asked.rows * asked.comm.size
        line = {**slowest, "operations": operations, "bytes": operations * asked.piece}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
