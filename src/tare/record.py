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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from tare.accounting import Account
from tare.errors import TareError, UsageError
from tare.plan import Plan

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Measurement:
    """What a workload returns of one trial, beside the samples that it has written."""

    counters: Mapping[str, int]
    """sent, received, lost, duplicated, reordered, corrupted; late: after they counted as lost."""
    settings: Mapping[str, Any]
    """What both programs said of themselves: quality of service, transport options."""
    client: Account
    server: Account
    duration_ns: int
    """Of the measured part."""


class Trial(BaseModel):
    """One line of trials.ndjson."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    block: int
    position: int
    """Order within the block."""
    cell: str
    session: str
    """The setting up that it shared: a guest's boot."""
    started: str
    """UTC, ISO 8601."""
    seconds: float
    """Whole cost of the trial, set-up of its processes included."""
    status: Literal["ok", "failed"]
    error: str | None = None
    samples: str | None = None
    """Parquet file below samples/, or None where the trial failed."""
    counters: dict[str, int] = {}
    settings: dict[str, Any] = {}
    client: Account | None = None
    server: Account | None = None
    duration_ns: int | None = None
    facts: dict[str, Any] = {}
    """What the environment says of itself: accelerator, kernel, versions."""
    machine: dict[str, Any] = {}
    """Load, pressure and steal while it ran (machine.py)."""
    calibration: dict[str, Any] = {}
    """The instrument in this environment (clocks.py)."""

    @property
    def key(self) -> tuple[int, str]:
        """Identity of a trial: its block and its cell."""
        return self.block, self.cell


class Record:
    """A result folder, opened for reading; `writing` opens it for appending."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "plan.json").is_file():
            raise UsageError(
                f"{folder} is not a result: it has no plan.json",
                "give the folder that `tare run` printed (below results/)",
            )

    @classmethod
    def create(
        cls, folder: Path, experiment_text: str, plan: Plan, fingerprint: Mapping[str, Any]
    ) -> Record:
        """Make a new result folder.

        Raises:
            TareError: it exists, or cannot be made.
        """
        try:
            (folder / "samples").mkdir(parents=True)
        except OSError as error:
            raise TareError(f"cannot make the result folder {folder}: {error.strerror}") from error
        (folder / "experiment.yaml").write_text(experiment_text)
        _replace(folder / "environment.json", json.dumps(fingerprint, indent=1, default=str))
        # Last: its presence is what makes the folder a result.
        _replace(folder / "plan.json", plan.model_dump_json(indent=1))
        return cls(folder)

    @property
    def plan(self) -> Plan:
        """The plan as it was written before the first trial."""
        path = self.folder / "plan.json"
        try:
            return Plan.model_validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            raise UsageError(
                f"{path} cannot be read: {first['msg']} at {'.'.join(map(str, first['loc']))}",
                "it was written by another version, or changed; run the experiment again",
            ) from error

    @property
    def experiment_path(self) -> Path:
        """The experiment file as it was when the run began."""
        return self.folder / "experiment.yaml"

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The environment in which the run began."""
        found: dict[str, Any] = json.loads((self.folder / "environment.json").read_bytes())
        return found

    def samples_path(self, trial: Trial) -> Path | None:
        """Where the raw samples of a trial lie; None for a failed one."""
        return None if trial.samples is None else self.folder / "samples" / trial.samples

    def trials(self) -> tuple[Trial, ...]:
        """Every trial on record, in order; of a trial that was tried again, the last.

        Raises:
            UsageError: a whole line is not a trial.
        """
        found: dict[tuple[int, str], Trial] = {}
        path = self.folder / "trials.ndjson"
        if not path.exists():
            return ()
        lines = path.read_bytes().split(b"\n")
        # What follows the last newline was torn by a crash in mid-write: that trial does not exist.
        for number, line in enumerate(lines[:-1], start=1):
            try:
                trial = Trial.model_validate_json(line)
            except ValidationError as error:
                raise UsageError(
                    f"{path}:{number} is not a trial: {error.errors()[0]['msg']}",
                    "restore the file, or remove that line to measure the trial again",
                ) from error
            found[trial.key] = trial
        return tuple(found.values())

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Open for appending; one process at a time.

        Raises:
            TareError: another process is writing to this result.
        """
        with (self.folder / "lock").open("w") as lock:
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
    """Appends trials, each synced to disk before the next begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "trials.ndjson"
        # Unbuffered: what a full disk refused must not wait in memory for another try.
        self._file = path.open("ab", buffering=0)
        _cut_torn_line(path)

    def append(self, trial: Trial) -> None:
        """Make a trial part of the record. Its samples must be on disk by now.

        Raises:
            TareError: the disk is full; the record stays as it was before.
        """
        end = self._file.seek(0, os.SEEK_END)
        try:
            if trial.samples is not None:
                _sync(self._folder / "samples" / trial.samples)
                _sync(self._folder / "samples")
            line = trial.model_dump_json().encode() + b"\n"
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), end)
            raise TareError(
                f"cannot record a trial below {self._folder}: {error.strerror}",
                "make room, then resume with `tare run --resume FOLDER`: nothing is lost",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cut_torn_line(path: Path) -> None:
    """Drop what a crash left behind the last newline, so that the next line stands alone."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text)
    _sync(part)
    part.rename(path)
    _sync(path.parent)
