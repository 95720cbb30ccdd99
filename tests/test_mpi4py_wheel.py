"""nvio under mpi4py's wheel, which asks at run time what the MPI can do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from needs import HOME, PROGRAMS

LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpiexec.mpich"],
}
NVIO = [str(PROGRAMS / "nvio/nvio"), "run", "--set", "admit=always", "--stats", "--"]


@pytest.mark.parametrize("arm", ["plain", "nvio", "switched off"])
@pytest.mark.parametrize("mpi", LAUNCHERS)
def test_every_call_moves_what_it_should(mpi: str, arm: str, tmp_path: Path) -> None:
    env = {**os.environ, "MPI4PY_MPIABI": mpi}
    if mpi == "mpich":  # the wheel looks for the name that MPICH's own builds have
        (library,) = Path("/usr/lib").glob("*/libmpich.so.12")
        (tmp_path / "libmpi.so.12").symlink_to(library)
        env["LD_LIBRARY_PATH"] = str(tmp_path)
    if arm == "switched off":
        env["NVIO_DISABLE"] = "on"
    program = [sys.executable, str(HOME / "nvio/conformance/mpi4py_calls.py"), tmp_path / "file"]
    done = subprocess.run(
        [*(NVIO if arm != "plain" else []), *LAUNCHERS[mpi], "-n", "2", *program],
        env=env, text=True, capture_output=True, timeout=240, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "14 calls moved what they should" in said
    assert ("nvio: 2 processes" in said) == (arm == "nvio"), said
