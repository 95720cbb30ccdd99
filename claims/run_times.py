"""C7: is a program's run time with nvio predicted from one plain run and a calibration?

On each file system: one calibration, then for each program one recorded plain run, the prediction,
and only then the measurement, plain and nvio in turns. Calibration runs none of these programs,
nor any MPI program. A prediction is held against the median of the runs with nvio; and, beside it,
that of the time from the first MPI-IO call to the end of the last one.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from claims.checking import Found, Workshop
from tare import filesystems, process
from tare.command import Command
from tare.environments import Site
from tare.errors import TrialError
from tare.filesystems import Mounted
from tare.stats.bounds import Kept
from tare.testing.site import site_for
from tare.workloads.mpi_io_job import Cache, Job, run

_ERROR = 0.20
_OF_SPREAD = 1.5
_EFFECT = 1.2
"""Plain's time over nvio's, or the other way round: from here on advice must be right."""
_RIGHT = 0.90
_RANKS = 4
_REPEATS = 5
_TIMEOUT_S = 300.0
_MIB = 1 << 20

Grid = tuple[str, str, int, float, int]
"""What the program `grid` is asked: operation, order, bytes of a piece, touches, bytes in all."""

GRIDS: dict[str, tuple[Grid, ...]] = {
    "glusterfs": (
        ("write", "random", 4096, 1, 128 * _MIB),
        ("write", "random", 4096, 0.3, 128 * _MIB),
        ("write", "strided", 16384, 1, 128 * _MIB),
        ("write", "sequential", _MIB, 4, 128 * _MIB),
        ("read", "random", 4096, 1, 128 * _MIB),
        ("read", "random", 16384, 2, 128 * _MIB),
        ("read", "strided", 4096, 1, 128 * _MIB),
        ("read", "sequential", _MIB, 4, 128 * _MIB),
    ),
    "throttled": (
        ("write", "random", 4096, 1, 16 * _MIB),
        ("write", "random", 4096, 4, 8 * _MIB),
        ("write", "strided", 16384, 1, 64 * _MIB),
        ("write", "sequential", _MIB, 1, 128 * _MIB),
        ("read", "random", 4096, 1, 32 * _MIB),
        ("read", "random", 65536, 1, 128 * _MIB),
        ("read", "sequential", _MIB, 1, 128 * _MIB),
    ),
}
"""By file system: small and large pieces, passes, orders; about a second or more each."""


@dataclass(frozen=True)
class Compared:
    """One program: what was predicted and what came."""

    program: str
    predicted: dict[str, Any]
    plain: tuple[tuple[float, float], ...]
    """(seconds of the command, of its I/O), a run each."""
    cached: tuple[tuple[float, float], ...]

    @property
    def seconds(self) -> tuple[float, float]:
        """Medians with nvio: of the command, of its I/O."""
        command, io = zip(*self.cached, strict=True)
        return median(command), median(io)

    @property
    def effect(self) -> float:
        """Plain's run time over nvio's."""
        return median(seconds for seconds, _ in self.plain) / self.seconds[0]

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the command's time and of its I/O's."""
        names = ("cached_seconds", "cached_io_seconds")
        command, io = (self.predicted[name]["median"] for name in names)
        return command / self.seconds[0] - 1, io / self.seconds[1] - 1

    @property
    def within(self) -> bool:
        """Whether the run time lies in its prediction's interval."""
        said = self.predicted["cached_seconds"]
        return bool(said["low"] <= self.seconds[0] <= said["high"])

    @property
    def spread(self) -> float:
        """How far nvio's run times are apart, pair by pair, as a share of their median."""
        times = [seconds for seconds, _ in self.cached]
        return median(abs(a - b) for i, a in enumerate(times) for b in times[:i]) / median(times)

    @property
    def right(self) -> bool | None:
        """Whether the advice was right; None where either would do."""
        if self.effect > _EFFECT:
            return bool(self.predicted["verdict"] == "use")
        if self.effect < 1 / _EFFECT:
            return bool(self.predicted["verdict"] == "do not use")
        return None


def compared(found: list[Compared], refused: dict[str, str]) -> Found:
    """Hold what was predicted against what came."""
    command, io = (
        median(abs(one.errors[which]) for one in found) if found else 1.0 for which in (0, 1)
    )
    spread = median(one.spread for one in found) if found else 0.0
    advised = [one.right for one in found if one.right is not None]
    right = sum(advised) / len(advised) if advised else 0.0
    figure = (
        f"median error {command:.1%} of the run time (repeats are {spread:.0%} apart),"
        f" {io:.1%} of its I/O time; advice right in {sum(advised)} of {len(advised)} cases"
        f" with an effect over 20 %; intervals hold {sum(one.within for one in found)} of"
        f" {len(found)}; refused: {len(refused)}"
    )
    holds = command <= max(_ERROR, _OF_SPREAD * spread) and right >= _RIGHT and not refused
    data = {
        one.program: {
            "plain_s": one.plain,
            "cached_s": one.cached,
            "predicted": one.predicted,
            "errors": one.errors,
            "effect": one.effect,
            "advice_right": one.right,
        }
        for one in found
    }
    return Found(figure, {"workloads": data, "refused": refused}, counted=Kept.counted(holds))


