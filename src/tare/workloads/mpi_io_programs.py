"""The MPI programs that `mpi-io` runs: their command lines, inputs, and what they print.

Each is one row of `PROGRAMS`. All report seconds of their slowest rank from before open to after
close, so that what a cache writes back at close is never left out.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tare import process
from tare.command import Command
from tare.errors import TrialError
from tare.events import events_in
from tare.workloads.mpi_io_job import Cache, Job, run

if TYPE_CHECKING:
    from tare.workloads.mpi_io_rows import MpiLevels

_MIB = 1 << 20
_S = 1e9
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Place:
    """Where a program finds things."""

    programs: Path
    """The build directory."""
    inputs: Path
    """Kept for the whole run, on a local file system: inputs are made once."""


class Program(Protocol):
    """One program."""

    factors: frozenset[str]
    """Factors that mean something for it, beside those of every program."""
    mpis: frozenset[str]
    """MPIs that it is built for here."""

    def built(self, mpi: str) -> tuple[str, ...]:
        """Its own files below the build directory."""
        ...

    def bring(self, levels: MpiLevels, place: Place, folder: Path) -> None:
        """Put the files that it reads into a folder. Not measured."""
        ...

    def argv(self, levels: MpiLevels, place: Place, folder: Path) -> tuple[str, ...]:
        """Return the program and its arguments."""
        ...

    def values(self, stdout: str) -> dict[str, float]:
        """Statistic -> value: times in ns."""
        ...

    def counters(self, stdout: str) -> dict[str, int]:
        """What the program says of the number of its I/O calls, over all ranks."""
        ...

    def result(self, levels: MpiLevels, folder: Path) -> Path | None:
        """Return the file whose bytes may not depend on the cache; None where there is none."""
        ...

    def bytes_touched(self, levels: MpiLevels) -> float:
        """Bytes that all ranks together read and write, roughly: for the plan's estimate."""
        ...

    def subject(self, levels: MpiLevels) -> str:
        """What a sentence in the report speaks of."""
        ...


