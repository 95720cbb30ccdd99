#!/usr/bin/env python3
"""Run a job with a rank that lacks nvio, where the MPI is to tell the nodes: all do without it.

    waits.py --build DIR --mpi mpich|openmpi

That rank's reads would not see what the others cache. Whichever it is, the job must end well, say
why, and leave no store.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

TIMEOUT_S = 60
PATIENCE_S = 2
RANKS = 3
WITHOUT = (
    'if [ "${{PMI_RANK:-$OMPI_COMM_WORLD_RANK}}" = {rank} ]; then unset LD_PRELOAD; fi; exec "$@"'
)
SAID = "goes on without the cache"


def main() -> int:
    """Run the job without nvio at each rank in turn; 0 when each ended, and said why."""
    options = command_line(__doc__).parse_args()
    launch = Launch(options.mpi, options.build.resolve(), RANKS)
    for rank in range(RANKS):
        with tempfile.TemporaryDirectory(prefix="nvio-waits-") as folder:
            program = [str(launch.build / f"left-{launch.mpi}"), folder]
            command = launch.command(["sh", "-c", WITHOUT.format(rank=rank), "sh", *program])
            settings = {
                "NVIO_RENDEZVOUS": folder,
                "NVIO_STORE": folder,
                "NVIO_PATIENCE": str(PATIENCE_S),
            }
            try:
                output = run(command, launch.environment(settings), TIMEOUT_S)
            except RunError as failure:
                say(f"without nvio at rank {rank} the job fails: {failure}")
                return 1
            if SAID not in output:
                say(f"without nvio at rank {rank} nothing is said: {output}")
                return 1
            if left := list(Path(folder).glob("nvio-*")):
                say(f"without nvio at rank {rank} the job leaves {left[0]}")
                return 1
    say("the job goes on without the cache, whichever rank lacks nvio")
    return 0


if __name__ == "__main__":
    sys.exit(main())
