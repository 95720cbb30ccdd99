"""Jobs of random programs under cluster.py's Slurm: some end, some are killed; what they leave."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cluster
from cluster import HOME, SHARED, UID, Cluster, wait_until
from killed import allowed_rounds, check, read_progress
from launch import Lines, RunError, say

NODES, RANKS, CELLS = 2, 4, 500
"""Of a job."""
PREFIX = SHARED / "nvio"
PROGRAMS = SHARED / "programs"
"""Where those of tests lie."""
STEPS = 12
PLAIN_TRIES = 10
"""Runs without nvio before a program that goes wrong under nvio is believed to be nvio's."""
ENDS_S = 900.0
SETTINGS = {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "4M"}
BEFORE, AT, EPILOG, RUN = (
    "TERM before the limit",
    "TERM at the limit",
    "Epilog",
    "Epilog after nvio run",
)
ENDINGS = (BEFORE, AT, EPILOG, RUN)
"""What brings a killed job's bytes home, in turns."""


def polite(mpi: str) -> dict[str, str]:
    """What has ranks let others run, wherever they wait: there are more of them than processors."""
    if mpi == "mpich":
        return {"LD_PRELOAD": str(PROGRAMS / "libyield.so")}
    # Open MPI's launcher binds each rank to a processor, and from 5 on refuses where there is none.
    unbound = {"PRTE_MCA_hwloc_default_binding_policy": "none"}
    # Started by srun, plain programs of Open MPI 4.1 crash in MPI_Init now and then (6 of 480 jobs)
    # where Slurm gathers the ranks' data along a tree; along a ring none of 1120 did.
    ring = {"SLURM_PMIX_FENCE": "ring"}
    return {"OMPI_MCA_mpi_yield_when_idle": "1", **unbound, **ring}


def is_served(said: str) -> bool:
    """Whether nvio tells of itself, rank by rank or in one table, that it cached something."""
    cached = r"^ +(?:writes_cached|remote_writes|writes +\d+) +[1-9]"
    return re.search(cached, said, re.M) is not None


def submit(running: Cluster, script: Path, *options: str, **settings: str) -> int:
    """Submit a script as the user; the number of its job."""
    told = running.output_of("sbatch", "--parsable", *options, str(script), **settings)
    return int(told.split(";")[0])


def end_all(running: Cluster) -> None:
    """Wait until no job is there any more, Epilogs included."""

    def are_gone() -> bool:
        return not running.output_of("squeue", "--noheader").strip()

    try:
        wait_until(are_gone, ENDS_S, "the end of all jobs")
    except RunError as problem:
        raise RunError(f"{problem}\n{running.output_of('squeue')}{cluster.logs()}") from None


def see_nothing_left(running: Cluster) -> None:
    """Raise RunError if a job that is gone has left a store, or a manager."""
    for node in running.nodes:
        if left := [path.name for path in node.memory.glob("nvio-*")]:
            raise RunError(f"{node.name} still has {left}; its log:\n{cluster.logs()}")


def state_of(running: Cluster, job: int) -> str:
    """What became of a job, in Slurm's words."""
    told = running.output_of("scontrol", "--oneliner", "show", "job", str(job))
    found = re.search(r"JobState=(\S+)", told)
    assert found is not None
    return found[1]


@dataclass(frozen=True)
class Killed:
    """A job that writes until it is killed."""

    job: int
    seed: int
    ending: str
    folder: Path

    @property
    def file(self) -> Path:
        """What it writes."""
        return self.folder / "file"

    @property
    def progress(self) -> Path:
        """Where its ranks note what they have synced."""
        return self.folder / "progress"

    def has_begun(self) -> bool:
        """Whether every rank has synced some rounds."""
        return min(read_progress(self.progress, RANKS)) >= 3


def submit_killed(running: Cluster, mpi: str, seed: int, limit: int) -> Killed:
    """A job that has so many minutes, and never ends by itself."""
    folder = HOME / f"killed-{seed}"
    folder.mkdir()
    os.chown(folder, UID, UID)
    ending = ENDINGS[seed % len(ENDINGS)]
    words = [PROGRAMS / f"killed-{mpi}", folder / "file", folder / "progress", CELLS, seed]
    script = folder / "job.sh"
    run = f"{PREFIX}/bin/nvio run -- " if ending == RUN else ""
    script.write_text(f"#!/bin/sh\n{run}srun {' '.join(map(str, words))}\n")
    options = ["--signal=TERM@30"] if ending == BEFORE else []
    job = submit(
        running,
        script,
        *(f"--nodes={NODES}", f"--ntasks={RANKS}", "--ntasks-per-node=2", *options),
        *(f"--time={limit}", f"--output={folder}/said"),
        NVIO="0" if run else "1",
        NVIO_RENDEZVOUS=str(HOME),
        NVIO_SIGTERM="on" if ending in {BEFORE, AT} else "off",
        **SETTINGS,
        **polite(mpi),
    )
    return Killed(job, seed, ending, folder)


def has_begun_or_ended(running: Cluster, one: Killed) -> bool:
    """Whether there is nothing to wait for before it is killed."""
    return one.has_begun() or state_of(running, one.job) not in {"PENDING", "RUNNING"}


