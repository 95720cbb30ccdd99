"""Append-only raw results of a run: what was asked, planned, found and measured.

The layout is documented in docs/formats/results.md. A trial exists once its line is in
`trials.ndjson`, written and synced after its samples; a line torn by a crash is dropped on reading
and its trial is measured again. A failed trial has a line and no samples: absent, never zero.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationError

from tare import experiment as experiments
from tare import lines, workloads
from tare.accounting import Account, ThreadTime
from tare.clocks import Calibration
from tare.command import shell_line
from tare.environments import Facts
from tare.errors import TareError, UsageError
from tare.experiment import Experiment
from tare.levels import Levels, Settings
from tare.lines import Recorded
from tare.machine import Fingerprint
from tare.meanwhile import Meanwhile
from tare.plan import Plan
from tare.told import Told
from tare.variables import Digests

_LOCK = "lock"
_DIGESTS = "variables.json"
_RESTORE = "restore the file: without it nobody knows what was measured on what"


class Trial(Recorded):
    """One line of trials.ndjson."""

    file = "trials.ndjson"

    schema_version: Literal[1] = 1
    block: int
    position: int
    """From 0: order within its setting up."""
    cell: str
    repeat: int = 0
    """From 0: which of the cell's sessions in this block."""
    session: str
    """The setting up that it shared: a guest's boot."""
    started: str
    """UTC, ISO 8601."""
    seconds: float
    """Whole cost of the trial, set-up of its processes included."""
    status: Literal["ok", "failed"]
    error: str | None = None
    samples: str | None = None
    """Parquet file below samples/; None where the trial failed, or has no raw samples."""
    values: Mapping[str, float] = {}
    """Statistic -> value, for workloads that measure one number at a time."""
    counters: Mapping[str, int] = {}
    settings: Told = Told()
    """What the programs said of themselves."""
    client: Account | None = None
    server: Account | None = None
    duration_ns: int | None = None
    facts: Facts = Facts()
    """What the environment says of itself: accelerator, kernel, versions."""
    machine: Meanwhile = Meanwhile()
    """Load, pressure and steal while it ran."""
    beside: tuple[str, ...] = ()
    """Cells of other machines that were measured at some moment of it."""
    calibration: Annotated[Calibration | None, BeforeValidator(lambda told: told or None)] = None
    """The instrument in this environment; of a trial that did not begin, earlier versions wrote
    `{}`."""

    @property
    def key(self) -> tuple[int, str, int]:
        """Identity of a trial: its block, its cell, and which of its sessions there."""
        return self.block, self.cell, self.repeat

    @property
    def threads(self) -> tuple[ThreadTime, ...]:
        """Every thread that was accounted for, of both ends."""
        return tuple(t for party in (self.client, self.server) if party for t in party.threads)


class Loss(Recorded):
    """One line of losses.ndjson: a setting up that failed once all of its trials were on record.

    Such as where what its command was to keep could not be brought back.
    """

    file = "losses.ndjson"

    schema_version: Literal[1] = 1
    block: int
    session: str
    """As of its trials."""
    error: str

    @property
    def key(self) -> str:
        """Identity: its setting up."""
        return self.session


class CauseSession(Recorded):
    """One line of causes.ndjson: a session in which operations were counted (operations.py)."""

    file = "causes.ndjson"

    schema_version: Literal[1] = 1
    repeat: int
    cell: str
    error: str | None = None
    """Why there is nothing, if so."""
    unit_costs_ns: Mapping[str, float] = {}
    """Operation -> mean cost, as measured in the same setting up."""
    unit_medians_ns: Mapping[str, float] = {}
    """Operation -> median over batches of that cost: what a disturbance does not reach."""
    counts: Mapping[str, float] = {}
    """Operation -> number for each request."""
    mean_ns: float | None = None
    """Mean response time while counting: over the untraced mean, it is the inflation."""

    @property
    def key(self) -> tuple[int, str]:
        """Identity: its repeat and its cell."""
        return self.repeat, self.cell


class Resumption(Recorded):
    """One line of resumptions.ndjson: the run went on, on this machine and with these programs."""

    file = "resumptions.ndjson"

    schema_version: Literal[1] = 1
    resumed: str
    """UTC, ISO 8601."""
    fingerprint: Fingerprint

    @property
    def key(self) -> str:
        """Identity: its moment."""
        return self.resumed


class Course(Recorded):
    """One line of course.ndjson: how the run went on from a block, where that was not planned."""

    file = "course.ndjson"

    schema_version: Literal[1] = 1
    block: int
    """The first block that it is for."""
    sessions: dict[str, int]
    """Cell -> sessions of it in a block; one where it is not named."""
    stopped: tuple[str, ...] = ()
    """Cells that were not visited any more: their comparisons had met the target."""

    @property
    def key(self) -> int:
        """Identity: its first block."""
        return self.block


