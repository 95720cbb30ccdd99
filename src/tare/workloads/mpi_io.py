"""MPI programs and their files (paper C): what does node-local memory under MPI-IO win?

A trial is one job on an empty file system: the input is brought, the file system is mounted anew
with nothing cached, the job runs with or without nvio, and its own clock counts from before open to
after close. What it wrote is compared with what the other arms wrote. The file system is made once
a block, for all its trials.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import filesystems, packages, units
from tare.errors import TareError, TrialError, UsageError
from tare.filesystems.environment import InsideFileSystem, OnFileSystem, empty
from tare.placement import Placement
from tare.workloads import Factor, Measurement, Room, Statistic, Watching, choice, rows, unwatched
from tare.workloads.mpi_io_job import LAUNCHERS, PLAIN, Cache, Job, run
from tare.workloads.mpi_io_programs import PROGRAMS, Place

if TYPE_CHECKING:
    from tare.cell import Cell
    from tare.environments import Environment, Inside, Site

__all__ = ["WORKLOAD", "MpiIo"]

_CHUNK = 1 << 20


def _parse_touches(written: object) -> float:
    try:
        found = float(str(written))
    except ValueError:
        found = math.nan
    if not 0 < found <= 1000:
        raise UsageError(f"{written!r} is not a number above 0, up to 1000, such as 0.1 or 4")
    return found


_FACTORS = (
    choice("program", tuple(PROGRAMS), "walks", "What runs: see nvio/programs and docs/walks.md."),
    Factor(
        "cache",
        Cache.parse,
        str,
        PLAIN,
        "plain: MPI-IO as it is. nvio: under it, with any of its settings behind: 'nvio"
        " prefetch=whole'.",
        examples=(PLAIN, "nvio"),
    ),
    Factor(
        "filesystem",
        filesystems.level,
        str,
        "glusterfs",
        f"Beneath: {', '.join(filesystems.NAMES)}, or 'folder /path' on one that is there.",
        examples=(*filesystems.NAMES, "folder /lustre/me"),
    ),
    rows.count("ranks", "4", "MPI processes.", most=4096),
    choice("mpi", ("mpich", "openmpi"), "mpich", "Which MPI, where a program is built for both."),
    rows.LINK,
    rows.count("vertices", "2000", "walks: side of the matrix.", least=2, most=1_000_000),
    rows.count("power", "2", "walks: which power.", least=2, most=1000),
    choice(
        "pattern",
        ("rows", "views", "block", "collective", "shift"),
        "rows",
        "walks: how blocks are read and written.",
    ),
    choice("handover", ("sync", "reopen"), "sync", "walks: how others come to see a power."),
    choice("result", ("kept", "discarded"), "kept", "walks: discarded is deleted on close."),
    choice("operation", ("write", "read"), "write", "What is done with the pieces."),
    choice("order", ("random", "strided", "sequential"), "random", "grid: which piece comes next."),
    rows.size("piece", "4 KiB", "Bytes of one call.", "4 KiB", "1 MiB", most=1 << 30),
    rows.size("size", "32 MiB", "Bytes of the file, or of all files.", "32 MiB", "1 GiB"),
    Factor(
        "touches",
        _parse_touches,
        lambda times: f"{times:g}",
        "1",
        "grid: bytes touched, in units of the size.",
        examples=("0.1", "1", "4"),
    ),
    choice("files", ("shared", "each"), "shared", "grid: one file, or one a rank."),
    choice(
        "close",
        ("visible", "durable"),
        "visible",
        "What the end guarantees. durable: plain MPI-IO syncs before it closes, nvio makes close"
        " durable.",
    ),
)
_SETTINGS = (
    rows.duration("timeout", "10 min", "A job that takes longer has failed.", "10 min", least=1),
)

# For the plan's estimate only: the progress bar corrects itself by what it sees.
_TRIAL_S = 1.5
_BYTES_S = 150e6
_CALLS_S = 8000.0
_PIECES = {"rows": 0.5, "views": 64, "collective": 64, "block": 64, "shift": 64}
"""walks: bytes of a call, in sides of the matrix."""


class MpiIo(rows.InEnvironment):
    """The workload `mpi-io`."""

    name = "mpi-io"
    factors: Mapping[str, Factor] = {factor.name: factor for factor in _FACTORS}
    session_settings: Mapping[str, Factor] = {factor.name: factor for factor in _SETTINGS}
    plot_factors = frozenset({"link", "filesystem"})
    programs: tuple[str, ...] = ("nvio/*", "walks/*")
    response_times = False
    statistics: Mapping[str, Statistic] = {
        "time": Statistic("from before open to after close, slowest rank"),
        "job": Statistic("whole job, from its launch until everything has ended"),
        "open": Statistic("opening"),
        "read": Statistic("reading; walks only"),
        "write": Statistic("writing; walks only"),
        "close": Statistic("syncing and closing"),
        "io": Statistic("all I/O calls"),
        "compute": Statistic("multiplying; walks only"),
        "p50": Statistic("median of single calls"),
        "p99": Statistic("99th percentile of single calls"),
        "rate": Statistic("calls a second, open and close included", "1/s", "higher"),
        "bandwidth": Statistic("bytes a second, open and close included", "B/s", "higher"),
    }

    def subject(self, cell: Cell) -> str:
        """Name the program and what it does."""
        return PROGRAMS[cell.levels["program"]].subject(cell.levels)

    def applicable(self, levels: Mapping[str, str]) -> frozenset[str]:
        """Leave out what the program does not know."""
        program = PROGRAMS[levels["program"]]
        names = {"program", "cache", "filesystem", "ranks", "link"} | program.factors
        if levels["mpi"] in program.mpis and len(program.mpis) > 1:
            names.add("mpi")
        return frozenset(names)

    def refused(
        self,
        levels: Mapping[str, str],
        asked: Mapping[str, Sequence[str]],  # noqa: ARG002
    ) -> tuple[str, str] | None:
        """A grid in which a rank's share is less than a piece: nobody would read or write."""
        share = units.size(levels["size"]) // int(levels["ranks"])
        if levels["program"] == "grid" and units.size(levels["piece"]) > share:
            return (
                "piece",
                f"{levels['piece']!r} is more than one of {levels['ranks']} ranks has of"
                f" {levels['size']}: give smaller pieces, or exclude it there",
            )
        return None

    def lacking(self, levels: Mapping[str, str], programs: Path) -> str | None:
        """The launcher, the program, and what nvio says of its settings."""
        program = PROGRAMS[levels["program"]]
        mpi = levels.get("mpi", min(program.mpis))
        launcher = LAUNCHERS[mpi][0]
        return (
            packages.lacking({launcher: packages.PROGRAMS["mpi-io"][launcher]})
            or rows.unbuilt(*(programs / path for path in program.built(mpi)))
            or Cache.parse(levels["cache"]).lacking(programs)
        )

    def room(self, cell: Cell, session: Mapping[str, Any]) -> Room:  # noqa: ARG002
        """What is read and what is written, and a copy of the input."""
        levels = cell.levels
        if "size" in levels:
            return Room(scratch_bytes=2 * units.size(levels["size"]))
        return Room(scratch_bytes=3 * int(levels["vertices"]) ** 2)

    def environment(self, plot: Mapping[str, str]) -> Environment:
        """The file system that a plot names."""
        return OnFileSystem(plot["filesystem"])

    def setup_seconds(self, plot: Mapping[str, str]) -> float:
        """Expected duration of setting up both hosts and the file system."""
        return 4.0 if plot["filesystem"] == "glusterfs" else 1.0

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:  # noqa: ARG002
        """Expected duration of a trial: bytes, and calls where nothing caches them."""
        levels = cell.levels
        touched = PROGRAMS[levels["program"]].bytes_touched(levels)
        if "piece" in levels:
            piece = float(units.size(levels["piece"]))
        else:
            piece = float(levels["vertices"]) * _PIECES[levels["pattern"]]
        slow = levels["cache"] == PLAIN and levels["filesystem"] != "tmpfs"
        return _TRIAL_S + touched / _BYTES_S + (touched / piece / _CALLS_S if slow else 0.0)

    def placement(self, plot: Mapping[str, str]) -> Placement:  # noqa: ARG002
        """Ranks run where the kernel puts them."""
        return Placement()

    def measure(
        self,
        cell: Cell,
        session: Mapping[str, Any],
        site: Site,
        inside: Inside,
        samples: Path,  # noqa: ARG002
        watching: Watching = unwatched,  # noqa: ARG002
    ) -> Measurement:
        """Run one job on the file system, which is empty but for its input.

        Raises:
            TrialError: the file system cannot be mounted, the job failed, nvio did not serve it, or
                what it wrote and what another arm wrote differ.
        """
        if not isinstance(inside, InsideFileSystem):
            raise TareError(f"an MPI job needs a file system, not {type(inside).__name__}")
        levels = cell.levels
        program = PROGRAMS[levels["program"]]
        mpi = levels.get("mpi", min(program.mpis))
        cache, asked = _closing({**levels, "mpi": mpi})
        place = Place(site.programs, site.scratch / "inputs")
        place.inputs.mkdir(exist_ok=True)
        mounted = inside.mounted
        with mounted.fresh() as folder:
            empty(folder)
            program.bring(asked, place, folder)
        with mounted.fresh() as folder:
            job = Job(
                argv=program.argv(asked, place, folder),
                mpi=mpi,
                ranks=int(levels["ranks"]),
                cache=cache,
                programs=site.programs,
                scratch=site.scratch,
                before=mounted.chain,
            )
            done = run(job, units.duration(session["timeout"]) / 1e9)
        with mounted.fresh() as folder:
            written = program.result(asked, folder)
            checked = written is not None and _agrees(written, levels, site.scratch)
        values = program.values(done.stdout) | {"job": 1e9 * done.seconds}
        return Measurement(
            values={name: value for name, value in values.items() if value > 0},
            counters={**done.counters, **program.counters(done.stdout)},
            settings={"result compared": checked},
            duration_ns=round(values["time"]),
        )