@dataclass(frozen=True)
class Walks:
    """A power of a random graph's adjacency matrix by Cannon's algorithm: the paper's program."""

    factors = frozenset({"vertices", "power", "pattern", "handover", "result"})
    mpis = frozenset({"mpich", "openmpi"})

    def built(self, mpi: str) -> tuple[str, ...]:
        """The program, and MPICH's, which makes the graph."""
        return (f"walks/walks-{mpi}", "walks/walks-mpich")

    def bring(self, levels: MpiLevels, place: Place, folder: Path) -> None:
        """Make the graph: edges with probability 2 %, as in the paper."""
        vertices = str(levels.vertices)
        # Rows of tiles are what `block` reads at once; the others take the rows of the matrix.
        tile = str(levels.vertices // 2) if levels.pattern == "block" else "0"
        made = place.inputs / f"graph-{vertices}-{tile}"
        if not made.exists():
            walks = str(place.programs / "walks/walks-mpich")
            part = made.with_suffix(".part")
            argv = (
                walks, "generate", str(part), "--vertices", vertices, "--probability", "0.02",
                "--tile", tile, "--quiet",
            )  # fmt: skip
            process.run(Command(argv), _TIMEOUT_S)
            part.rename(made)
        _copy(made, folder / "graph.wm")

    def argv(self, levels: MpiLevels, place: Place, folder: Path) -> tuple[str, ...]:
        """Cells of one byte are cut off where a count does not fit, as the paper's overflow."""
        discard = ("--discard",) if levels.result == "discarded" else ()
        return (
            str(place.programs / f"walks/walks-{levels.built_for}"),
            "power", str(folder / "graph.wm"), "--output", str(folder / "power.wm"),
            "--power", str(levels.power), "--cell", "1", "--saturate",
            "--pattern", levels.pattern, "--handover", levels.handover,
            *discard, "--json", "--quiet",
        )  # fmt: skip

    def values(self, stdout: str) -> dict[str, float]:
        """Phases are means over ranks, since a rank waits where another works."""
        said = _record(stdout)
        ranks = said["rank_totals"]

        def mean(*phases: str) -> float:
            seconds = sum(float(rank[f"{phase}_s"]) for rank in ranks for phase in phases)
            return _S * seconds / len(ranks)

        return {
            "time": _S * said["seconds"],
            "open": mean("open"),
            "read": mean("read"),
            "write": mean("write"),
            "close": mean("close", "sync"),
            "io": mean("open", "read", "write", "sync", "close", "shift"),
            "compute": mean("compute"),
        }

    def counters(self, stdout: str) -> dict[str, int]:
        """Calls of the MPI-IO interface; what ROMIO makes of them is another number."""
        ranks = _record(stdout)["rank_totals"]
        return {"calls": sum(rank["read_calls"] + rank["write_calls"] for rank in ranks)}

    def result(self, levels: MpiLevels, folder: Path) -> Path | None:
        """The power; every pattern writes the same bytes."""
        return None if levels.result == "discarded" else folder / "power.wm"

    def bytes_touched(self, levels: MpiLevels) -> float:
        """Each product reads both operands once a row or column of ranks, and writes one."""
        products = max(1, levels.power - 1)
        return products * levels.vertices**2 * (1 + 2 * math.sqrt(levels.ranks))

    def subject(self, levels: MpiLevels) -> str:
        """Name the pattern, which decides what a cache can win."""
        return f"walks, pattern {levels.pattern}"


_ORDERS = ("random", "strided", "sequential")


@dataclass(frozen=True)
class Grid:
    """Pieces of one file, or of one file a rank: an IOR-like pattern."""

    factors = frozenset({"operation", "order", "piece", "size", "touches", "files", "close"})
    mpis = frozenset({"mpich", "openmpi"})

    def built(self, mpi: str) -> tuple[str, ...]:
        """The program."""
        return (f"nvio/grid-{mpi}",)

    def bring(self, levels: MpiLevels, place: Place, folder: Path) -> None:
        """Make what is read: bytes that no compression takes away."""
        if levels.operation != "read":
            return
        size = levels.size
        ranks = levels.ranks if levels.files == "each" else 1
        made = place.inputs / f"random-{size // ranks}"
        if not made.exists():
            part = made.with_suffix(".part")
            with part.open("wb") as file:
                for start in range(0, size // ranks, _MIB):
                    file.write(os.urandom(min(_MIB, size // ranks - start)))
            part.rename(made)
        if levels.files == "shared":
            _copy(made, folder / "data")
        else:
            for rank in range(ranks):
                _copy(made, folder / f"data.{rank}")

    def argv(self, levels: MpiLevels, place: Place, folder: Path) -> tuple[str, ...]:
        """As grid's own usage says."""
        return (
            str(place.programs / f"nvio/grid-{levels.built_for}"), str(folder / "data"),
            levels.operation, levels.order, str(levels.piece), str(levels.size),
            levels["touches"],
            *(("each",) if levels.files == "each" else ()),
            *(("sync",) if levels.close == "durable" else ()),
        )  # fmt: skip

    def values(self, stdout: str) -> dict[str, float]:
        """Times of the slowest rank."""
        return _phases(_record(stdout))

    def counters(self, stdout: str) -> dict[str, int]:
        """One call a piece."""
        return {"calls": _record(stdout)["operations"]}

    def result(self, levels: MpiLevels, folder: Path) -> Path | None:
        """What was written, where no two ranks wrote the same bytes."""
        fixed = levels.operation == "write" and levels.order != "random"
        return folder / "data" if fixed and levels.files == "shared" else None

    def bytes_touched(self, levels: MpiLevels) -> float:
        """As declared."""
        return levels.size * levels.touches

    def subject(self, levels: MpiLevels) -> str:
        """Name order and operation."""
        return f"{levels.order.capitalize()} {levels.operation}s of {levels['piece']}"


@dataclass(frozen=True)
class Slab:
    """Columns of an array by rows, through a library above MPI-IO: nvio/programs."""

    words: tuple[str, ...]
    library: str
    factors = frozenset({"operation", "piece", "size", "close"})
    mpis = frozenset({"openmpi"})

    def built(self, mpi: str) -> tuple[str, ...]:
        """The program or script."""
        return (f"nvio/programs/{self.words[-1]}",)

    def bring(self, levels: MpiLevels, place: Place, folder: Path) -> None:
        """Have the program write what it is to read, by plain MPI-IO."""
        if levels.operation != "read":
            return
        name = "-".join([self.library, levels["size"], levels["piece"], levels["ranks"]])
        made = place.inputs / name.replace(" ", "")
        if not made.exists():
            part = made.with_suffix(".part")
            run(
                Job(
                    self._argv(levels, place, part, "write"),
                    levels.built_for, levels.ranks, Cache(None), place.programs,
                    place.inputs,
                ),
                _TIMEOUT_S,
            )  # fmt: skip
            part.rename(made)
        _copy(made, folder / "data")

    def argv(self, levels: MpiLevels, place: Place, folder: Path) -> tuple[str, ...]:
        """As nvio/programs/README.md says."""
        sync = ("sync",) if levels.close == "durable" else ()
        return (*self._argv(levels, place, folder / "data", levels.operation), *sync)

    def values(self, stdout: str) -> dict[str, float]:
        """Times of the slowest rank."""
        return _phases(_record(stdout))

    def counters(self, stdout: str) -> dict[str, int]:
        """One call of the library a piece."""
        return {"calls": _record(stdout)["operations"]}

    def result(self, levels: MpiLevels, folder: Path) -> Path | None:
        """What was written; HDF5 notes the time in it, so that no two files are alike."""
        fixed = levels.operation == "write" and self.library != "HDF5"
        return folder / "data" if fixed else None

    def bytes_touched(self, levels: MpiLevels) -> float:
        """Once."""
        return levels.size

    def subject(self, levels: MpiLevels) -> str:
        """Name the library."""
        return f"An array {levels.operation} by {self.library}"

    def _argv(self, levels: MpiLevels, place: Place, path: Path, operation: str) -> tuple[str, ...]:
        *interpreter, program = self.words
        return (
            *interpreter, str(place.programs / "nvio/programs" / program), str(path), operation,
            str(levels.piece), str(levels.size),
        )  # fmt: skip


PROGRAMS: Mapping[str, Program] = {
    "walks": Walks(),
    "grid": Grid(),
    "mpi4py": Slab(("/usr/bin/python3", "slab_mpi4py.py"), "mpi4py"),
    "hdf5": Slab(("/usr/bin/python3", "slab_h5py.py"), "HDF5"),
    "pnetcdf": Slab(("slab-pnetcdf",), "PnetCDF"),
}
"""Level of the factor `program` -> the program."""


def _record(stdout: str) -> dict[str, Any]:
    """The one line of JSON that every program prints."""
    records = events_in(stdout, "the program")
    if len(records) != 1:
        raise TrialError(f"the program printed {len(records)} records instead of one")
    return records[0]


def _phases(said: Mapping[str, Any]) -> dict[str, float]:
    total = float(said["total"])
    found = {
        "time": _S * total,
        "open": _S * said["open"],
        "close": _S * said["close"],
        "io": _S * total,
        "rate": said["operations"] / total,
        "bandwidth": said["bytes"] / total,
    }
    found |= {name: 1e3 * said[f"{name}_us"] for name in ("p50", "p99") if f"{name}_us" in said}
    return found


def _copy(made: Path, there: Path) -> None:
    try:
        shutil.copyfile(made, there)
    except OSError as error:
        raise TrialError(f"cannot bring the input to {there}: {error.strerror}") from error
