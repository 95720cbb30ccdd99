"""C7: is a program's run time with nvio foretold from one plain run and a calibration?

On each file system: one calibration, then for each workload one recorded plain run, the prediction,
and only then the measurement, plain and nvio in turns. Calibration runs none of these workloads,
nor any MPI program. A prediction is held against the median of the runs with nvio; and, beside it,
that of the time from the first MPI-IO call to the end of the last one.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from claims import Claim, Result, Workshop
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
_SIZE = 128 << 20


@dataclass(frozen=True)
class Workload:
    """What `grid` is asked to do."""

    operation: str
    order: str
    piece: int
    touches: float
    size: int = _SIZE

    @property
    def name(self) -> str:
        """As a line of the result names it."""
        return f"{self.operation} {self.order} {self.piece >> 10} KiB x{self.touches:g}"


WORKLOADS = {
    "glusterfs": (
        Workload("write", "random", 4096, 1),
        Workload("write", "random", 4096, 0.3),
        Workload("write", "strided", 16384, 1),
        Workload("write", "sequential", 1 << 20, 4),
        Workload("read", "random", 4096, 1),
        Workload("read", "random", 16384, 2),
        Workload("read", "strided", 4096, 1),
        Workload("read", "sequential", 1 << 20, 4),
    ),
    "throttled": (
        Workload("write", "random", 4096, 1, 16 << 20),
        Workload("write", "random", 4096, 4, 8 << 20),
        Workload("write", "strided", 16384, 1, 64 << 20),
        Workload("write", "sequential", 1 << 20, 1),
        Workload("read", "random", 4096, 1, 32 << 20),
        Workload("read", "random", 65536, 1),
        Workload("read", "sequential", 1 << 20, 1),
    ),
}
"""By file system: small and large pieces, passes, orders; about a second or more each."""


@dataclass(frozen=True)
class Outcome:
    """One workload: what was foretold and what came."""

    workload: str
    foretold: dict[str, Any]
    plain: tuple[tuple[float, float], ...]
    """(seconds of the command, of its I/O), a run each."""
    cached: tuple[tuple[float, float], ...]

    @property
    def effect(self) -> float:
        """Plain's run time over nvio's."""
        return _median(self.plain, 0) / _median(self.cached, 0)

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of the command's time and of its I/O's."""
        return (
            self.foretold["cached_seconds"]["median"] / _median(self.cached, 0) - 1,
            self.foretold["cached_io_seconds"]["median"] / _median(self.cached, 1) - 1,
        )

    @property
    def spread(self) -> float:
        """How far nvio's run times are apart, pair by pair, as a share of their median."""
        times = [seconds for seconds, _ in self.cached]
        apart = [abs(a - b) for i, a in enumerate(times) for b in times[:i]]
        return statistics.median(apart) / statistics.median(times)

    @property
    def right(self) -> bool | None:
        """Whether the advice was right; None where either would do."""
        if self.effect > _EFFECT:
            return bool(self.foretold["verdict"] == "use")
        if self.effect < 1 / _EFFECT:
            return bool(self.foretold["verdict"] == "do not use")
        return None


def _median(runs: tuple[tuple[float, float], ...], which: int) -> float:
    return statistics.median(one[which] for one in runs)


def judge(outcomes: list[Outcome], refused: dict[str, str]) -> Result:
    """Hold what was foretold against what came."""
    errors = [
        statistics.median(abs(outcome.errors[which]) for outcome in outcomes) if outcomes else 1.0
        for which in (0, 1)
    ]
    spread = statistics.median(outcome.spread for outcome in outcomes) if outcomes else 0.0
    bound = max(_ERROR, _OF_SPREAD * spread)
    advised = [outcome.right for outcome in outcomes if outcome.right is not None]
    right = sum(advised) / len(advised) if advised else 0.0
    within = sum(
        outcome.foretold["cached_seconds"]["low"]
        <= _median(outcome.cached, 0)
        <= outcome.foretold["cached_seconds"]["high"]
        for outcome in outcomes
    )
    figure = (
        f"median error {errors[0]:.1%} of the run time (repeats are {spread:.0%} apart),"
        f" {errors[1]:.1%} of its I/O time; advice right in {sum(advised)} of {len(advised)} cases"
        f" with an effect over 20 %; intervals hold {within} of {len(outcomes)}; refused:"
        f" {len(refused)}"
    )
    holds = errors[0] <= bound and right >= _RIGHT and not refused
    data = {
        outcome.workload: {
            "plain_s": outcome.plain,
            "cached_s": outcome.cached,
            "foretold": outcome.foretold,
            "errors": outcome.errors,
            "effect": outcome.effect,
            "advice_right": outcome.right,
        }
        for outcome in outcomes
    }
    return Result(Kept.counted(holds), figure, {"workloads": data, "refused": refused})


