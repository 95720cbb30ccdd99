#!/usr/bin/env python3
"""Run MPI programs under a real Slurm of four machines, on nvio as its guide sets it up there.

    slurm.py --build DIR --mpi mpich|openmpi     (as root, and with Slurm; else exit status 77)
    slurm.py --build DIR --mpi mpich --only-jobs --ended 15 --killed 10 --limits slurm

What runs in cluster.py's Slurm: random programs by srun and by the MPI's own launcher in an
allocation, plain and under nvio (as compare.py); the guide's own lines; an array job whose tasks
end; jobs that are killed. Of these one of several things brings the bytes home: SIGTERM before the
time limit (--signal), SIGTERM at the limit (KillWait), or the Epilog alone (NVIO_SIGTERM=off).
A file must be as plain MPI leaves it or, of a killed job, as its last sync did; no store may be
left. With `--limits forward` Slurm is told to end jobs early, since its limits are whole minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cluster
from batch import (
    PREFIX,
    PROGRAMS,
    SETTINGS,
    STEPS,
    end_all,
    is_served,
    polite,
    run_jobs,
    see_nothing_left,
    seen_by,
)
from cluster import HOME, SHARED, Cluster
from compare import REMOTE, SERVED, NoOracleError, both_arms, first_difference, history, pieces
from launch import Launch, Lines, RunError, command_line, leave_on_sigterm, left_stores, say

SKIPPED = 77
GUIDE = Path(__file__).parents[2] / "docs/guides/slurm.md"
NODES, RANKS = 4, 8
SEEDS = range(20, 26)
"""Of programs on all nodes; Open MPI 4.1 hangs in some of them now and then."""
PMI = {"mpich": "pmi2", "openmpi": "pmix"}
LAUNCHER = {
    "mpich": ("mpiexec.hydra",),
    "openmpi": ("mpirun.openmpi", "--allow-run-as-root"),
}
SITE = "MpiDefault={}\nKillWait=10\n"
APP = """\
#!/bin/sh
exec {programs}/histories-{mpi} 7 {steps} $HOME/$SLURM_JOB_ID.file $HOME/$SLURM_JOB_ID.out
"""
"""What the guide's jobs run: one random program, whatever its words."""


@dataclass(frozen=True)
class OnSlurm(Launch):
    """How programs are started on all nodes, from the login."""

    how: tuple[str, ...] = ()

    def command(self, program: list[str]) -> list[str]:
        """The command line that starts `program` on all ranks."""
        return [*self.how, *program]

    def environment(self, nvio: dict[str, str] | None) -> dict[str, str]:
        """The environment of a run."""
        return polite(self.mpi) | super().environment(nvio)


def launches(mpi: str) -> Iterator[OnSlurm]:
    """By srun, and by the MPI's own launcher in an allocation."""
    size = (f"--nodes={NODES}", f"--ntasks={RANKS}", f"--ntasks-per-node={RANKS // NODES}")
    yield OnSlurm(mpi, PROGRAMS, RANKS, (), ("srun", *size, f"--mpi={PMI[mpi]}"))
    yield OnSlurm(mpi, PROGRAMS, RANKS, (), ("salloc", "--quiet", *size, *LAUNCHER[mpi]))