WORKLOAD = MpiIo()


def _closing(levels: Mapping[str, str]) -> tuple[Cache, Mapping[str, str]]:
    """Say a durable close as each arm says it: nvio by its setting, a plain program by syncing."""
    cache = Cache.parse(levels["cache"])
    if levels.get("close") != "durable" or cache.settings is None:
        return cache, levels
    settings = tuple(sorted({**dict(cache.settings), "close": "durable"}.items()))
    return replace(cache, settings=settings), {**levels, "close": "visible"}


def _agrees(written: Path, levels: Mapping[str, str], scratch: Path) -> bool:
    """Compare a result with that of the cell's other arms in this run.

    All are held to what plain MPI-IO wrote, as soon as it has, and until then to what came first:
    the order of arms is drawn, and a cache must not make its own mistake the measure of the others.

    Returns:
        Whether there was anything to compare it with.

    Raises:
        TrialError: it differs, or is not there.
    """
    about = {k: v for k, v in levels.items() if k not in ("cache", "filesystem", "link", "close")}
    key = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
    kept = scratch / "inputs" / f"result-{key}"
    try:
        checksum = 0
        with written.open("rb") as file:
            while chunk := file.read(_CHUNK):
                checksum = zlib.crc32(chunk, checksum)
    except OSError as error:
        raise TrialError(f"the result cannot be read back: {error.strerror}") from error
    arm = levels["cache"]
    before, other = json.loads(kept.read_text()) if kept.exists() else (None, None)
    if before is None or (arm == PLAIN and other != PLAIN):
        kept.write_text(json.dumps((checksum, arm)))
    if before not in (None, checksum):
        raise TrialError(
            f"{written.name}, written with cache {arm}, differs from what cache {other} wrote:"
            " one of the two is wrong, or the program's result is not always the same"
        )
    return before is not None