@dataclass(frozen=True)
class _Calibrated:
    """One file system that is up, with its calibration."""

    mounted: Mounted
    site: Site
    calibration: Path

    @property
    def nvio(self) -> str:
        return str(self.site.programs / "nvio/nvio")

    def calibrate(self) -> None:
        with self.mounted.fresh() as where:
            argv = (
                *self.mounted.chain, self.nvio, "calibrate", str(where), "--ranks", str(_RANKS),
                "--drop-caches", "--output", str(self.calibration),
            )  # fmt: skip
            process.run(Command(argv), _TIMEOUT_S)

    def times(self, grid: Grid, cache: Cache) -> tuple[float, float]:
        """Seconds of the command and of its I/O, measured once."""
        with self._ready(grid) as folder:
            done = run(self._job(grid, cache, folder), _TIMEOUT_S)
        said = next(line for line in done.stdout.splitlines() if line.startswith("{"))
        return done.seconds, float(json.loads(said)["total"])

    def predict(self, grid: Grid) -> dict[str, Any] | str:
        """Record a plain run and predict; a string says why there is no prediction."""
        with tempfile.TemporaryDirectory(prefix="trace-", dir=self.site.scratch) as name:
            with self._ready(grid) as folder:
                plain = self._job(grid, Cache(None), folder)
                command = replace(plain, before=()).command()
                argv = (*plain.before, self.nvio, "record", "--output", name, "--", *command.argv)
                process.run(Command(argv, env=command.env), _TIMEOUT_S)
            argv = (self.nvio, "predict", name, "--calibration", str(self.calibration), "--json")
            said = process.run(Command(argv), _TIMEOUT_S, accept=(0, 1))
        if not said.stdout:
            return said.stderr.strip()
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    @contextmanager
    def _ready(self, grid: Grid) -> Iterator[Path]:
        """The file to be read, or none, and nothing of it in a cache."""
        operation, _, _, _, size = grid
        with self.mounted.fresh() as folder:
            data = folder / "data"
            if operation == "write":
                data.unlink(missing_ok=True)
            elif not data.exists() or data.stat().st_size != size:
                with data.open("wb") as file:
                    for _ in range(size // _MIB):
                        file.write(os.urandom(_MIB))
        with self.mounted.fresh() as folder:
            yield folder

    def _job(self, grid: Grid, cache: Cache, folder: Path) -> Job:
        operation, order, piece, touches, size = grid
        program, data = str(self.site.programs / "nvio/grid-mpich"), str(folder / "data")
        argv = (program, data, operation, order, str(piece), str(size), str(touches))
        programs, scratch = self.site.programs, self.site.scratch
        return Job(argv, "mpich", _RANKS, cache, programs, scratch, self.mounted.chain)


def run_times(workshop: Workshop) -> Found:
    """C7: on every file system, every program."""
    found: list[Compared] = []
    refused: dict[str, str] = {}
    with site_for("native", workshop.programs, workshop.cache) as (_, site):
        for kind, grids in GRIDS.items():
            filesystem = filesystems.named(kind)
            here = filesystem.availability()
            if not here.available:
                raise TrialError(f"no {kind} here: {here.detail}", here.remedy)
            with filesystem.mounted(site) as mounted:
                calibrated = _Calibrated(mounted, site, site.scratch / f"{kind}.json")
                workshop.say(f"{kind}: calibrating")
                calibrated.calibrate()
                for grid in grids:
                    operation, order, piece, touches, _ = grid
                    name = f"{kind} {operation} {order} {piece >> 10} KiB x{touches:g}"
                    predicted = calibrated.predict(grid)
                    if isinstance(predicted, str):
                        refused[name] = predicted
                        workshop.say(f"{name}: {predicted}")
                        continue
                    turns = [
                        [calibrated.times(grid, cache) for cache in (Cache(None), Cache(()))]
                        for _ in range(_REPEATS)
                    ]
                    found.append(Compared(name, predicted, *zip(*turns, strict=True)))
                    workshop.say(
                        f"{name}: nvio {found[-1].seconds[0]:.2f} s, predicted"
                        f" {predicted['cached_seconds']['median']:.2f} s"
                    )
    return compared(found, refused)
