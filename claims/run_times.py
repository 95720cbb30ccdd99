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
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from claims.checking import Found, Workshop
from tare import filesystems, process
from tare.command import Command
from tare.environments import Site
from tare.errors import TrialError
from tare.filesystems import Mounted
from tare.stats import Interval, Method, mean_interval
from tare.stats.bounds import LOOKS, Bound, Kept, all_kept, look_blocks, look_confidence
from tare.testing.site import site_for
from tare.workloads.mpi_io_job import Cache, Job, run

_ERROR = 0.20
_OF_SPREAD = 1.5
_EFFECT = 1.2
"""Plain's time over nvio's, or the other way round: from here on advice must be right."""
_RIGHT = 0.90
_CONFIDENCE = look_confidence(0.95)
_RANKS = 4
_LEAST, _MOST = 5, 20
"""Pairs of runs: more are added until it is decided on which side of `_EFFECT` a program is."""
TIMEOUT_S = 300.0
_MIB = 1 << 20


class Grid(NamedTuple):
    """What the program `grid` is asked."""

    operation: str
    order: str
    piece: int
    """Bytes of a call."""
    touches: float
    size: int
    """Bytes of the file."""
    words: tuple[str, ...] = ()
    """Beyond: `each`, `sync`, `collective`, `view`."""

    @property
    def name(self) -> str:
        """As it stands in a claim."""
        words = "".join(f" {word}" for word in self.words)
        return f"{self.operation} {self.order} {self.piece >> 10} KiB x{self.touches:g}{words}"


GRIDS: dict[str, tuple[Grid, ...]] = {
    "glusterfs": (
        Grid("write", "random", 4096, 1, 128 * _MIB),
        Grid("write", "random", 4096, 0.3, 128 * _MIB),
        Grid("write", "strided", 16384, 1, 128 * _MIB),
        Grid("write", "sequential", _MIB, 4, 128 * _MIB),
        Grid("read", "random", 4096, 1, 128 * _MIB),
        Grid("read", "random", 16384, 2, 128 * _MIB),
        Grid("read", "strided", 4096, 1, 128 * _MIB),
        Grid("read", "sequential", _MIB, 4, 128 * _MIB),
        Grid("write", "strided", 4096, 1, 128 * _MIB, ("view",)),
        Grid("read", "strided", 4096, 1, 128 * _MIB, ("view",)),
        Grid("write", "strided", 4096, 1, 128 * _MIB, ("view", "collective")),
    ),
    "throttled": (
        Grid("write", "random", 4096, 1, 16 * _MIB),
        Grid("write", "random", 4096, 4, 8 * _MIB),
        Grid("write", "strided", 16384, 1, 64 * _MIB),
        Grid("write", "sequential", _MIB, 1, 128 * _MIB),
        Grid("read", "random", 4096, 1, 32 * _MIB),
        Grid("read", "random", 65536, 1, 128 * _MIB),
        Grid("read", "sequential", _MIB, 1, 128 * _MIB),
    ),
}
"""By file system: small and large pieces, passes, orders, views; about a second or more each."""


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
    def effect(self) -> Interval:
        """Plain's run time over nvio's, pair by pair."""
        plain, cached = (np.log([seconds for seconds, _ in of]) for of in (self.plain, self.cached))
        return mean_interval(plain - cached, _CONFIDENCE, Method.T).exponential

    @property
    def small(self) -> Kept:
        """Whether plain and nvio are within `_EFFECT` of each other, so that either would do."""
        return self._within(1 / _EFFECT, _EFFECT)

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
    def right(self) -> Kept | None:
        """Whether the advice was right; None where it cost nothing, and either might have done."""
        verdict = self.predicted["verdict"]
        least = None if verdict == "do not use" else 1 / _EFFECT
        most = None if verdict == "use" else _EFFECT
        harmless = self._within(least, most)
        return None if harmless is Kept.HOLDS and self.small is not Kept.FAILS else harmless

    def _within(self, least: float | None, most: float | None) -> Kept:
        return Bound("effect", self.effect, least, most).kept


