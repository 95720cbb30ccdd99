"""A number that a command prints, and how it is found there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from tare import units
from tare.errors import TrialError, UsageError
from tare.workloads import Statistic
from tare.workloads.command.executions import MOST_TOLD, Printed

_SHOWN = 300
_INSIDE = re.compile(r"[0-9](?:[.'_\u00a0\u2009\u202f]|[eE][+-]?)?\Z")
"""Of what stands before a number: it is only the end of one, such as 06 of 1.5e+06."""
_EXPONENT = re.compile(r"[0-9][eE]\Z")
_GROUPED = re.compile(r"(?<![0-9,.])[1-9][0-9]{0,2}(?:,[0-9]{3})*,\Z")
"""No column of a CSV: before that stands a further comma, or it has four digits."""


class Reading(BaseModel):
    """One number of each execution, which sessions are summarised and compared by."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    regex: str | None = Field(
        default=None,
        description="Matches it in what the command prints: its first group, or all of it; the last"
        " match counts. A second group is its unit, where that varies: `99% +([0-9.]+)(us|ms|s)`.",
    )
    path: str | None = Field(
        default=None,
        alias="json",
        description="Where it is in the JSON that the command prints: `jobs[0].read.iops`, or"
        ' `clat["99.000000"]` of a name with dots.',
    )
    unit: str = Field(default="1", description="Such as ms, MB, MB/s or 1/s; 1 of a plain number.")
    better: Literal["lower", "higher"] | None = Field(
        default=None, description="Higher of what is a second, lower of all else, where absent."
    )

    @field_validator("unit")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            units.scale(value)
        except UsageError as error:
            raise ValueError(error.what) from error  # so that it is told with its line
        return value

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from error
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Reading:
        if (self.regex is None) == (self.path is None):
            raise ValueError("say by `regex` or by `json` where the number stands")
        return self

    @property
    def statistic(self) -> Statistic:
        """The row of the statistic that it is."""
        unit, _ = units.scale(self.unit)
        better = self.better or ("higher" if unit in ("1/s", "B/s") else "lower")
        where = f"matches {self.regex}" if self.regex else f"stands at {self.path}"
        return Statistic(f"what {where} in what the command prints", unit, better)

    def of(self, name: str, stdout: Printed, stderr: Printed) -> float:
        """Find it in what an execution printed; in the statistic's unit.

        Raises:
            TrialError: it is not there, or no number.
        """
        unit: object = self.unit
        if self.regex:
            found, *more = _matched(self.regex, stdout, stderr)
            unit = next(iter(more), unit)
        else:
            found = _at(self.path, stdout)
        try:
            kind, scale = units.scale(str(unit))
            if kind != self.statistic.unit:
                raise UsageError(f"{unit} is no unit of it")
            value = float(found) * scale  # type: ignore[arg-type]
            if not math.isfinite(value):
                raise ValueError(f"{found} is no number")
        except (TypeError, ValueError, OverflowError, UsageError):
            instead = "" if found is None else f", but {found!r}, which is no number of that unit"
            raise TrialError(
                f"its output ended in {ending(stdout + stderr)!r}: no {name} was found there, by"
                f" {self.regex or self.path}{instead}{cut(stdout, stderr)}",
                "correct how `read` finds it, or the command",
            ) from None
        return value


def ending(output: str) -> str:
    """The end of what a command printed, for a message; of bytes that are no text little stays."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in output[-_SHOWN:]).strip()


def cut(*outputs: Printed) -> str:
    """Say of which outputs something is not there, and how to have it; nothing where all is."""
    return "".join(
        f"; the middle of its {one.length} bytes was not kept: have it write what is read alone, or"
        f" last, or no more than {MOST_TOLD} bytes"
        for one in outputs
        if one.rear >= 0
    )


def _matched(regex: str, *outputs: Printed) -> Sequence[str | None]:
    """The number, and its unit where that is matched, too; the last counts."""
    found = None
    for output in outputs:
        for match in re.finditer(regex, output, re.MULTILINE):
            # Before the second end it may not be the last; where that begins, not all of it.
            found = match if match.start() > output.rear else found
    if found is None:
        return (None,)
    _refuse_cut(regex, found)
    return found.groups() or (found[0],)


def _refuse_cut(regex: str, found: re.Match[str]) -> None:
    if regex.startswith("(?<"):  # it says itself what stands before
        return
    before = found.string[max(0, found.start() - _SHOWN) : found.start()]
    grouped = _GROUPED.search(before) and re.match("[0-9]{3}(?![0-9])", found[0])
    inside = found[0][:1].isdigit() and (_INSIDE.search(before) or grouped)
    if inside or (_EXPONENT.search(before) and re.match("[+-][0-9]", found[0])):
        whole = found.string[: found.start()].split()[-1] + found[0]
        raise TrialError(
            f"{regex} matched {found[0]!r}, which is only the end of {whole!r}",
            "have it match the whole number, and the command print it without separators; or match"
            " what stands before it, too",
        )


def _at(path: str | None, stdout: str) -> Any:
    try:
        found = json.loads(stdout)
        for quoted, step in re.findall(r"""\[["']([^"']+)["']\]|([^.\[\]$]+)""", path or ""):
            found = found[quoted or (int(step) if isinstance(found, list) else step)]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return None if isinstance(found, bool) else found
