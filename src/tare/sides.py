"""What `compare` holds against each other: runs of Tare, or what runs of another tool left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tare import foreign, machine, suite
from tare.analysis.sessions import Sessions, instrument_floor
from tare.cell import Cell
from tare.errors import UsageError
from tare.foreign import criterion
from tare.identity import run_id
from tare.progress import unfinished
from tare.record import Record
from tare.workloads import Statistic


class Run(ABC):
    """One run of some benchmarks: cells of Tare's, or what another tool calls its own."""

    folder: Path
    """Where it lies; a file, of most other tools."""
    names: Mapping[Hashable, str]
    """What makes a cell the same cell in another run -> its name in this one."""
    summary: str
    """What a cell is summarised by."""
    margin: float
    """Of equivalence, as a fraction."""
    conditions: Mapping[str, Any]
    """Machine and versions, as far as it tells."""
    settings: Mapping[str, Any]
    """Of every session."""
    notes: Sequence[str] = ()
    unfinished: str | None = None
    """That it has not ended, if so: its values are of fewer blocks than were planned."""
    identity: str
    """The same for the run's copies, and for no other run."""

    @abstractmethod
    def statistic(self, key: Hashable) -> Statistic:
        """What is measured of a cell."""

    @abstractmethod
    def values(self, key: Hashable) -> Sequence[float | None]:
        """A cell's values within the run, in the statistic's unit; None of what failed."""

    @abstractmethod
    def level(self, key: Hashable) -> float | None:
        """The run's one value of a cell: the geometric mean."""

    def failed(self, key: Hashable) -> bool:
        """Whether a trial of a cell failed, if the run has the cell."""
        return False

    def floor(self, key: Hashable) -> float | None:
        """The smallest difference that the instrument could tell there, in ns; None if unknown."""
        return None

    def accelerators(self, key: Hashable) -> Iterable[str]:
        """What ran a guest's instructions; nothing without a guest."""
        return ()


class TareRun(Run):
    """A result of Tare."""

    def __init__(self, record: Record) -> None:
        plan = record.plan
        self.folder = record.folder
        self.identity = _identity(record.folder)
        self.summary = plan.experiment.statistic
        self.margin = plan.experiment.margin_share
        self.conditions = record.fingerprint.whole
        self.settings = {**dict(plan.session), **plan.of_workload, **plan.experiment.manner}
        self._plan, self._sessions = plan, Sessions(record)
        self.unfinished = unfinished(record, self._sessions.trials)
        self._cells: dict[Hashable, Cell] = {
            tuple(sorted(cell.levels.items())): cell for cell in plan.cells if cell.replica == 1
        }
        self.names = {key: cell.id for key, cell in self._cells.items()}

    def statistic(self, key: Hashable) -> Statistic:
        """The declared one."""
        found: Statistic = self._plan.workload.statistics[self.summary]
        return found

    def values(self, key: Hashable) -> Sequence[float | None]:
        """Of each session."""
        return self._sessions.column(self.names[key], self.summary)

    def level(self, key: Hashable) -> float | None:
        """The geometric mean over its sessions."""
        return self._sessions.level(self.names[key], self.summary)

    def failed(self, key: Hashable) -> bool:
        """Of its trials on record."""
        trials = self._sessions.trials_of(self.names.get(key, ""))
        return any(trial.status == "failed" for trial in trials)

    def floor(self, key: Hashable) -> float | None:
        """The calibrated instrument's, of times that it took."""
        return instrument_floor([(self._sessions, self.names[key])])

    def accelerators(self, key: Hashable) -> Iterable[str]:
        """Of its trials."""
        return self._sessions.accelerators(self.names[key])


class ToolRun(Run):
    """What one run of another tool left."""

    def __init__(self, path: Path) -> None:
        self.tool, found = foreign.load(path)
        self.folder = path
        self.identity = str(path.resolve())
        self.names = {name: name for name in found.benchmarks}
        self.summary = f"{self.tool.value} ({self.tool.name})"
        self.margin = _MARGIN
        self.conditions = found.conditions
        self.settings = {}
        self.notes = [f"{path}: {note}" for note in found.notes]
        self._benchmarks = found.benchmarks

    def statistic(self, key: Hashable) -> Statistic:
        """As the tool says."""
        return self._benchmarks[self.names[key]].statistic

    def values(self, key: Hashable) -> Sequence[float | None]:
        """One of each process that was started; of one process alone, what it repeated."""
        return self._means(key)

    def _means(self, key: Hashable) -> list[float]:
        restarts = self._benchmarks[self.names[key]].restarts
        return list(restarts[0]) if len(restarts) == 1 else [float(np.mean(r)) for r in restarts]

    def failed(self, key: Hashable) -> bool:
        """Of its executions, where the tool tells."""
        return key in self.names and self._benchmarks[self.names[key]].failed

    def level(self, key: Hashable) -> float | None:
        """The geometric mean of those."""
        return float(np.exp(np.mean(np.log(self._means(key)))))