def compared(found: list[Compared], refused: dict[str, str]) -> Found:
    """Hold what was predicted against what came."""
    command, io = (
        median(abs(one.errors[which]) for one in found) if found else 1.0 for which in (0, 1)
    )
    spread = median(one.spread for one in found) if found else 0.0
    advised = Counter(one.right for one in found)
    right, wrong, unsure = (advised[kept] for kept in Kept)
    figure = (
        f"median error {command:.1%} of the run time (repeats are {spread:.0%} apart),"
        f" {io:.1%} of its I/O time; advice right in {right} of {right + wrong} cases with an"
        f" effect over 20 %, and undecided in {unsure}; intervals hold"
        f" {sum(one.within for one in found)} of {len(found)}; refused: {len(refused)}"
    )
    data = {
        one.program: {
            "plain_s": one.plain,
            "cached_s": one.cached,
            "predicted": one.predicted,
            "errors": one.errors,
            "effect": [one.effect.estimate, one.effect.low, one.effect.high],
            "advice_right": one.right,
        }
        for one in found
    }
    close = command <= max(_ERROR, _OF_SPREAD * spread) and not refused
    kept = all_kept([Kept.counted(close), _advice_kept(right, wrong, unsure)])
    return Found(figure, {"workloads": data, "refused": refused}, counted=kept)


def _advice_kept(right: int, wrong: int, unsure: int) -> Kept:
    """Whether enough is right, whatever the unsure are: no case, or one with the wrong advice."""
    if right < _RIGHT * (right + wrong):
        return Kept.FAILS
    enough = right > 0 and right >= _RIGHT * (right + wrong + unsure)
    return Kept.HOLDS if enough else Kept.INCONCLUSIVE


