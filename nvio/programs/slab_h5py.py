"""Columns of an array in one shared file, by HDF5 through h5py; see README.md."""

import h5py
import numpy as np
import slab


def main() -> None:
    """Write or read it, and tell the time."""
    asked = slab.parse()
    clock = slab.Clock()
    mode = "r" if asked.reading else "w"
    # Debian's h5py takes the parallel HDF5 where it is started by mpirun.
    with h5py.File(asked.path, mode, driver="mpio", comm=asked.comm) as file:
        shape = (asked.rows, asked.comm.size * asked.piece)
        data = file["slab"] if asked.reading else file.create_dataset("slab", shape, np.uint8)
        clock.lap("open")
        piece = slab.content(asked)
        columns = slice(asked.comm.rank * asked.piece, (asked.comm.rank + 1) * asked.piece)
        for row in range(asked.rows):
            if asked.reading:
                piece[:] = data[row, columns]
                slab.check(asked, piece, row)
            else:
                data[row, columns] = piece
        clock.lap("work")
        if asked.sync:
            file.flush()
    clock.lap("close")
    slab.tell(asked, clock)


main()