@dataclass(frozen=True)
class Ended:
    """An array job of random programs that end, one a task."""

    programs: Sequence[int]
    folder: Path

    def seen(self, task: int) -> tuple[Lines, bytes] | None:
        """What a task's ranks wrote down, and its file; None if it did not end well."""
        if not (self.folder / f"{task}.ended").exists():
            return None
        file = self.folder / f"{task}.file"
        return seen_by(self.folder / f"{task}.out"), file.read_bytes() if file.exists() else b""

    def said(self, task: int) -> str:
        """What it printed."""
        path = self.folder / f"{task}.said"
        return path.read_text() if path.exists() else "it never began"


def submit_ended(running: Cluster, mpi: str, programs: Sequence[int], *, nvio: bool) -> Ended:
    """Submit an array job of these programs."""
    folder = HOME / f"ended-{len(list(HOME.glob('ended-*')))}"
    folder.mkdir()
    os.chown(folder, UID, UID)
    task = "$SLURM_ARRAY_TASK_ID"
    words = f"{PROGRAMS}/histories-{mpi} $1 {STEPS} {folder}/{task}.file {folder}/{task}.out"
    script = folder / "job.sh"
    lines = [f"set -- {' '.join(map(str, programs))}", f"shift {task}"]
    lines.append(f"srun {words} && touch {folder}/{task}.ended")
    script.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    submit(
        running,
        script,
        *(f"--array=0-{len(programs) - 1}", f"--nodes={NODES}", f"--ntasks={RANKS}"),
        *("--ntasks-per-node=2", "--time=2", f"--output={folder}/%a.said"),
        NVIO="1" if nvio else "0",
        NVIO_RENDEZVOUS=str(HOME),
        NVIO_STATS="ranks",
        **SETTINGS,
        **polite(mpi),
    )
    return Ended(programs, folder)


def wrong_ended(running: Cluster, mpi: str, plain: Ended, under: Ended) -> tuple[int, list[str]]:
    """How many programs had an oracle, and what was wrong with them under nvio."""
    oracles = 0
    wrong = []
    for task, program in enumerate(plain.programs):
        wanted = plain.seen(task)
        if wanted is None:
            say(f"program {program}: no oracle, plain MPI failed or hung")
            continue
        if is_served(plain.said(task)):
            wrong.append(f"program {program}: nvio served it where nobody asked for it")
        oracles += 1
        said = under.said(task)
        if under.seen(task) == wanted and is_served(said):
            continue
        again = submit_ended(running, mpi, [program] * PLAIN_TRIES, nvio=False)
        end_all(running)
        if all(again.seen(one) == wanted for one in range(PLAIN_TRIES)):
            wrong.append(f"program {program} is not as with plain MPI:\n{said}")
        else:
            say(f"program {program}: no oracle, plain MPI is not the same every time")
            oracles -= 1
    return oracles, wrong


def seen_by(out: Path) -> Lines:
    """What the ranks of a random program wrote down."""
    ranks = range(RANKS)
    return [Path(f"{out}.{rank}").read_text().splitlines() for rank in ranks]


def wrong_killed(one: Killed, state: str) -> str | None:
    """What is wrong with a killed job that ended in this state, if anything."""
    said = (one.folder / "said").read_text()
    if state not in {"TIMEOUT", "FAILED"}:
        return f"job {one.job} ended as {state}: {said}"
    synced = read_progress(one.progress, RANKS)
    if min(synced) == 0:
        return f"job {one.job} was killed before it had begun: {said}"
    try:
        check(one.file.read_bytes(), allowed_rounds(one.seed, RANKS, CELLS, synced))
    except RunError as problem:
        return f"job {one.job} ({one.ending}), {state}: {problem}\n{said}"
    return None


def run_jobs(running: Cluster, mpi: str, ended: int, killed: int, *, forward: bool) -> int:
    """Jobs that end and jobs that are killed, all in Slurm's queue at once; how many went wrong."""
    dying = [submit_killed(running, mpi, seed, 5 if forward else 1) for seed in range(killed)]
    arms = [submit_ended(running, mpi, range(ended), nvio=nvio) for nvio in (False, True)]
    for one in dying if forward else []:
        wait_until(partial(has_begun_or_ended, running, one), ENDS_S, f"job {one.job} has begun")
        if not one.has_begun():
            continue  # it ended by itself: told below, with what it said
        # Slurm looks every 30 s: by then it is time for the signal, or for the end.
        seconds = 45 if one.ending == BEFORE else 1
        cluster.call("scontrol", "update", f"JobId={one.job}", f"EndTime=now+{seconds}")
    end_all(running)
    see_nothing_left(running)
    states = [state_of(running, one.job) for one in dying]
    oracles, wrong = wrong_ended(running, mpi, *arms)
    wrong += [problem for problem in map(wrong_killed, dying, states) if problem is not None]
    for problem in wrong:
        say(problem)
    at_limit = states.count("TIMEOUT")
    killed_so = f"{killed} were killed ({at_limit} at their limit)"
    say(f"{oracles} jobs ended, {killed_so}, {len(wrong)} files wrong")
    return len(wrong)