@dataclass(frozen=True)
class _Place:
    """One file system that is up, with its calibration."""

    mounted: Mounted
    site: Site
    calibration: Path

    @property
    def nvio(self) -> str:
        return str(self.site.programs / "nvio/nvio")

    def times(self, workload: Workload, cache: Cache) -> tuple[float, float]:
        """Seconds of the command and of its I/O, measured once."""
        with self._ready(workload) as folder:
            done = run(self._job(workload, cache, folder), _TIMEOUT_S)
        return done.seconds, _io_seconds(done.stdout)

    def foretell(self, workload: Workload) -> dict[str, Any] | str:
        """Record a plain run and predict; a string says why there is no prediction."""
        with tempfile.TemporaryDirectory(prefix="trace-", dir=self.site.scratch) as name:
            with self._ready(workload) as folder:
                plain = self._job(workload, Cache(None), folder)
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
    def _ready(self, workload: Workload) -> Iterator[Path]:
        """The file to be read, or none, and nothing of it in a cache."""
        with self.mounted.fresh() as folder:
            data = folder / "data"
            if workload.operation == "write":
                data.unlink(missing_ok=True)
            elif not data.exists() or data.stat().st_size != workload.size:
                with data.open("wb") as file:
                    for _ in range(workload.size >> 20):
                        file.write(os.urandom(1 << 20))
        with self.mounted.fresh() as folder:
            yield folder

    def _job(self, workload: Workload, cache: Cache, folder: Path) -> Job:
        argv = (
            str(self.site.programs / "nvio/grid-mpich"), str(folder / "data"),
            workload.operation, workload.order, str(workload.piece), str(workload.size),
            str(workload.touches),
        )  # fmt: skip
        programs, scratch = self.site.programs, self.site.scratch
        return Job(argv, "mpich", _RANKS, cache, programs, scratch, self.mounted.chain)


def _io_seconds(stdout: str) -> float:
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    return float(json.loads(lines[0])["total"])


def _measure(
    place: _Place, workload: Workload, name: str, say: Callable[[str], None]
) -> Outcome | str:
    foretold = place.foretell(workload)
    if isinstance(foretold, str):
        return foretold
    plain, cached = [], []
    for _ in range(_REPEATS):
        plain.append(place.times(workload, Cache(None)))
        cached.append(place.times(workload, Cache(())))
    outcome = Outcome(name, foretold, tuple(plain), tuple(cached))
    say(
        f"{name}: plain {_median(outcome.plain, 0):.2f} s, nvio {_median(outcome.cached, 0):.2f} s,"
        f" foretold {foretold['cached_seconds']['median']:.2f} s ({foretold['verdict']})"
    )
    return outcome


def _check(workshop: Workshop) -> Result:
    outcomes: list[Outcome] = []
    refused: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory(prefix="tare-claim-") as folder,
        site_for("native", Path(folder), workshop.programs, workshop.cache) as (_, site),
    ):
        for kind, workloads in WORKLOADS.items():
            filesystem = filesystems.named(kind)
            found = filesystem.availability()
            if not found.available:
                raise TrialError(f"no {kind} here: {found.detail}", found.remedy)
            with filesystem.mounted(site) as mounted:
                place = _Place(mounted, site, site.scratch / f"{kind}.json")
                workshop.say(f"{kind}: calibrating")
                with mounted.fresh() as where:
                    argv = (
                        *mounted.chain, place.nvio, "calibrate", str(where), "--ranks",
                        str(_RANKS), "--drop-caches", "--output", str(place.calibration),
                    )  # fmt: skip
                    process.run(Command(argv), _TIMEOUT_S)
                for workload in workloads:
                    name = f"{kind} {workload.name}"
                    outcome = _measure(place, workload, name, workshop.say)
                    if isinstance(outcome, str):
                        refused[name] = outcome
                        workshop.say(f"{name}: {outcome}")
                    else:
                        outcomes.append(outcome)
    return judge(outcomes, refused)


CLAIMS = (
    Claim(
        "C7",
        "From one recorded plain run and a calibration of seconds, a program's run time with the"
        " cache is foretold without running it, and so is whether to use it.",
        "median error at most 20 % or 1.5 x the A/A spread over workloads that it was not"
        " calibrated on; advice right in 90 % of the cases with an effect over 20 %",
        _check,
    ),
)
