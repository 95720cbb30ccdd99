#!/usr/bin/env python3
"""Run a program that checks itself: plain, then under nvio on one and on two simulated nodes.

    checked.py PROGRAM --build DIR --mpi mpich|openmpi

`forked`: ranks that fork, vfork and spawn while they have files open. `bare`: children by _Fork and
vfork. `started`: what they start uses the files by their names. `beside`: what a program may do to
a file beside MPI-IO. `earlier`: streams and mappings from before. `ended`: calls in MPI_Finalize,
and after it, and an end without. `sessions`: neither MPI_Init nor MPI_Finalize. `left`: a
descriptor that nobody closes. `memory`: a limit of it. `copies`: descriptors that are copies, or
transfer past the page cache. `datatypes`: those that are not predefined, also of large counts.
`concurrent`: threads and children on one descriptor, signal handlers. `sparse`: views of small
pieces far apart, on files whose calls are slow; nvio has to admit them by itself.
Each says how many differences it found from what the kernel would do.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from compare import SERVED, pieces
from launch import Launch, RunError, command_line, left_stores, run, say

TIMEOUT_S = 60
UNSERVED = ("earlier",)
"""Each of its files has a stream or a mapping from before: nvio has to step aside."""


def check_arm(launch: Launch, name: str, folder: Path, nodes: int, *words: str) -> None:
    """Run the program on so many nodes, 0 for plain MPI; raise RunError unless all was right."""
    session = f"{name}-{os.getpid()}-{nodes}"
    nvio = {
        "NVIO_ADMIT": "auto" if launch.slow else "always",
        "NVIO_CAPACITY": "4M",
        "NVIO_STATS": "ranks",
        "NVIO_DISABLE": "off",
        "NVIO_NODES": str(nodes),
        "NVIO_SESSION": session,
    }
    program = [str(launch.build / f"{name}-{launch.mpi}"), str(folder), *words]
    environment = launch.environment(nvio if nodes else None)
    command = launch.command(program) if launch.ranks > 0 else program
    output = run(command, environment, TIMEOUT_S)
    if f"{name}: 0 differences" not in output:
        raise RunError(output)
    served = pieces(output, SERVED) or (name in UNSERVED and "nvio: process" in output)
    if nodes and ("without the cache" in output or not served):
        raise RunError(f"nvio served nothing of this program:\n{output}")
    for call, made, by_mpi in re.findall(r"(MPI_\w+) +(\d+) calls, (\d+) by the MPI", output):
        # Nodes begin to cache a file together: until they have, transfers are the MPI's.
        transfers_alone = launch.slow and nodes == 1 and call.endswith("_at")
        if int(by_mpi) > (1 if transfers_alone else int(made)):
            raise RunError(f"{call} was called {made} times, {by_mpi} of them by the MPI's code")
    if left := left_stores(session):
        raise RunError(f"the job ended and left its store {left[0]}\n{output}")


def check_exit(launch: Launch, folder: Path, nodes: int) -> None:
    """Run the program `ended` so that its ranks end by exit with a file open."""
    # Open MPI's launcher takes that for a failure: there it is a process of its own.
    together = launch.mpi == "mpich"
    lasting = ("-disable-auto-cleanup",) if together else ()
    ranks = replace(launch, ranks=2 if together else 0, extra=lasting)
    check_arm(ranks, "ended", folder, nodes, "exit")
    found = (folder / "exit").read_bytes()
    if found != b"".join(1000 * value for value in (b"a", b"b" if together else b"\0", b"c")):
        raise RunError(f"{len(found)} bytes of a file that was open at an exit are not as written")


def main() -> int:
    """Check all arms; 0 when all were right."""
    parser = command_line(__doc__)
    parser.add_argument(
        "program",
        choices=[
            "bare",
            "forked",
            "started",
            "beside",
            "concurrent",
            "copies",
            "datatypes",
            "earlier",
            "ended",
            "left",
            "memory",
            "sessions",
            "sparse",
        ],
    )
    options = parser.parse_args()
    is_slow = options.program == "sparse"
    # Hydra kills the ranks that are left once one has ended without MPI_Finalize.
    ranks = 1 if options.program == "sessions" else 2
    launch = Launch(options.mpi, options.build.resolve(), ranks, slow=is_slow)
    for nodes, arm in enumerate(("plain MPI", "nvio", "nvio on two nodes")):
        with tempfile.TemporaryDirectory(prefix="nvio-checked-") as folder:
            try:
                check_arm(launch, options.program, Path(folder), nodes)
                if options.program == "ended":
                    check_exit(launch, Path(folder), nodes)
            except RunError as problem:
                say(f"{arm}: {problem}")
                return 1
    say(f"{options.program}: as the kernel would have it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
