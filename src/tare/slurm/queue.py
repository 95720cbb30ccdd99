"""What is asked of Slurm by its command lines: sbatch and squeue."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tare import process
from tare.command import OWNER_VARIABLE, Command, shell_line
from tare.errors import TrialError, UnavailableError

_TIMEOUT_S = 60.0


def submit(script: Path) -> str:
    """Submit a batch script; the number of its job.

    Raises:
        UnavailableError: there is no sbatch, or it does not take the script.
    """
    try:
        said = process.run(_command("sbatch", "--parsable", str(script)), _TIMEOUT_S).stdout
    except TrialError as error:
        raise UnavailableError(
            f"{script} was written, and not submitted: {error.what}",
            f"submit it where sbatch can: {shell_line('sbatch', script)}",
        ) from error
    return said.strip().partition(";")[0]


def waiting(folder: Path) -> frozenset[int] | None:
    """Blocks of a folder whose tasks wait or run; None where no squeue tells.

    Args:
        folder: whose path without links its tasks have as their comment.
    """
    ask = _command("squeue", "--noheader", "--array", "--format=%K %k")
    try:
        told = process.run(ask, _TIMEOUT_S).stdout
    except TrialError:
        return None
    named = str(folder.resolve())
    tasks = (line.partition(" ") for line in told.splitlines())
    return frozenset(
        int(block) for block, _, comment in tasks if block.isdecimal() and comment.strip() == named
    )


def _command(name: str, *arguments: str) -> Command:
    # Slurm is where its site put it, and has its settings (SLURM_CONF) in the user's environment;
    # a job inherits that environment too. With our mark `tare clean` would kill it as a dead run's.
    return Command(
        (shutil.which(name) or name, *arguments),
        env=dict(os.environ),
        within=("env", f"--unset={OWNER_VARIABLE}"),
    )
