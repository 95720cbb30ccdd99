"""The batch script: an array job of sbatch, a task a block."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tare.command import OWNER_VARIABLE, python_module

SCRIPT = "job.sh"
_AT_LEAST_S = 600
"""Beyond twice what a block is expected to take: a limit that is too short loses it."""


@dataclass(frozen=True)
class Asked:
    """What each task asks of Slurm."""

    tasks: int
    """Processes that Slurm counts with, all on one node: the ranks of the widest cell."""
    seconds: float
    """Its time limit."""
    partition: str | None = None
    at_once: int = 1
    """Tasks that run at the same time: blocks share a file system, and would disturb each other."""
    options: tuple[str, ...] = ()
    """More words for sbatch, such as `--account=project`."""

    @staticmethod
    def limit(block_seconds: float) -> float:
        """A time limit for a block that is expected to take so many seconds."""
        return _AT_LEAST_S + 2 * block_seconds

    def script(self, folder: Path, blocks: Iterable[int]) -> str:
        """The text of the script.

        Args:
            folder: the result's, by its absolute path.
            blocks: that it measures, unless `sbatch --array` names others.
        """
        options = [
            f"--job-name=tare-{folder.name}",
            f"--comment={folder.resolve()}",  # by which `waiting` finds its tasks
            f"--array={ranges(blocks)}%{self.at_once}",
            "--nodes=1",
            f"--ntasks={self.tasks}",
            "--exclusive",
            f"--time={max(1, math.ceil(self.seconds / 60))}",  # 0 would be none
            f"--output={str(folder / 'logs').replace('%', '%%')}/%a-%A.log",
            *([f"--partition={self.partition}"] if self.partition else []),
            *self.options,
        ]
        run = [*python_module("tare"), "slurm", "--run", str(folder), "--block"]
        asked = "\n".join(f"#SBATCH {shlex.quote(option)}" for option in options)
        return (
            f"#!/bin/sh\n{asked}\n"
            f"# Each task measures one block of {folder.name}, and nothing else of it.\n"
            "# To measure others: sbatch --array=3,5-7 job.sh. Then: tare slurm --gather FOLDER\n\n"
            "# A list a node: what a killed task left there, the next one there undoes. Not below\n"
            "# /tmp, where others could write one.\n"
            'export XDG_STATE_HOME="${XDG_STATE_HOME:-$HOME/.local/state}/nodes/$SLURMD_NODENAME"\n'
            "# Of whoever submitted it: `tare clean` would take this task for a dead run's.\n"
            f"unset {OWNER_VARIABLE}\n"
            "# By exec, so that Tare itself hears the time limit, and cleans up.\n"
            f'exec {shlex.join(run)} "$SLURM_ARRAY_TASK_ID"\n'
        )


def ranges(blocks: Iterable[int]) -> str:
    """Numbers as `sbatch --array` has them, such as `0-3,7`."""
    found: list[list[int]] = []
    for block in sorted(blocks):
        if found and block == found[-1][-1] + 1:
            found[-1][1:] = [block]
        else:
            found.append([block])
    return ",".join("-".join(map(str, ends)) for ends in found)