class Record:
    """A result folder, opened for reading; `writing` opens it for appending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "plan.json").is_file():
            if folder.suffix in (".yaml", ".yml") and folder.is_file():
                raise UsageError(
                    f"{folder} is a file, not a result",
                    f"to run it: {shell_line('tare', 'run', folder)}",
                )
            if parts := sorted(str(path.parent) for path in folder.glob("*/plan.json")):
                raise UsageError(
                    f"{folder} holds several results",
                    f"name one of them: {', '.join(parts)}",
                )
            raise UsageError(
                f"{folder} is not a result: it has no plan.json",
                "give the folder that `tare run` printed (below results/)",
            )

    @classmethod
    def create(
        cls,
        folder: Path,
        experiment_text: str,
        plan: Plan,
        fingerprint: Mapping[str, Any],
        *,
        numbered: bool = False,
        beside: bool = False,
    ) -> Record:
        """Make a new result folder; see `made`."""

        def fill(part: Path, _: Path) -> None:
            cls.write(part, experiment_text, plan, fingerprint)

        return cls(made(folder, fill, numbered=numbered, beside=beside))

    @staticmethod
    def write(
        folder: Path, experiment_text: str, plan: Plan, fingerprint: Mapping[str, Any]
    ) -> None:
        """Write what a result begins with.

        Raises:
            OSError: it cannot be written; FileExistsError where it has begun.
        """
        folder.mkdir(parents=True, exist_ok=True)
        making = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Two may want one folder at once; and what one leaves that was killed here is resumed
            # by making it again, since there is no plan yet to resume.
            fcntl.flock(making, fcntl.LOCK_EX)
            (folder / "samples").mkdir(exist_ok=_is_half_made(folder))
            lines.replace(folder / "experiment.yaml", experiment_text)
            lines.replace(
                folder / "environment.json", json.dumps(fingerprint, indent=1, default=str)
            )
            values = plan.workload.secrets(plan.session)
            if told := {name: value for name, value in values.items() if value is not None}:
                lines.replace(folder / _DIGESTS, Digests.of(told).model_dump_json(indent=1))
            # Last: its presence is what makes the folder a result.
            lines.replace(folder / "plan.json", plan.model_dump_json(indent=1))
        finally:
            os.close(making)

    @cached_property
    def plan(self) -> Plan:
        """The plan as it was written before the first trial."""
        path = self.folder / "plan.json"
        try:
            written = json.loads(path.read_bytes())
            # Earlier versions kept the experiment's text alone.
            if "experiment" not in written:
                written["experiment"] = experiments.load(self.experiment_path, recorded=True)
            asked = Experiment.model_validate(written["experiment"])
            of_it: dict[type[Levels], type[Levels]] = {}
            if asked.workload in workloads.by_name():
                workload = workloads.made(dict(asked))
                of_it = {Levels: workload.levels, Settings: workload.settings}
            return Plan.model_validate(written, context=of_it)
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{path} cannot be read: {_why(error)}",
                "it was written by another version, or changed: read it with that, or run it again",
            ) from error

    @property
    def experiment(self) -> Experiment:
        """What was asked, as it was validated when the run began."""
        return self.plan.experiment

    @property
    def experiment_path(self) -> Path:
        """The experiment file as it was when the run began, for people to read."""
        return self.folder / "experiment.yaml"

    @property
    def fingerprint(self) -> Fingerprint:
        """The environment in which the run began."""
        path = self.folder / "environment.json"
        try:
            return Fingerprint.model_validate_json(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", _RESTORE) from error
        except ValidationError as error:
            said = f"{path} is no fingerprint of a machine: {error.errors()[0]['msg']}"
            raise UsageError(said, _RESTORE) from error

    @property
    def digests(self) -> Digests | None:
        """Of the variables that the run was given by their names; None of none, or as untold."""
        path = self.folder / _DIGESTS
        try:
            return Digests.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None  # earlier versions kept none
        except (OSError, ValidationError) as error:
            raise UsageError(f"{path} cannot be read: {_why(error)}", _RESTORE) from error

    def samples_path(self, trial: Trial) -> Path | None:
        """Where the raw samples of a trial lie; None for a failed one."""
        return None if trial.samples is None else self.folder / "samples" / trial.samples

    def trials(self) -> tuple[Trial, ...]:
        """Every trial on record, in order; of a trial that was tried again, the last.

        Raises:
            UsageError: a whole line is not a trial.
        """
        return lines.read(self.folder, Trial)

    def losses(self) -> tuple[Loss, ...]:
        """What failed once its trials were on record, in order.

        Raises:
            UsageError: a whole line is not one.
        """
        return lines.read(self.folder, Loss)

    def causes(self) -> tuple[CauseSession, ...]:
        """Every counting session on record, in order.

        Raises:
            UsageError: a whole line is not one.
        """
        return lines.read(self.folder, CauseSession)

    def courses(self) -> tuple[Course, ...]:
        """How the run went on, in order of the blocks; the first is what was planned.

        Raises:
            UsageError: a whole line is not one.
        """
        planned = Course(block=0, sessions=dict(self.plan.sessions))
        return (planned, *lines.read(self.folder, Course))

    def course(self, block: int) -> Course:
        """How the run went on in a block."""
        return next(found for found in reversed(self.courses()) if found.block <= block)

    def resumptions(self) -> tuple[Resumption, ...]:
        """Every time that the run went on after it was stopped, in order.

        Raises:
            UsageError: a whole line is not one.
        """
        return lines.read(self.folder, Resumption)

    @property
    def being_written(self) -> bool:
        """Whether a run is writing to this result; False where the kernel does not tell."""
        try:
            found = (self.folder / _LOCK).stat()
            locks = Path("/proc/locks").read_text()
        except OSError:
            return False
        major, minor = os.major(found.st_dev), os.minor(found.st_dev)
        # To try the lock would be to hold it for a moment, and turn a run away that begins then.
        return f" {major:02x}:{minor:02x}:{found.st_ino} " in locks

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Open for appending; one process at a time.

        Raises:
            TareError: another process is writing to this result.
        """
        try:
            lock = (self.folder / _LOCK).open("w")
        except OSError as error:
            raise TareError(
                f"cannot write to {self.folder}: {error.strerror}",
                "make it writable, or copy it and resume the copy",
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise TareError(
                    f"another tare is writing to {self.folder}",
                    "wait for it, or start a new run",
                ) from error
            writer = Writer(self.folder)
            try:
                yield writer
            finally:
                writer.close()


class Writer:
    """Appends to a record, each line synced to disk before the next begins."""

    def __init__(self, folder: Path) -> None:
        self._samples = folder / "samples"
        kinds: tuple[type[Recorded], ...] = (Trial, Loss, CauseSession, Course, Resumption)
        self._files = {kind: lines.Appended(folder / kind.file) for kind in kinds}

    def append(self, row: Trial | Loss | CauseSession | Course | Resumption) -> None:
        """Make it part of the record. A trial's samples must be on disk by now.

        Raises:
            TareError: the disk is full; the record stays as it was before.
        """
        name = row.samples if isinstance(row, Trial) else None
        self._files[type(row)].append(row, *((self._samples / name, self._samples) if name else ()))

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


def _why(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{first['msg']} at {'.'.join(map(str, first['loc'])) or 'its top'}"


def made(
    folder: Path,
    fill: Callable[[Path, Path], object],
    *,
    numbered: bool = False,
    beside: bool = False,
) -> Path:
    """Make a result folder as `lines.make` does, and return it.

    Args:
        folder: new, or empty.
        fill: as of `lines.make`, as is `numbered`.
        numbered: whether NAME-2 and so on is made where there is one of that name.
        beside: whether other things may lie in it.

    Raises:
        TareError: it exists and is not empty, or cannot be made.
    """
    try:
        if not (numbered or beside) and folder.is_dir() and not _is_free(folder):
            raise FileExistsError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        return lines.make(folder, fill, numbered=numbered)
    except OSError as error:
        what = f"cannot make the result folder {folder}"
        if error.errno == errno.ENOTEMPTY and not _has_samples(folder):
            raise TareError(f"{what}: other things lie there", "name a new one: --out") from error
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            again = shell_line("tare", "run", "--resume", folder)
            raise TareError(f"{what}: it exists", f"name another, or go on: {again}") from error
        raise TareError(f"{what}: {error.strerror}", "name another: --out") from error


def _has_samples(folder: Path) -> bool:
    """Whether a result lies there, or the parts of a suite's."""
    return (folder / "samples").exists() or any(folder.glob("*/samples"))


def _is_free(folder: Path) -> bool:
    """Whether nothing of anybody's lies in a folder that is there."""
    found = {path.name for path in folder.iterdir()} - {"lost+found"}
    return not found or ("samples" in found and _is_half_made(folder))


def _is_half_made(folder: Path) -> bool:
    """Whether a folder is what a kill left of one in the making: it holds nothing of a run yet."""
    found = {path.name.partition(".")[0] for path in folder.glob("*")}
    begun = {"samples", "experiment", "environment", "variables", "plan"}
    return found <= begun and not (
        (folder / "plan.json").exists() or any((folder / "samples").glob("*"))
    )
