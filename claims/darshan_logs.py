"""C12: is the advice right that `nvio predict` gives from a job's Darshan log?

On each file system of C7: one calibration, then for each program one plain run that Darshan and
`nvio record` note together, a prediction from the log and, beside it, one from nvio's own traces,
and only then the measurement, plain and nvio in turns. Advice is right if following it loses less
than 20 % of the run time to the other choice. Besides, logs that lack what a prediction needs.

Needs Darshan's runtime, built for MPICH: no registry has it, so that it is taken from where
`darshan-config` on PATH or DARSHAN_PREFIX says; and pydarshan in this Python.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from claims.checking import Found, Workshop
from claims.run_times import Calibrated, Compared, Grid, on_each
from tare.command import PATH
from tare.errors import TrialError
from tare.stats.bounds import Kept

_RIGHT = 0.85
_MIB = 1 << 20
_CUT = 0.6

GRIDS: dict[str, tuple[Grid, ...]] = {
    "glusterfs": (
        Grid("write", "random", 4096, 1, 128 * _MIB),
        Grid("write", "strided", 16384, 1, 128 * _MIB),
        Grid("write", "sequential", _MIB, 2, 128 * _MIB, ("each",)),
        Grid("read", "random", 16384, 2, 128 * _MIB),
        Grid("read", "sequential", _MIB, 4, 128 * _MIB),
    ),
    "throttled": (
        Grid("write", "random", 4096, 4, 8 * _MIB),
        Grid("write", "strided", 4096, 1, 16 * _MIB, ("collective",)),
        Grid("write", "sequential", _MIB, 1, 64 * _MIB, ("sync",)),
        Grid("read", "random", 4096, 1, 32 * _MIB),
        Grid("read", "sequential", _MIB, 1, 128 * _MIB),
    ),
}
_DXT = "MOD_ENABLE DXT_POSIX,DXT_MPIIO\n"
_LACKING = {
    "no DXT": "MOD_DISABLE DXT_POSIX,DXT_MPIIO\n",
    "memory full": f"{_DXT}MAX_RECORDS 16 DXT_POSIX,DXT_MPIIO\n",
    "cut short": _DXT,
}
"""Logs that must be refused, by what Darshan's own configuration says."""


@dataclass(frozen=True)
class Advised:
    """One program: what was predicted from its log, what from nvio's traces, and what came."""

    compared: Compared
    from_traces: dict[str, Any] | str

    @property
    def right(self) -> bool:
        """Whether following the advice loses less than 20 % to the other choice."""
        return self.compared.right in (None, Kept.HOLDS)

    @property
    def apart(self) -> float | None:
        """The log's predicted I/O time over that of the traces."""
        if isinstance(self.from_traces, str):
            return None
        log, own = (
            of["cached_io_seconds"]["median"] for of in (self.compared.predicted, self.from_traces)
        )
        return float(log / own)


def judged(found: list[Advised], refused: dict[str, str], lacking: dict[str, str | None]) -> Found:
    """Count right advice; a program whose log is refused had none.

    Args:
        lacking: of logs that lack something, why each was refused; None where it was not.
    """
    right = sum(one.right for one in found)
    asked = len(found) + len(refused)
    effects = Counter(one.compared.right for one in found)
    apart = [one.apart for one in found if one.apart is not None]
    alike = sum(
        one.compared.predicted["verdict"] == one.from_traces["verdict"]
        for one in found
        if not isinstance(one.from_traces, str)
    )
    said_no = sum(why is not None for why in lacking.values())
    figure = (
        f"advice right for {right} of {asked} programs ({effects[Kept.HOLDS]} of"
        f" {effects[Kept.HOLDS] + effects[Kept.FAILS]} with an effect over 20 %); from nvio's own"
        f" traces of the same runs the same advice for {alike} of {len(apart)}, I/O times predicted"
        f" from the log {median(apart) if apart else 0:.2f} times theirs in the median"
        f" ({min(apart, default=0):.2f} to {max(apart, default=0):.2f}); logs that lack something"
        f" refused: {said_no} of {len(lacking)}"
    )
    data = {
        "programs": {
            one.compared.program: {
                "plain_s": one.compared.plain,
                "cached_s": one.compared.cached,
                "predicted": one.compared.predicted,
                "predicted_from_traces": one.from_traces,
                "effect": one.compared.effect.estimate,
                "right": one.right,
            }
            for one in found
        },
        "refused": refused,
        "lacking": lacking,
    }
    wrong = effects[Kept.FAILS] + len(refused)
    if not asked or asked - wrong < _RIGHT * asked or said_no < len(lacking):
        kept = Kept.FAILS
    else:  # what is undecided may be right
        kept = Kept.HOLDS if right >= _RIGHT * asked else Kept.INCONCLUSIVE
    return Found(figure, data, counted=kept)


