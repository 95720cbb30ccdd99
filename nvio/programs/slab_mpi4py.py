"""Columns of an array in one shared file, by mpi4py; see README.md."""

import slab
from mpi4py import MPI


def main() -> None:
    """Write or read it, and tell the time."""
    asked = slab.parse()
    clock = slab.Clock()
    mode = MPI.MODE_RDONLY if asked.reading else MPI.MODE_RDWR | MPI.MODE_CREATE
    file = MPI.File.Open(asked.comm, asked.path, mode)
    clock.lap("open")
    piece = slab.content(asked)
    for row in range(asked.rows):
        at = (row * asked.comm.size + asked.comm.rank) * asked.piece
        if asked.reading:
            file.Read_at(at, piece)
            slab.check(asked, piece, row)
        else:
            file.Write_at(at, piece)
    clock.lap("work")
    if asked.sync:
        file.Sync()
    file.Close()
    clock.lap("close")
    slab.tell(asked, clock)


main()
