#!/usr/bin/env python3
"""Run a program that something befalls at each of nvio's allocations while it opens a file.

    allocations.py --build DIR --mpi mpich|openmpi

One that is refused memory must not go past what a killed run left, which a later run would write
over what it wrote. One that a signal's handler ends, recorded, must end.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from launch import Launch, RunError, command_line, of_its_own, run, say, stores

TIMEOUT_S = 30
NEWER = b"newer"


@dataclass(frozen=True)
class Case:
    """A file, and a session that opens it."""

    launch: Launch
    folder: Path
    session: str

    @property
    def file(self) -> Path:
        """What is opened."""
        return self.folder / "file"

    def command(self, *words: str) -> list[str]:
        """The command line of the program."""
        return [str(self.launch.build / f"allocated-{self.launch.mpi}"), str(self.file), *words]

    def environment(self) -> dict[str, str]:
        """With a store in which all is kept."""
        settings = {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "4M", "NVIO_NODES": "1"}
        return self.launch.environment({**settings, "NVIO_SESSION": self.session})

    def run(self, *words: str) -> str:
        """What the program printed."""
        return run(self.command(*words), self.environment(), TIMEOUT_S)


def check_refused(case: Case) -> None:
    """Each allocation refused, once, with a killed run's store there."""
    subprocess.run(case.command("killed"), env=case.environment(), check=False, timeout=TIMEOUT_S)
    if len(found := stores(case.session)) != 1:
        raise RunError(f"there should be one store of the killed run: {found}")
    store, kept = found[0], case.folder / "store"
    shutil.copytree(store, kept)
    # Open MPI takes ten times as long to begin.
    for number in itertools.count(step=1 if case.launch.mpi == "mpich" else 7):
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(kept, store)
        os.truncate(case.file, 0)
        told = case.run("refused", str(number))
        written = case.file.read_bytes()
        again = case.run("opened")
        is_newer = case.file.read_bytes().startswith(NEWER)
        if "written" in told and not (written.startswith(NEWER) and is_newer):
            raise RunError(f"allocation {number}: {written!r} was written over:\n{told}\n{again}")
        if "reached" not in told:
            return


def check_ended(case: Case) -> None:
    """The program ended at each allocation while it is recorded."""
    for number in itertools.count():
        traces = case.folder / f"traces{number}"
        traces.mkdir()
        environment = {**case.launch.environment({}), "NVIO_RECORD": str(traces)}
        if "reached" not in run(case.command("exit", str(number)), environment, TIMEOUT_S):
            return


def main() -> int:
    """Check; 0 when all was right."""
    options = command_line(__doc__).parse_args()
    launch = Launch(options.mpi, options.build.resolve(), 0)
    try:
        with of_its_own("allocated") as (session, folder):
            case = Case(launch, folder, session)
            check_ended(case)
            check_refused(case)
    except RunError as problem:
        say(str(problem))
        return 1
    say("what befell the program at an allocation did no harm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