def _runtime() -> Path:
    """Darshan's library, to be preloaded."""
    found = shutil.which("darshan-config")
    prefix = os.environ.get("DARSHAN_PREFIX") or (found and str(Path(found).parents[1]))
    library = Path(prefix or "/usr") / "lib/libdarshan.so"
    if not library.exists():
        raise TrialError(
            f"Darshan's runtime is not here: no {library}",
            "build a release of it with mpicc.mpich (no registry has one), and set DARSHAN_PREFIX",
        )
    return library


def _traced(
    calibrated: Calibrated, grid: Grid, folder: Path, configuration: str
) -> tuple[Path, Path]:
    """Run a program once under both; its Darshan log and its traces."""
    log, traces, configured = (folder / name for name in ("job.darshan", "traces", "darshan.conf"))
    configured.write_text(configuration)
    env = {
        "LD_PRELOAD": str(_runtime()), "DARSHAN_LOGFILE": str(log),
        "DARSHAN_CONFIG_PATH": str(configured),
    }  # fmt: skip
    calibrated.record(grid, traces, env)
    if not log.exists():
        raise TrialError(f"Darshan left no log of {grid.name}", f"is {_runtime()} for MPICH?")
    return log, traces


_READER = {"PATH": f"{Path(sys.executable).parent}:{PATH}"}
"""With pydarshan."""


def _lacking(calibrated: Calibrated, grid: Grid) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, configuration in _LACKING.items():
        with tempfile.TemporaryDirectory(dir=calibrated.site.scratch) as scratch:
            log, _ = _traced(calibrated, grid, Path(scratch), configuration)
            if name == "cut short":
                whole = log.read_bytes()
                log.unlink()
                log.write_bytes(whole[: int(_CUT * len(whole))])
            said = calibrated.predicted(log, _READER)
            found[name] = said if isinstance(said, str) else None
    return found


def advice(workshop: Workshop) -> Found:
    """C12: ten programs, and logs that lack something."""
    _runtime()
    found: list[Advised] = []
    refused: dict[str, str] = {}
    lacking: dict[str, str | None] = {}
    with closing(on_each(workshop, GRIDS)) as places:
        for calibrated in places:
            for grid in GRIDS[calibrated.kind]:
                name = f"{calibrated.kind} {grid.name}"
                with tempfile.TemporaryDirectory(dir=calibrated.site.scratch) as scratch:
                    log, traces = _traced(calibrated, grid, Path(scratch), _DXT)
                    predicted = calibrated.predicted(log, _READER)
                    own = calibrated.predicted(traces)
                if isinstance(predicted, str):
                    refused[name] = predicted
                    workshop.say(f"{name}: {predicted}")
                    continue
                found.append(Advised(calibrated.compared(grid, predicted), own))
                workshop.say(
                    f"{name}: {predicted['verdict']}, plain over nvio"
                    f" {found[-1].compared.effect.estimate:.2f}"
                )
            if calibrated.kind == "throttled":
                lacking = _lacking(calibrated, Grid("write", "random", 4096, 1, 16 * _MIB))
    return judged(found, refused, lacking)
