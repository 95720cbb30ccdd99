"""What an MPI job can be asked for: factors and settings."""

from __future__ import annotations

import math

from tare import filesystems
from tare.errors import UsageError
from tare.levels import Factor, Levels, Settings, among, choice
from tare.workloads import rows
from tare.workloads.mpi_io_job import PLAIN, Cache
from tare.workloads.mpi_io_programs import PROGRAMS


def _parse_touches(written: object) -> float:
    try:
        found = float(str(written))
    except ValueError:
        found = math.nan
    if not 0 < found <= 1000:
        raise UsageError(f"{written!r} is not a number above 0, up to 1000, such as 0.1 or 4")
    return found


class MpiLevels(Levels):
    """The factors of `mpi-io`."""

    program = among(PROGRAMS, "walks", "What runs: see nvio/programs and docs/walks.md.")
    cache = Factor(
        Cache.parse,
        str,
        PLAIN,
        "plain: MPI-IO as it is. nvio: under it, with any of its settings behind: 'nvio"
        " prefetch=whole'.",
        examples=(PLAIN, "nvio"),
    )
    filesystem = Factor(
        filesystems.level,
        str,
        "glusterfs",
        f"Beneath: {', '.join(filesystems.NAMES)}, or 'folder /path' on one that is there.",
        examples=(*filesystems.NAMES, "folder /lustre/me"),
    )
    ranks = rows.count("4", "MPI processes.", most=4096)
    mpi = choice(("mpich", "openmpi"), "mpich", "Which MPI, where a program is built for both.")
    link = rows.LINK
    vertices = rows.count("2000", "walks: side of the matrix.", least=2, most=1_000_000)
    power = rows.count("2", "walks: which power.", least=2, most=1000)
    pattern = choice(
        ("rows", "views", "block", "collective", "shift"),
        "rows",
        "walks: how blocks are read and written.",
    )
    handover = choice(("sync", "reopen"), "sync", "walks: how others come to see a power.")
    result = choice(("kept", "discarded"), "kept", "walks: discarded is deleted on close.")
    operation = choice(("write", "read"), "write", "What is done with the pieces.")
    order = choice(("random", "strided", "sequential"), "random", "grid: which piece comes next.")
    piece = rows.size("4 KiB", "Bytes of one call.", "4 KiB", "1 MiB", most=1 << 30)
    size = rows.size("32 MiB", "Bytes of the file, or of all files.", "32 MiB", "1 GiB")
    touches = Factor(
        _parse_touches,
        lambda times: f"{times:g}",
        "1",
        "grid: bytes touched, in units of the size.",
        examples=("0.1", "1", "4"),
        unit="1",
    )
    files = choice(("shared", "each"), "shared", "grid: one file, or one a rank.")
    close = choice(
        ("visible", "durable"),
        "visible",
        "What the end guarantees. durable: plain MPI-IO syncs before it closes, nvio makes close"
        " durable.",
    )

    @property
    def built_for(self) -> str:
        """Which MPI it is run by: the program's only one, where there is no choice."""
        return self.mpi if "mpi" in self else min(self.program.mpis)


class MpiSettings(Settings):
    """What its sessions share."""

    timeout = rows.duration("10 min", "A job that takes longer has failed.", "10 min", least=1)
