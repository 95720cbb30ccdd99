#!/usr/bin/env python3
"""Run a job with a rank that lacks nvio, where the MPI is to tell the nodes: others must say so.

    waits.py --build DIR --mpi mpich|openmpi

They cannot go on: that rank's reads would not see what the others cache.
"""

from __future__ import annotations

import sys
import tempfile

from compare import HangError, Launch, RunError, command_line, run, say

TIMEOUT_S = 20
"""Twice as long as nvio waits before it says so."""
FIRST_WITHOUT = (
    'if [ "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}" = 0 ]; then unset LD_PRELOAD; fi; exec "$@"'
)
SAID = "still waiting for ranks of this job"


def main() -> int:
    """Start the job and end it; 0 when the rank that waits has said so."""
    parser = command_line(__doc__)
    options = parser.parse_args()
    launch = Launch(options.mpi, options.build.resolve(), 2)
    with tempfile.TemporaryDirectory(prefix="nvio-waits-") as folder:
        program = [str(launch.build / f"left-{launch.mpi}"), folder]
        command = launch.command(["sh", "-c", FIRST_WITHOUT, "sh", *program])
        try:
            output = run(command, launch.environment({"NVIO_RENDEZVOUS": folder}), TIMEOUT_S)
        except HangError as waited:
            said = SAID in str(waited)
            say("it waits, and says so" if said else f"it waits without a word: {waited}")
            return 0 if said else 1
        except RunError as failure:
            say(f"it should wait, and fails: {failure}")
            return 1
        say(f"it should wait, and ends: {output}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
