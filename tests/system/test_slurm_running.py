"""An MPI experiment by the real slurmctld and slurmd, with tasks that are killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from needs import HOME, needs_root

pytestmark = [needs_root, pytest.mark.system]


def test_blocks_that_are_killed_are_lost_alone_and_measured_again(tmp_path: Path) -> None:
    script = HOME / "tests/system/on_slurm.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
