#!/usr/bin/env python3
"""Run a program under nvio whose file system refuses its bytes at close, and recover them.

    refused.py --build DIR --mpi mpich|openmpi

The close must tell, by its result and the file's error handler; what could not be written must stay
in the store, and `nvio recover --latest` must bring it to the file. Where the program opens the
file again, its next close must, and leave no store from which recovery would write older bytes over
newer ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from launch import Launch, RunError, command_line, left_stores, of_its_own, run, say, stores

TIMEOUT_S = 60
RANKS = 2


def refused(launch: Launch, session: str, path: Path, *words: str) -> str:
    """Run the program and return what it printed; raise RunError unless it was told."""
    nvio = {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "4M", "NVIO_SESSION": session}
    program = [str(launch.build / f"refused-{launch.mpi}"), str(path), *words]
    output = run(launch.command(program), launch.environment(nvio), TIMEOUT_S)
    if "refused: told" not in output:
        raise RunError(output)
    return output


def check_recovered(launch: Launch, session: str, path: Path) -> None:
    """Run, recover, and look at the file; raise RunError unless all was right."""
    refused(launch, session, path)
    if len(left := stores(session)) != 1:
        raise RunError(f"there should be one store of what could not be written: {left}")
    nvio = str(launch.build / "nvio")
    listed = subprocess.check_output([nvio, "list", "--json", str(left[0].parent)], text=True)
    of_ours = [store for store in json.loads(listed) if store["path"] == str(left[0])]
    expected = {"state": "dead", "unwritten_bytes": RANKS * 4096, "job": session}
    if len(of_ours) != 1 or not expected.items() <= of_ours[0].items():
        raise RunError(f"the store is listed as {of_ours}, not as {expected}")
    recover = [nvio, "recover", "--latest", str(left[0])]
    done = subprocess.run(recover, text=True, capture_output=True, check=False)
    content = path.read_bytes()
    lost = [rank for rank in range(RANKS) if content[(rank + 1) << 20 :][:4096] != b"x" * 4096]
    if done.returncode != 0 or lost:
        raise RunError(f"bytes of ranks {lost} are not there: {done.stdout}{done.stderr}")


def check_opened_again(launch: Launch, session: str, path: Path) -> None:
    """Run with the file opened and closed again; raise RunError unless all was right."""
    output = refused(launch, session, path, "again")
    if left := left_stores(session):
        raise RunError(f"the job wrote its file at last and left its store {left[0]}\n{output}")
    content = path.read_bytes()
    want = b"y" * 2048 + b"x" * 2048
    wrong = [rank for rank in range(RANKS) if content[(rank + 1) << 20 :][:4096] != want]
    if wrong:
        raise RunError(f"bytes of ranks {wrong} are not those written last\n{output}")


def main() -> int:
    """Check; 0 when all was right."""
    options = command_line(__doc__).parse_args()
    launch = Launch(options.mpi, options.build.resolve(), RANKS)
    try:
        with of_its_own("refused") as (session, folder):
            check_recovered(launch, session, folder / "file")
            check_opened_again(launch, f"{session}-again", folder / "again")
    except RunError as problem:
        say(str(problem))
        return 1
    say("a close told what could not be written, and recovery or the next close wrote it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
