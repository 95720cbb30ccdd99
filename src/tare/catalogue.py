"""What there is to run, and what has been run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare import experiment, suite
from tare.errors import UsageError
from tare.record import Record


@dataclass(frozen=True)
class Listed:
    """One experiment file or one result folder."""

    kind: str
    path: Path
    title: str
    state: str


def experiments(folder: Path) -> Iterator[Listed]:
    """Every experiment file of a folder; a broken one with what is wrong."""
    for path in sorted(folder.glob("*.yaml")):
        try:
            whole = suite.load(path)
            if whole is not None:
                yield Listed("suite", path, whole.title, f"{len(whole.parts)} parts")
                continue
            found = experiment.load(path)
        except UsageError as error:
            yield Listed("experiment", path, "", error.what.splitlines()[0])
        else:
            yield Listed("experiment", path, found.title, found.workload)


def results(folder: Path) -> Iterator[Listed]:
    """Every result below a folder, the oldest first; a broken one with what is wrong."""
    for path in sorted(plan.parent for plan in _plans(folder)):
        try:
            record = Record(path)
            plan, trials = record.plan, record.trials()
        except UsageError as error:
            yield Listed("result", path, "", error.what.splitlines()[0])
            continue
        except PermissionError as error:  # another user's, which hides none of the others
            yield Listed("result", path, "", f"cannot be read: {error.strerror}")
            continue
        ok = sum(t.status == "ok" for t in trials)
        state = f"{ok} trials in {len({t.block for t in trials})} blocks"
        failed = len(trials) - ok
        yield Listed(
            "result", path, plan.experiment.title, f"{state}, {failed} failed" if failed else state
        )


def _plans(folder: Path) -> list[Path]:
    """What begins with a dot was killed while it was being made, or is a part of a job."""
    return [*folder.glob("[!.]*/plan.json"), *folder.glob("[!.]*/[!.]*/plan.json")]


def newest(folder: Path) -> Path:
    """The result below a folder, a suite's as a whole, that was written to last.

    Raises:
        UsageError: there is none.
    """
    found: dict[Path, float] = {}
    for plan in _plans(folder):
        whole = plan.parent.parent if suite.is_result(plan.parent.parent) else plan.parent
        trials = plan.with_name("trials.ndjson")
        written = (trials if trials.exists() else plan).stat().st_mtime
        found[whole] = max(written, found.get(whole, 0.0))
    if not found:
        raise UsageError(
            f"there is no result in {folder}/", "name its folder, as `tare run` printed it"
        )
    return max(found, key=lambda path: found[path])