@dataclass(frozen=True)
class Calibrated:
    """One file system that is up, with its calibration."""

    kind: str
    mounted: Mounted
    site: Site
    calibration: Path

    @property
    def nvio(self) -> str:
        """The program."""
        return str(self.site.programs / "nvio/nvio")

    def calibrate(self) -> None:
        """Measure what calls cost there."""
        with self.mounted.fresh() as where:
            argv = (
                *self.mounted.chain, self.nvio, "calibrate", str(where), "--ranks", str(_RANKS),
                "--drop-caches", "--output", str(self.calibration),
            )  # fmt: skip
            process.run(Command(argv), TIMEOUT_S)

    def times(self, grid: Grid, cache: Cache) -> tuple[float, float]:
        """Seconds of the command and of its I/O, measured once."""
        with self.ready(grid) as folder:
            done = run(self.job(grid, cache, folder), TIMEOUT_S)
        said = next(line for line in done.stdout.splitlines() if line.startswith("{"))
        return done.seconds, float(json.loads(said)["total"])

    def predict(self, grid: Grid) -> dict[str, Any] | str:
        """Record a plain run and predict; a string says why there is no prediction.

        Where the file system's speed has changed since it was calibrated, and that is told, it is
        calibrated once more, as a user is asked to.
        """
        said = self._predict(grid)
        if not isinstance(said, str) or "calibrate again" not in said:
            return said
        self.calibrate()
        return self._predict(grid)

    def _predict(self, grid: Grid) -> dict[str, Any] | str:
        with tempfile.TemporaryDirectory(prefix="trace-", dir=self.site.scratch) as name:
            self.record(grid, Path(name), {})
            return self.predicted(Path(name))

    def record(self, grid: Grid, trace: Path, env: Mapping[str, str]) -> None:
        """Run it once, plain, and leave nvio's traces in the folder `trace`.

        Args:
            env: beside the job's own; LD_PRELOAD comes before the job's.
        """
        with self.ready(grid) as folder:
            plain = self.job(grid, Cache(None), folder)
            command = replace(plain, before=()).command()
            argv = (*plain.before, self.nvio, "record", "--output", str(trace), "--", *command.argv)
            preload = ":".join(
                one for of in (env, command.env) if (one := of.get("LD_PRELOAD", ""))
            )
            process.run(Command(argv, env={**command.env, **env, "LD_PRELOAD": preload}), TIMEOUT_S)

    def predicted(self, trace: Path, env: Mapping[str, str] | None = None) -> dict[str, Any] | str:
        """What `nvio predict` says of a trace; a string says why it says nothing."""
        argv = (self.nvio, "predict", str(trace), "--calibration", str(self.calibration), "--json")
        said = process.run(Command(argv, env=env or {}), TIMEOUT_S, accept=(0, 1))
        if not said.stdout:
            return said.stderr.strip()
        found: dict[str, Any] = json.loads(said.stdout)
        return found

    def compared(self, grid: Grid, predicted: dict[str, Any]) -> Compared:
        """Measure plain and nvio in turns, until it is decided whether they differ enough."""
        name = f"{self.kind} {grid.name}"
        pairs: list[list[tuple[float, float]]] = []
        for look in range(1, LOOKS + 1):
            while len(pairs) < look_blocks(_LEAST, _MOST, look):
                pairs.append([self.times(grid, cache) for cache in (Cache(None), Cache(()))])
            plain, cached = zip(*pairs, strict=True)
            found = Compared(name, predicted, plain, cached)
            if found.small is not Kept.INCONCLUSIVE:
                break
        return found

    @contextmanager
    def ready(self, grid: Grid) -> Iterator[Path]:
        """The file to be read, or none, and nothing of it in a cache."""
        with self.mounted.fresh() as folder:
            data = folder / "data"
            if grid.operation == "write":
                for old in folder.glob("data*"):
                    old.unlink()
            elif not data.exists() or data.stat().st_size != grid.size:
                with data.open("wb") as file:
                    for _ in range(grid.size // _MIB):
                        file.write(os.urandom(_MIB))
        with self.mounted.fresh() as folder:
            yield folder

    def job(self, grid: Grid, cache: Cache, folder: Path) -> Job:
        """It as a job on that folder."""
        programs, scratch = self.site.programs, self.site.scratch
        argv = (
            str(programs / "nvio/grid-mpich"), str(folder / "data"), grid.operation, grid.order,
            str(grid.piece), str(grid.size), str(grid.touches), *grid.words,
        )  # fmt: skip
        return Job(argv, "mpich", _RANKS, cache, programs, scratch, self.mounted.chain)


def on_each(workshop: Workshop, kinds: Collection[str]) -> Generator[Calibrated]:
    """One file system after another, calibrated."""
    with site_for("native", workshop.programs, workshop.cache) as (_, site):
        for kind in kinds:
            filesystem = filesystems.named(kind)
            here = filesystem.availability()
            if not here.available:
                raise TrialError(f"no {kind} here: {here.detail}", here.remedy)
            with filesystem.mounted(site) as mounted:
                calibrated = Calibrated(kind, mounted, site, site.scratch / f"{kind}.json")
                workshop.say(f"{kind}: calibrating")
                calibrated.calibrate()
                yield calibrated


def run_times(workshop: Workshop) -> Found:
    """C7: on every file system, every program."""
    found: list[Compared] = []
    refused: dict[str, str] = {}
    with closing(on_each(workshop, GRIDS)) as places:
        for calibrated in places:
            for grid in GRIDS[calibrated.kind]:
                name = f"{calibrated.kind} {grid.name}"
                predicted = calibrated.predict(grid)
                if isinstance(predicted, str):
                    refused[name] = predicted
                    workshop.say(f"{name}: {predicted}")
                    continue
                found.append(calibrated.compared(grid, predicted))
                workshop.say(
                    f"{name}: nvio {found[-1].seconds[0]:.2f} s, predicted"
                    f" {predicted['cached_seconds']['median']:.2f} s"
                )
    return compared(found, refused)
