#!/usr/bin/env python3
"""Run a Fortran program by each of MPI's three bindings, plain and under nvio, and compare files.

    bindings.py --build DIR --mpi mpich|openmpi

Compiles bindings.F90 with the MPI's own wrapper (mpifort.mpich, mpifort.openmpi). Exit status 1
when a binding's program fails, writes another file, or was not served by nvio.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

BINDINGS = {"mpif.h": "MPIF_H", "use mpi": "MPI", "use mpi_f08": "MPI_F08"}


def compile_binding(mpi: str, macro: str, program: Path) -> None:
    """Build bindings.F90 for one binding."""
    source = Path(__file__).with_name("bindings.F90")
    command = [f"mpifort.{mpi}", "-O1", f"-DBINDING_{macro}", str(source), "-o", str(program)]
    # mpif.h declares no argument types: passing single elements and arrays alike needs this flag.
    done = subprocess.run(
        [*command, "-fallow-argument-mismatch", "-w", f"-J{program.parent}"],
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise RunError(f"does not compile: {' '.join(command)}\n{done.stderr}")


def check_binding(launch: Launch, program: Path, folder: Path) -> int:
    """Both arms; returns how many pieces nvio served. Raises RunError on a difference."""
    contents = []
    served = 0
    for arm in ("plain", "nvio"):
        path = folder / arm
        nvio = None
        if arm == "nvio":
            nvio = {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "4M", "NVIO_STATS": "ranks"}
            nvio["NVIO_SESSION"] = f"bindings-{os.getpid()}"
        output = run(launch.command([str(program), str(path)]), launch.environment(nvio), 120)
        if "bindings: 0 differences" not in output:
            raise RunError(f"{arm}: {output}")
        contents.append(path.read_bytes())
        served = sum(
            int(line.split()[1])
            for line in output.splitlines()
            if line.split()[:1] in (["read_hits"], ["writes_cached"])
        )
        path.unlink()
    if contents[0] != contents[1]:
        raise RunError("the file under nvio is not the file of plain MPI-IO")
    if served == 0:
        raise RunError("nvio served nothing of this program")
    return served


def main() -> int:
    """Check all bindings; 0 when all are as with plain MPI."""
    parser = command_line(__doc__)
    options = parser.parse_args()
    launch = Launch(options.mpi, options.build.resolve(), 4)
    failures = 0
    with tempfile.TemporaryDirectory(prefix="nvio-bindings-") as name:
        for binding, macro in BINDINGS.items():
            program = Path(name) / f"bindings-{macro.lower()}"
            try:
                compile_binding(options.mpi, macro, program)
                served = check_binding(launch, program, Path(name))
                say(f"{binding}: as plain MPI, {served} pieces served from the store")
            except RunError as problem:
                say(f"{binding}: {problem}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
