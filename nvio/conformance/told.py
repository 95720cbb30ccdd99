#!/usr/bin/env python3
"""Run jobs and look at what nvio tells of them: once, to whom it concerns, and where to go next.

    told.py --build DIR --mpi mpich|openmpi

Statistics are one table for the job; names that mean nothing, a store that cannot be made and a
rank that cannot join the others' are said once; a program that nvio cannot reach is named; a store
that is left is listed, as running while its job runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

TIMEOUT_S = 60
RANKS = 4


class Job:
    """One program under `nvio run`, in a folder and with a store of its own."""

    def __init__(self, launch: Launch, folder: Path) -> None:
        self.launch = launch
        self.folder = folder
        self.nvio = str(launch.build / "nvio")

    def program(self, *words: str) -> list[str]:
        """One that writes a file in the job's folder, with these hints."""
        return [str(self.launch.build / f"left-{self.launch.mpi}"), str(self.folder), *words]

    def run(self, *options: str, program: list[str] | None = None, **variables: str) -> str:
        """Run it and return what all of it printed."""
        environment = self.launch.environment(None) | {"NVIO_ADMIT": "always"} | variables
        environment.setdefault("NVIO_CAPACITY", "4M")
        return run(
            [self.nvio, "run", *options, "--", *self.launch.command(program or self.program())],
            environment,
            TIMEOUT_S,
        )

    def listed(self, folder: Path) -> list[dict[str, object]]:
        """What `nvio list` says of the stores in a folder."""
        command = [self.nvio, "list", "--json", str(folder)]
        return json.loads(subprocess.check_output(command, text=True))


def once(output: str, sentence: str) -> None:
    """Raise RunError unless the sentence was said just once."""
    if (times := output.count(sentence)) != 1:
        raise RunError(f"{sentence!r} was said {times} times:\n{output}")


def statistics(job: Job) -> None:
    """One table for the job; the same and each rank's as JSON."""
    told = job.folder / "stats.json"
    output = job.run("--stats", f"--stats-file={told}")
    once(output, f"nvio: {RANKS} processes, 1 hosts\n")
    if "nvio: process" in output:
        raise RunError(f"each rank told for itself, too:\n{output}")
    stats = json.loads(told.read_text())
    cached = [rank["counters"]["writes_cached"] for rank in stats["ranks"]]
    if (
        len(cached) != RANKS
        or sum(cached) == 0
        or sum(cached) != stats["counters"]["writes_cached"]
    ):
        raise RunError(f"the sum of {cached} is not in {stats['counters']}")
    output = job.run("--stats=ranks")
    if output.count("nvio: process") != RANKS:
        raise RunError(f"not every rank told for itself:\n{output}")


def names(job: Job) -> None:
    """What is set under a wrong name or to a wrong value, by whom it was."""
    output = job.run(NVIO_CAPACTIY="4M")
    once(output, "there is no variable NVIO_CAPACTIY (did you mean NVIO_CAPACITY?)")
    config = job.folder / "config"
    config.write_text("clos = durable\n")
    once(job.run(NVIO_CONFIG=str(config)), "line 1: there is no setting")
    hints = ("nvio_clos=durable", "nvio_close=later", "nvio_store=/tmp", "cb_nodes=1")
    output = job.run(program=job.program(*hints))
    once(output, "there is no hint nvio_clos (did you mean nvio_close?); it is ignored")
    once(output, 'hint nvio_close: "later" is no value for close, which takes visible or durable')
    once(output, "nvio_store is no hint: it is decided for the whole process, by NVIO_STORE")
    if "cb_nodes" in output or "left: 0 differences" not in output:
        raise RunError(output)


def without_a_store(job: Job) -> None:
    """The program goes on, and that is said once."""
    output = job.run(NVIO_STORE=str(job.folder / "nowhere"))
    once(output, "goes on without the cache")
    if "left: 0 differences" not in output:
        raise RunError(output)


def apart(job: Job) -> None:
    """A rank that alone cannot join opens no file that the others cache."""
    program = str(job.launch.build / f"apart-{job.launch.mpi}")
    output = job.run(program=[program, str(job.folder / "file")], NVIO_CAPACITY="1G")
    once(output, "other processes of the job cache its files, so this one opens none")
    if "apart: 0 differences" not in output:
        raise RunError(output)


def unreached(job: Job) -> None:
    """A program that nothing can be preloaded into is named."""
    source = job.folder / "static.c"
    program = job.folder / "static"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["cc", "-static", "-o", str(program), str(source)], check=True)
    once(job.run("--stats", program=[str(program)]), f"{program} is linked statically")


def listed(job: Job) -> None:
    """A store is running as long as a process of its job holds its lock."""
    if job.listed(job.folder):
        raise RunError("there are stores where no job made one")
    store = job.folder / f"nvio-{os.geteuid()}-gone"
    store.mkdir(mode=0o700)
    alive = store / "alive"
    with alive.open("w+") as held:
        fcntl.lockf(held, fcntl.LOCK_SH, 1)
        states = [job.listed(job.folder)[0]["state"]]
    states.append(job.listed(job.folder)[0]["state"])
    if states != ["running", "dead"]:
        raise RunError(f"a store was {states[0]} with its job and {states[1]} after it")
    alive.unlink()
    store.rmdir()


def itself(job: Job) -> None:
    """`nvio` is no program of a job, though nvio be preloaded into it as into all of a shell."""
    store = job.folder / f"nvio-{os.geteuid()}-gone"
    store.mkdir(mode=0o700)
    preloaded = job.launch.environment({"NVIO_STORE": str(job.folder)})
    if "/libnvio-" not in run(["cat", "/proc/self/maps"], preloaded, TIMEOUT_S):
        raise RunError("cat does not look at what it opens")
    command = [job.nvio, "run", "--", "sh", "-c", "cat /proc/$PPID/maps"]
    if "/libnvio-" in run(command, preloaded, TIMEOUT_S):
        raise RunError("nvio run takes itself for a program of its job")
    store.rmdir()


CHECKS: list[Callable[[Job], None]] = [
    statistics,
    names,
    without_a_store,
    apart,
    unreached,
    listed,
    itself,
]


def main() -> int:
    """Return 0 when all was told as it should be."""
    options = command_line(__doc__).parse_args()
    launch = Launch(options.mpi, options.build.resolve(), RANKS)
    for check in CHECKS:
        with tempfile.TemporaryDirectory(prefix="nvio-told-") as name:
            try:
                check(Job(launch, Path(name)))
            except RunError as problem:
                say(f"{check.__name__}: {problem}")
                return 1
    say("told once, to whom it concerns, and where to go next")
    return 0


if __name__ == "__main__":
    sys.exit(main())
