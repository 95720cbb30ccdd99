"""MPI programs and their files (paper C): what does node-local memory under MPI-IO win?

A trial is one job on an empty file system: the input is brought, the file system is mounted anew
with nothing cached, the job runs with or without nvio, and its own clock counts from before open to
after close. What it wrote is compared with what the other arms wrote. The file system is made once
a block, for all its trials.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tare import packages
from tare.environments import Site
from tare.errors import TrialError
from tare.filesystems.environment import InsideFileSystem, OnFileSystem, empty
from tare.published.beside import Beside
from tare.workloads import Bench, Measurement, Room, Statistic, Workload, papers, rows
from tare.workloads.findings import Findings
from tare.workloads.mpi_io_job import LAUNCHERS, PLAIN, Cache, Job, run
from tare.workloads.mpi_io_programs import Place
from tare.workloads.mpi_io_rows import MpiLevels, MpiSettings
from tare.workloads.mpi_io_scaling import Scaling, scaling

_CHUNK = 1 << 20


# For the plan's estimate only: the progress bar corrects itself by what it sees.
_TRIAL_S = 1.5
_BYTES_S = 150e6
_CALLS_S = 8000.0
_PIECES = {"rows": 0.5, "views": 64, "collective": 64, "block": 64, "shift": 64}
"""walks: bytes of a call, in sides of the matrix."""


@dataclass(frozen=True)
class MpiBench(Bench[MpiLevels, MpiSettings]):
    """The file system of a plot, empty for each of its trials."""

    inside: InsideFileSystem

    def measure(self, levels: MpiLevels) -> Measurement:
        """Run one job on the file system, which is empty but for its input.

        Raises:
            TrialError: the file system cannot be mounted, the job failed, nvio did not serve it, or
                what it wrote and what another arm wrote differ.
        """
        site, mounted, program = self.site, self.inside.mounted, levels.program
        cache, asked = _closing(levels)
        place = Place(site.programs, site.scratch / "inputs")
        place.inputs.mkdir(exist_ok=True)
        with mounted.fresh() as folder:
            empty(folder)
            program.bring(asked, place, folder)
        with mounted.fresh() as folder:
            job = Job(
                argv=program.argv(asked, place, folder),
                mpi=levels.built_for,
                ranks=levels.ranks,
                cache=cache,
                programs=site.programs,
                scratch=site.scratch,
                before=mounted.chain,
            )
            done = run(job, self.settings.timeout / 1e9)
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


class MpiIo(Workload[MpiLevels, MpiSettings]):
    """The workload `mpi-io`."""

    name = "mpi-io"
    levels = MpiLevels
    settings = MpiSettings
    plot_factors = frozenset({"link", "filesystem"})
    programs = ("nvio/*", "walks/*")
    paper = "C"
    figures = ("many_processes",)
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

    def subject(self, levels: MpiLevels) -> str:
        """Name the program and what it does."""
        return levels.program.subject(levels)

    def applicable(self, levels: MpiLevels) -> frozenset[str]:
        """Leave out what the program does not know."""
        program = levels.program
        names = {"program", "cache", "filesystem", "ranks", "link"} | program.factors
        if levels.mpi in program.mpis and len(program.mpis) > 1:
            names.add("mpi")
        return frozenset(names)

    def refused(
        self,
        levels: MpiLevels,
        asked: Mapping[str, Sequence[str]],
    ) -> tuple[str, str] | None:
        """A grid in which a rank's share is less than a piece: nobody would read or write."""
        share = levels.size // levels.ranks
        if levels["program"] == "grid" and levels.piece > share:
            return (
                "piece",
                f"{levels['piece']!r} is more than one of {levels['ranks']} ranks has of"
                f" {levels['size']}: give smaller pieces, or exclude it there",
            )
        return None

    def lacking(self, levels: MpiLevels, settings: MpiSettings, programs: Path) -> str | None:
        """The launcher, the program, and what nvio says of its settings."""
        mpi = levels.built_for
        launcher = LAUNCHERS[mpi][0]
        return (
            packages.lacking({launcher: packages.PROGRAMS["mpi-io"][launcher]})
            or rows.unbuilt(*(programs / path for path in levels.program.built(mpi)))
            or levels.cache.lacking(programs)
        )

    def room(self, levels: MpiLevels, settings: MpiSettings) -> Room:
        """What is read and what is written, and a copy of the input."""
        return Room(scratch_bytes=2 * levels.size if "size" in levels else 3 * levels.vertices**2)

    def environment(self, plot: MpiLevels) -> OnFileSystem:
        """The file system that a plot names."""
        return OnFileSystem(plot.filesystem)

    @contextmanager
    def enter(self, plot: MpiLevels, site: Site, settings: MpiSettings) -> Iterator[MpiBench]:
        """Make the file system."""
        with self.environment(plot).enter(site) as inside:
            yield MpiBench(site, inside, settings)

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """Paper C's savings."""
        return papers.c.beside(found)

    def model(self, found: Findings) -> Scaling | None:
        """On many nodes."""
        return scaling(found)

    def numbers(self, levels: MpiLevels) -> Mapping[str, tuple[float, object]]:
        """Sizes, and simulated nodes: no factor of their own, but a setting of the cache."""
        found: dict[str, tuple[float, object]] = {
            name: (levels.read(levels.rows[name]), levels.without(name))
            for name in ("ranks", "vertices", "power", "size")
            if name in levels
        }
        if (settings := levels.cache.settings) is not None:
            rest = tuple(pair for pair in settings if pair[0] != "nodes")
            nodes = float(levels.cache.setting("nodes", "1"))
            found["nodes"] = nodes, (levels.without("cache"), rest)
        return found

    def setup_seconds(self, plot: MpiLevels) -> float:
        """Expected duration of setting up both hosts and the file system."""
        return 4.0 if plot.filesystem == "glusterfs" else 1.0

    def seconds(self, levels: MpiLevels, settings: MpiSettings) -> float:
        """Expected duration of a trial: bytes, and calls where nothing caches them."""
        touched = levels.program.bytes_touched(levels)
        piece = levels.piece if "piece" in levels else levels.vertices * _PIECES[levels.pattern]
        slow = levels["cache"] == PLAIN and levels.filesystem != "tmpfs"
        return _TRIAL_S + touched / _BYTES_S + (touched / piece / _CALLS_S if slow else 0.0)


WORKLOAD = MpiIo()


def _closing(levels: MpiLevels) -> tuple[Cache, MpiLevels]:
    """Say a durable close as each arm says it: nvio by its setting, a plain program by syncing."""
    cache = levels.cache
    if levels.close != "durable" or cache.settings is None:
        return cache, levels
    settings = tuple(sorted({**dict(cache.settings), "close": "durable"}.items()))
    return replace(cache, settings=settings), levels.but(close="visible")


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
