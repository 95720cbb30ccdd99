#!/usr/bin/env python3
"""Install nvio into a scratch folder and use it from there as a Slurm job would.

    installed.py --build DIR --mpi mpich|openmpi

`cmake --install`, then: pkg-config tells where the library is; task-prolog's lines are a task's
environment; all ranks of a job under a faked Slurm environment are killed; epilog writes back what
the job had synced, and leaves no store. With `nvio run` around such tasks, it has done so itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from killed import allowed_rounds, check, ranks_of, read_progress, run_until
from launch import Launch, RunError, command_line, say

JOB = "4711"
SETTINGS = {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "4M", "NVIO_SIGTERM": "off"}
"""The launcher terminates the ranks that are left: these must not write all back and clean up."""
TASK = 'eval "$("$0")"; exec "$@"'
"""A shell's words for what Slurm does: the first is task-prolog, the others are the task."""
CELLS = 500
SEED = 7


def output_of(command: list[str], environment: dict[str, str]) -> str:
    """What a command prints; raises RunError with its complaint when it fails."""
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise RunError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


@dataclass(frozen=True)
class SlurmJob:
    """A job of a faked Slurm on the installed nvio."""

    prefix: Path
    store: Path

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm tells a task and its epilog."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NVIO_", "SLURM_"))}
        slurm = {"SLURM_JOB_ID": JOB, "SLURM_STEP_ID": "0", "SLURM_JOB_UID": str(os.geteuid())}
        site = {"NVIO_PREFIX": str(self.prefix), "NVIO_SITE_STORE": str(self.store)}
        return kept | slurm | site

    def script(self, name: str) -> str:
        """The path of an installed Slurm script."""
        return str(self.prefix / "share" / "nvio" / "slurm" / name)

    def task_environment(self) -> dict[str, str]:
        """A task's environment after task-prolog, for a job that asks for nvio."""
        environment = self.environment | {"NVIO": "1"}
        for line in output_of([self.script("task-prolog")], environment).splitlines():
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").partition("=")
                environment[name] = value
        if "LD_PRELOAD" not in environment:
            raise RunError("task-prolog did not find the installed library")
        return environment


def check_pkg_config(prefix: Path) -> None:
    """pkg-config names the library that is really there."""
    (folder,) = prefix.glob("**/pkgconfig")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder)}
    library = output_of(["pkg-config", "--variable=preload", "nvio"], environment).strip()
    if not Path(library).is_file():
        raise RunError(f"pkg-config says {library}, which is not there")


def kill_job(launch: Launch, folder: Path, environment: dict[str, str], *around: str) -> None:
    """Run a job, with these words before its launcher's, until all its ranks are killed."""
    program = str((launch.build / f"killed-{launch.mpi}").resolve())
    progress = folder / "progress"
    words = [program, str(folder / "file"), str(progress), str(CELLS), str(SEED)]
    process = subprocess.Popen(
        [*around, *launch.command(words)],
        env=environment | SETTINGS,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run_until(process, progress, launch.ranks, 3)
        for pid in ranks_of(process, program):
            with suppress(ProcessLookupError):  # the launcher ends the others after the first
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check_file(launch: Launch, folder: Path) -> None:
    """Every cell of the killed job's file is as its rank had synced it."""
    synced = read_progress(folder / "progress", launch.ranks)
    check((folder / "file").read_bytes(), allowed_rounds(SEED, launch.ranks, CELLS, synced))


def check_epilog(launch: Launch, job: SlurmJob, folder: Path) -> None:
    """A job whose ranks are all killed, its epilog, and its file."""
    kill_job(launch, folder, job.task_environment())
    if not list(job.store.glob(f"nvio-*-slurm-{JOB}.*")):
        raise RunError("the job made no store of its Slurm job's name: was nvio there?")
    said = output_of([job.script("epilog")], job.environment)
    if list(job.store.iterdir()):
        raise RunError(f"the epilog left the store: {said}")
    check_file(launch, folder)


def check_run(launch: Launch, job: SlurmJob, folder: Path) -> None:
    """`nvio run` finds the store of tasks to which the site would give a folder of its own."""
    told = folder / "stats.json"
    run = [str(job.prefix / "bin" / "nvio"), "run", "--stats-file", str(told), "--"]
    task = ["sh", "-c", TASK, job.script("task-prolog")]
    kill_job(launch, folder, job.environment | {"NVIO": "1"}, *run, *task)
    if json.loads(told.read_text())["processes"] != launch.ranks:
        raise RunError(f"nvio served not all ranks under nvio run: {told.read_text()}")
    if left := list(job.store.iterdir()):
        raise RunError(f"nvio run did not see {left[0]}")
    check_file(launch, folder)


def main() -> int:
    """Install, run, kill, clean up; 0 when all was as it should be."""
    parser = command_line(__doc__)
    options = parser.parse_args()
    launch = Launch(options.mpi, options.build.resolve(), 4)
    with tempfile.TemporaryDirectory(prefix="nvio-installed-") as name:
        folder = Path(name)
        prefix, store = folder / "prefix", folder / "store"
        store.mkdir()
        try:
            command = ["cmake", "--install", str(options.build), "--prefix", str(prefix)]
            output_of(command, dict(os.environ))
            check_pkg_config(prefix)
            for one in (check_epilog, check_run):
                own = folder / one.__name__
                own.mkdir()
                one(launch, SlurmJob(prefix, store), own)
        except RunError as problem:
            say(str(problem))
            return 1
    say("installed nvio served a Slurm job; its epilog wrote back what was synced")
    return 0


if __name__ == "__main__":
    sys.exit(main())