_MARGIN = 0.03
"""Of equivalence, where no experiment declares one: as experiments do by default."""


def runs_of(path: Path) -> list[Run]:
    """The runs of a side: a result, or every result that a folder holds; likewise of other tools.

    Raises:
        UsageError: it is neither, or a suite's result, or runs of several tools, or one run twice.
    """
    if (path / "plan.json").is_file() or suite.is_result(path):
        return [TareRun(Record(path))]
    # What begins with a dot is no run: one that was killed while it was being made.
    if inside := sorted(plan.parent for plan in path.glob("[!.]*/plan.json")):
        results = [TareRun(Record(result)) for result in inside]
        _refuse_copies(results)
        return [*results]
    files = sorted(path.glob("[!.]*.json")) or sorted(
        folder for folder in path.glob("[!.]*") if any(folder.glob("**/new/sample.json"))
    )
    # A folder of Criterion has folders of its own, of each benchmark or group.
    whole = not path.is_dir() or not files or criterion.is_whole(path)
    runs: list[Run] = [ToolRun(one) for one in ([path] if whole else files)]
    _refuse_copies(runs)
    if len({run.summary for run in runs}) > 1:
        raise UsageError(f"{path} holds results of several tools", "give each a folder of its own")
    return runs


def _refuse_copies(runs: Iterable[Run]) -> None:
    """How much runs differ is not told by one run that lies there twice."""
    seen: dict[str, Path] = {}
    for run in runs:
        first = seen.setdefault(run.identity, run.folder)
        if first is not run.folder:
            raise UsageError(
                f"{run.folder} is a copy of {first}", "remove one of them: runs are counted"
            )


def _identity(result: Path) -> str:
    """What a result has in common with its copies; one that has not begun is itself alone."""
    trials = result / "trials.ndjson"
    begun = trials.is_file() and trials.stat().st_size
    return run_id(result) if begun else str(result.resolve())


def refuse_shared(sides: Sequence[Sequence[Run]]) -> None:
    """Refuse a run that is on two sides: held against itself it is as fast, whatever it measured.

    A side of one run gives no verdict, and may be looked at as one likes.

    Raises:
        UsageError: a side of several runs has one that an earlier such side has.
    """
    seen: dict[str, tuple[int, Path]] = {}
    for place, side in enumerate(runs for runs in sides if len(runs) > 1):
        for run in side:
            first, folder = seen.setdefault(run.identity, (place, run.folder))
            if first != place:
                copy = "" if run.folder == folder else f", as a copy of {folder}"
                raise UsageError(
                    f"{run.folder} is on both sides{copy}: a run cannot be held against itself",
                    "name the folders of two versions",
                )


def side_name(runs: Sequence[Run]) -> str:
    """What a side is called: its folder, the runs' or the one run's own."""
    return str(runs[0].folder if len(runs) == 1 else runs[0].folder.parent)


def levels(runs: Sequence[Run], key: Hashable) -> npt.NDArray[np.float64]:
    """One value a run; of one run alone, its own values. Those that failed are left out."""
    found = runs[0].values(key) if len(runs) == 1 else [run.level(key) for run in runs]
    return np.array([value for value in found if value is not None], dtype=np.float64)


def differing_within(runs: Sequence[Run]) -> tuple[str, ...]:
    """What differs among the runs of one side, which are then not of one version."""
    first, *others = ({**run.conditions, "session": run.settings} for run in runs)
    differing = (machine.unlike(first, other) for other in others)
    return tuple(dict.fromkeys(key for keys in differing for key in keys))


def refuse_unlike(a: Run, b: Run, *, across_machines: bool) -> None:
    """Refuse what no ratio can be of: other tools, other statistics, other machines.

    Raises:
        UsageError: so it is.
    """
    if a.summary != b.summary:
        raise UsageError(
            f"{a.folder} has the {a.summary}, and {b.folder} the {b.summary}: they have no ratio",
            "compare results of one tool and one statistic",
        )
    unlike = machine.unlike(a.conditions, b.conditions)
    other = machine.another(a.conditions, b.conditions)
    other |= {key: unlike[key] for key in _THEIR_IDENTITY if key in unlike}
    if other and not across_machines:
        shown = "; ".join(f"{key}: {this} and {that}" for key, (this, that) in other.items())
        raise UsageError(
            f"{a.folder} and {b.folder} come from different machines ({shown}): a ratio would be"
            " theirs, not the programs'",
            "run both on one machine, or add --across-machines to compare the machines",
        )


_THEIR_IDENTITY = (
    "run_machine",
    "host_name",
    "num_cpus",
    "hostname",
    "cpu_model_name",
    "cpu_count",
)
"""What of other tools' conditions makes it another machine."""
