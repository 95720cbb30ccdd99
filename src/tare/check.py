"""Whether an experiment file, or a suite of them, can be run somewhere: all that is wrong with it.

Nothing of this machine is asked: what of it can run here, `tare run FILE --dry-run` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tare import document, experiment, plan, repetition, suite
from tare.errors import Fault, FaultyFileError, UsageError
from tare.plan import Plan


@dataclass(frozen=True)
class Checked:
    """One file, read and laid out as far as that goes."""

    file: str
    title: str = ""
    plan: Plan | None = None
    """Of an experiment in which nothing is wrong."""
    faults: tuple[Fault, ...] = ()
    error: str = ""
    """What is wrong with the file as a whole, where that has no place in it."""
    remedy: str | None = None

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.faults and not self.error


def check(text: str, path: Path) -> Iterator[Checked]:
    """Check the text of an experiment file, or of a suite and each of its parts.

    Args:
        text: of the file.
        path: what errors call it; a suite's parts are looked for beside it.
    """
    try:
        found = suite.parse(text, path)
    except UsageError as error:
        yield _wrong(str(path), error)
        return
    if found is None:
        yield _experiment(text, str(path))
        return
    yield Checked(str(path), found.title)
    for part in found.files(path).values():
        try:
            inside = document.read(part)
        except UsageError as error:
            yield _wrong(str(part), error)
        else:
            yield _experiment(inside, str(part))


def _experiment(text: str, name: str) -> Checked:
    try:
        asked = experiment.parse(text, name)
        return Checked(name, asked.title, repetition.planned(plan.make(asked)))
    except UsageError as error:
        return _wrong(name, error)


def _wrong(name: str, error: UsageError) -> Checked:
    if isinstance(error, FaultyFileError):
        return Checked(name, faults=error.faults, remedy=error.remedy)
    return Checked(name, error=error.what, remedy=error.remedy)
