"""An MPI experiment by the real slurmctld and slurmd, with tasks that are killed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance_scripts import loaded
from needs import HOME, PROGRAMS, needs_root

pytestmark = [
    needs_root,
    pytest.mark.system,
    pytest.mark.skipif(not shutil.which("mpiexec.mpich"), reason="MPICH is not installed"),
    pytest.mark.skipif(
        not (PROGRAMS / "nvio/nvio").exists(), reason="nvio is not built: make build"
    ),
]


def test_blocks_that_are_killed_are_lost_alone_and_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded("cluster", monkeypatch) as cluster:
        if why := cluster.lacking():
            pytest.skip(why)
    script = HOME / "tests/system/on_slurm.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