def blocks() -> list[str]:
    """The guide's fenced blocks, but for where nvio is: root's, users' jobs, lines of scripts."""
    found = re.findall(r"^```(?:sh)?\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [block.replace("/opt/nvio", str(PREFIX)) for block in found]


def install(build: Path, mpi: str) -> None:
    """Install nvio where all nodes see it, as the guide says, and the programs of tests."""
    cluster.call("cmake", "--install", str(build), "--prefix", str(PREFIX))
    cluster.call("sh", "-euc", blocks()[0])
    PROGRAMS.mkdir()
    libraries = [path.name for path in build.glob("lib*.so")]
    for name in (f"histories-{mpi}", f"killed-{mpi}", "nvio-manager", *libraries):
        shutil.copy(build / name, PROGRAMS)
    cluster.call("chmod", "-R", "a+rX", str(SHARED))


def same_as_plain(running: Cluster, mpi: str) -> None:
    """A random program on all nodes by each launcher: the same bytes as without nvio."""
    meeting = SHARED / "meeting"
    meeting.mkdir()
    nvio = {"NVIO_RENDEZVOUS": str(meeting), "NVIO_ADMIT": "always", "NVIO_CAPACITY": "2M"}
    nvio["NVIO_STATS"] = "ranks"
    for launch in launches(mpi):
        how = launch.how[0]
        plain, cached, report = some_program(launch, nvio)
        if difference := first_difference(plain, cached):
            raise RunError(f"{how}: {difference}")
        if not pieces(report, SERVED) or not pieces(report, REMOTE):
            raise RunError(f"{how}: no node served another one:\n{report}")
        say(f"{how}: as plain MPI, {pieces(report, REMOTE)} pieces served by another node")
    if left := left_stores("", [node.memory for node in running.nodes]):
        raise RunError(f"the jobs ended and left {left[0]}")
    if met := list(meeting.iterdir()):
        raise RunError(f"the jobs ended and left {met[0]}")


def some_program(launch: OnSlurm, nvio: dict[str, str]) -> tuple[Lines, Lines, str]:
    """What the first program observed for which plain MPI is an oracle: without and under nvio."""
    for seed in SEEDS:
        arm = partial(history, launch, seed, STEPS, SHARED, timeout=60)
        try:
            return both_arms(arm, nvio)
        except NoOracleError as reason:
            say(f"program {seed}: no oracle, plain MPI {reason}")
    raise RunError("plain MPI ran none of the programs well")


def as_the_guide_says(running: Cluster, mpi: str) -> None:
    """The guide's lines for users, and the installed job.sh: each as a job without nvio."""
    _, jobs, bodies = blocks()
    app, job = HOME / "app", HOME / "job.sh"
    app.write_text(APP.format(programs=PROGRAMS, mpi=mpi, steps=STEPS))
    app.chmod(0o755)
    job.write_text("#!/bin/sh\n#SBATCH --ntasks=4\nsrun ./app\n")
    (HOME / "bin").mkdir()
    mpirun = HOME / "bin/mpirun"  # Debian's may be either MPI's
    mpirun.write_text(f'#!/bin/sh\nexec {LAUNCHER[mpi][0]} "$@"\n')
    mpirun.chmod(0o755)
    lines = {"plain": "sbatch --nodes=1 job.sh", **{line: line for line in jobs.splitlines()}}
    for count, line in enumerate(bodies.splitlines()):
        script = HOME / f"body{count}.sh"
        script.write_text(f"#!/bin/sh\n{line}\n")
        nodes = NODES if "NVIO_RENDEZVOUS" in line else 1
        lines[line] = f"sbatch --nodes={nodes} --ntasks=4 {script}"
    lines["job.sh"] = f"sbatch --ntasks=4 {PREFIX}/share/nvio/slurm/job.sh"
    path = f"{HOME}/bin:{PREFIX}/bin:{os.environ['PATH']}"
    settings = {"PATH": path, "NVIO_PREFIX": str(PREFIX), "NVIO_STATS": "ranks"}
    settings |= SETTINGS | polite(mpi)
    numbers = {
        name: running.output_of("sh", "-c", line, **settings).split()[-1]
        for name, line in lines.items()
    }
    end_all(running)
    see_nothing_left(running)
    plain = seen_by(HOME / f"{numbers['plain']}.out")
    for name, number in numbers.items():
        said = (HOME / f"slurm-{number}.out").read_text()
        if is_served(said) != (name != "plain"):
            raise RunError(f"{name}: did nvio serve it?\n{said}")
        if seen_by(HOME / f"{number}.out") != plain:
            raise RunError(f"{name}: observed something else than with plain MPI\n{said}")


def main() -> int:
    """Make the cluster, and run all in it; 0 when all was as it should be."""
    parser = command_line(__doc__)
    parser.add_argument("--ended", type=int, default=2, help="jobs that end")
    parser.add_argument("--killed", type=int, default=4, help="jobs that are killed")
    parser.add_argument("--limits", choices=["forward", "slurm"], default="forward")
    parser.add_argument("--only-jobs", action="store_true", help="of all parts the last one")
    parser.add_argument("--data", type=Path, help="folder on the file system to try")
    options = parser.parse_args()
    leave_on_sigterm()
    if why := cluster.lacking():
        say(f"not run: {why}")
        return SKIPPED
    if not cluster.is_inside():
        return cluster.run_inside(sys.argv)
    with tempfile.TemporaryDirectory(prefix="nvio-slurm-", dir=options.data) as name:
        return try_all(options, Path(name))


def try_all(options: argparse.Namespace, folder: Path) -> int:
    """Run all in a cluster whose files lie in the folder."""
    folder.chmod(0o755)
    try:
        with cluster.cluster(NODES, folder, SITE.format(PMI[options.mpi])) as running:
            install(options.build.resolve(), options.mpi)
            if not options.only_jobs:
                same_as_plain(running, options.mpi)
                as_the_guide_says(running, options.mpi)
            forward = options.limits == "forward"
            wrong = run_jobs(running, options.mpi, options.ended, options.killed, forward=forward)
    except RunError as problem:
        say(str(problem))
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
