"""Which run a result is: the same for its copies, and what joins tables of many runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tare import machine
from tare.record import Record


@dataclass(frozen=True)
class Identity:
    """A run, where and when it was made, and by which Tare."""

    id: str
    """16 hex digits. The same for a copy and while it goes on: of its plan and the first line of
    its trials, which stays though that trial is tried again."""
    title: str
    machine: str
    """12 hex digits: of the processor, how many, whether it is virtual, and memory to the GiB."""
    machine_words: str
    version: str | None
    """Of Tare, as is the commit."""
    commit: str | None
    """None where it ran from no checkout; with `+changes` where that had any."""
    began: datetime
    """Start of the first trial: UTC, without a zone."""


def identify(record: Record) -> Identity:
    """Tell which run a result is. It needs a trial.

    Raises:
        UsageError: its plan or its fingerprint cannot be read.
    """
    fingerprint = record.fingerprint
    told = fingerprint.whole.get("tare") or {}
    where = _machine(fingerprint.whole)
    return Identity(
        id=run_id(record.folder),
        title=record.plan.experiment.title,
        machine=short_hash(where),
        machine_words=_words(where, fingerprint.system),
        version=told.get("version"),
        commit=told.get("commit"),
        began=moment(json.loads(_first_trial(record.folder))["started"]),
    )


def run_id(folder: Path) -> str:
    """Sixteen hex digits that a result and its copies have in common, and no other run has."""
    plan = (folder / "plan.json").read_bytes()
    return hashlib.sha256(plan + b"\n" + _first_trial(folder)).hexdigest()[:16]


def _first_trial(folder: Path) -> bytes:
    with (folder / "trials.ndjson").open("rb") as file:
        return file.readline()


def short_hash(alike: object) -> str:
    """Twelve hex digits of what can be written as JSON, in whatever order its keys are."""
    text = json.dumps(alike, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def moment(text: str) -> datetime:
    """A time as trials tell it, of UTC and without a zone."""
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found


def _machine(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Which machine a fingerprint is of; memory to the GiB: a kernel keeps some for itself."""
    known = {key: value for key, (value, _) in machine.unlike(whole, {}).items()}
    found = {key: known.get(key) for key in machine.IDENTITY}
    found["cpu.usable"] = machine.counted(found["cpu.usable"])
    memory = found.pop("memory_bytes")
    return {**found, "memory_gib": None if memory is None else round(memory / (1 << 30))}


def _words(where: Mapping[str, Any], system: str | None) -> str:
    model, usable = where["cpu.model"], where["cpu.usable"]
    memory = where["memory_gib"]
    known = [
        model,
        f"{usable} processors" if usable else None,
        f"{memory} GiB" if memory else None,
        system,
    ]
    return ", ".join(part for part in known if part) or "machine not recorded"
