#!/usr/bin/env python3
"""Time small MPI-IO workloads with plain MPI and under nvio, in turns, on a folder of your choice.

    grid.py --build DIR --mpi mpich|openmpi --folder /lustre/me/tmp [--repeat 3] [--mib 128]

Open and close are counted. Caches are dropped before each read where that is allowed (root). For
each cell: the seconds of both arms (median and all), and plain over nvio. Both arms get the same
progress settings (libyield.so for MPICH).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

# operation, order, bytes of a piece, how often the file's bytes are touched
CELLS = [
    ("write", "random", 4096, 0.1),
    ("write", "random", 4096, 1.0),
    ("write", "strided", 4096, 1.0),
    ("write", "sequential", 1 << 20, 1.0),
    ("read", "random", 4096, 0.1),
    ("read", "random", 4096, 1.0),
    ("read", "random", 4096, 4.0),
    ("read", "sequential", 4096, 1.0),
    ("read", "sequential", 1 << 20, 1.0),
]


def drop_caches() -> bool:
    """Empty the kernel's page cache; False where that is not allowed."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True


def make_file(path: Path, size: int) -> None:
    """A file of `size` random bytes."""
    with path.open("wb") as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))


def seconds(
    launch: Launch,
    path: Path,
    size: int,
    cell: tuple[str, str, int, float],
    nvio: dict[str, str] | None,
) -> float:
    """Wall-clock seconds from open to the end of close, of the slowest rank."""
    operation, order, piece, touches = cell
    if operation == "write":
        path.unlink(missing_ok=True)
    drop_caches()
    program = [str(launch.build / f"grid-{launch.mpi}"), str(path), operation, order]
    output = run(
        launch.command([*program, str(piece), str(size), str(touches)]),
        launch.environment(nvio),
        timeout=600,
    )
    (line,) = [text for text in output.splitlines() if text.startswith("{")]
    return float(json.loads(line)["total"])


def measure(launch: Launch, path: Path, size: int, repeat: int, nvio: dict[str, str]) -> None:
    """All cells, both arms in turns; one line a cell."""
    for cell in CELLS:
        operation, order, piece, touches = cell
        if operation == "read" and (not path.exists() or path.stat().st_size != size):
            make_file(path, size)
        plain, cached = [], []
        for _ in range(repeat):
            plain.append(seconds(launch, path, size, cell, None))
            cached.append(seconds(launch, path, size, cell, nvio))
        ratio = statistics.median(plain) / statistics.median(cached)
        arms = "  ".join(
            f"{name} {statistics.median(times):8.3f} s ({', '.join(f'{t:.3f}' for t in times)})"
            for name, times in (("plain", plain), ("nvio", cached))
        )
        say(f"{operation:5} {order:10} {piece:8} B  x{touches:<4}  {arms}  plain/nvio {ratio:.2f}")


def main() -> int:
    """Measure; 0 when every run ended well."""
    parser = command_line(__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the file is made")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--mib", type=int, default=128, help="size of the file (default 128)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    launch = Launch(options.mpi, options.build.resolve(), options.ranks)
    path = options.folder / f"nvio-grid-{os.getpid()}"
    if not drop_caches():
        say("page caches cannot be dropped (not root): reads are of warm files")
    try:
        settings = dict(pair.split("=", 1) for pair in options.set)
        measure(launch, path, options.mib << 20, options.repeat, settings)
    except RunError as failure:
        say(str(failure))
        return 1
    finally:
        path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
