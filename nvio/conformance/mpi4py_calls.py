"""Write one shared file by every call of mpi4py, read it by every call, and check both.

    mpirun -n RANKS python mpi4py_calls.py FILE

mpi4py's wheel asks at run time whether the MPI has functions of large counts, and then calls them.
"""

import sys

import numpy as np
from mpi4py import MPI

COMM = MPI.COMM_WORLD
PIECE = np.zeros(1000, np.uint16)
STRIPE = COMM.size * PIECE.size
"""What all ranks write by one call; its numbers say by which, and who: 16 x call + rank."""


def transfer(file: MPI.File, call: str, stripe: int, piece: "np.ndarray") -> None:
    """Move this rank's piece of a stripe."""
    start = stripe * STRIPE * PIECE.itemsize
    own = start + COMM.rank * PIECE.nbytes
    if "shared" in call or "ordered" in call:
        file.Seek_shared(start)
    else:
        file.Seek(own)
    COMM.Barrier()
    request = getattr(file, call)(*[own] * ("_at" in call), piece)
    if call.endswith("_begin"):
        getattr(file, call.replace("_begin", "_end"))(piece)
    elif request is not None:
        request.Wait()


def check(call: str, is_right: bool) -> None:
    """End the job where something else was found than was written."""
    if not is_right:
        sys.stderr.write(f"rank {COMM.rank}: {call}: something else than was written\n")
        COMM.Abort(3)


def main() -> None:
    """Move it all, then look at the file without MPI."""
    file = MPI.File.Open(COMM, sys.argv[1], MPI.MODE_RDWR | MPI.MODE_CREATE)
    calls = [call for call in dir(file) if "rite" in call and not call.endswith("_end")]
    for stripe, call in enumerate(calls):
        written = np.full_like(PIECE, 16 * stripe + COMM.rank)
        transfer(file, call, stripe, written)
        file.Sync()
        COMM.Barrier()
        file.Sync()
        read = PIECE.copy()
        reading = call.replace("Write", "Read").replace("write", "read")
        transfer(file, reading, stripe, read)
        # Who comes first at the shared pointer is nobody's choice.
        loose = 16 if "shared" in call else 1
        check(reading, (read // loose == written // loose).all())
    if MPI.Get_version() < (4, 0):
        try:
            file.Write_at(0, np.zeros(2**31 + 8, np.uint8))
            check("a count that no int holds", False)
        except (MPI.Exception, OverflowError) as error:
            sys.stdout.write(f"a count that no int holds: {error}\n")
    file.Close()
    if COMM.rank == 0:
        stripes = np.fromfile(sys.argv[1], np.uint16).reshape(-1, COMM.size, PIECE.size)
        for stripe, (call, pieces) in enumerate(zip(calls, stripes, strict=True)):
            wanted = 16 * stripe + np.arange(COMM.size)
            check(call, (np.sort(pieces, axis=0) == wanted[:, None]).all())
        sys.stdout.write(f"{len(calls)} calls moved what they should\n")


main()
