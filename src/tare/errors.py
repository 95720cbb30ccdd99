"""What Tare says when something cannot be done: what happened, to what, and what to do next."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line; `tare --help` lists them."""

    OK = 0
    FAILED = 1
    """The command ran, and what it was asked to show does not hold (a claim, `--fail-on`)."""
    USAGE = 2
    """The command line or an input file is wrong; nothing was started."""
    UNAVAILABLE = 3
    """This machine lacks what the command needs, or room for it; the message says what to do."""
    TRIALS_FAILED = 4
    """The run ended, but some of its trials failed; the report shows which."""
    INCONCLUSIVE = 5
    """It ran, and what was measured is inconclusive: more data needed; the message says what."""
    DEFECT = 70
    """Something that no code here foresaw. Not Python's own 1, which is a verdict."""
    INTERRUPTED = 130
    """Ctrl-C: everything was cleaned up, and the run can be resumed."""


class TareError(Exception):
    """An error that a user can act on. Library code raises it; only the command line exits.

    Args:
        what: one sentence with its values: what happened, to which thing, in which phase.
        remedy: what to do next, or None where nothing can be advised.
    """

    exit_code: Exit = Exit.UNAVAILABLE  # never 1, which is a verdict, such as a gate's

    def __init__(self, what: str, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


def remedy_of(error: Exception) -> str:
    """Say what helps against what the system answered, if it is known."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "make room"
    if number in (errno.EMFILE, errno.ENFILE):
        return "allow more open files: ulimit -n"
    return "see to that, and run it again"


class UsageError(TareError):
    """An argument or an input file is wrong."""

    exit_code = Exit.USAGE


@dataclass(frozen=True)
class Fault:
    """One thing wrong in an input file."""

    line: int
    """From 1."""
    field: str
    """Its path in the file, such as `factors.transport.0`; empty where the file is no YAML."""
    message: str

    def __str__(self) -> str:
        said = f"{self.field}: {self.message}" if self.field else self.message
        return said.replace("\n", "\\n")  # what a file says must not look like a fault more


class FaultyFileError(UsageError):
    """An input file is wrong in one place or several.

    Args:
        name: of the file.
        faults: what is wrong with it, each with its place.
        remedy: as `TareError`.
    """

    def __init__(self, name: str, faults: Iterable[Fault], remedy: str | None = None) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"{name}:{f.line}: {f}" for f in self.faults), remedy)


class UnavailableError(TareError):
    """This machine cannot do what was asked."""


class TrialError(TareError):
    """One trial could not be measured. The run goes on; the trial is recorded as absent."""
