"""What is asked: an experiment file, read, validated and frozen.

Errors name file, line, field, what was found and what is allowed, all of them at once. The same
rows that validate (`Workload.factors`) give the JSON Schema that editors use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from tare import units
from tare.canonical import Problem, canonical
from tare.errors import UsageError

_SIZE_LIMIT = 1 << 20


class Blocks(BaseModel):
    """How many complete blocks are run, and when to stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: int = Field(default=8, ge=2, le=1000, description="Never stop before so many blocks.")
    max: int = Field(
        default=30, ge=2, le=1000, description="Never run more; then say 'inconclusive'."
    )
    until: str = Field(
        default="3 %", description="Stop once every interval's half-width is this small."
    )

    @field_validator("until", mode="before")
    @classmethod
    def _share(cls, value: object) -> str:
        try:
            units.fraction(value)
        except UsageError as error:
            raise ValueError(error.what) from error  # so that it is told with its line
        return str(value)

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is smaller than min ({self.min})")
        return self

    @property
    def until_percent(self) -> float:
        """Half-width in percent."""
        return units.fraction(self.until) * 100


Levels = Mapping[str, str]
Rule = Mapping[str, tuple[str, ...]]


class Experiment(BaseModel):
    """A workload, factors, a baseline and a stopping rule. All levels are in canonical form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, description="The question, as the report's headline.")
    description: str = ""
    workload: str = Field(default="request-reply", description="What is measured.")
    factors: dict[str, tuple[str, ...]] = Field(
        description="Factor -> levels; their cross product."
    )
    exclude: tuple[Rule, ...] = Field(default=(), description="Combinations that are left out.")
    baseline: Levels = Field(description="What every cell is compared with.")
    floor: Levels | None = Field(default=None, description="The cheapest stack, for the budget.")
    family: Rule | None = Field(
        default=None, description="The comparisons that are judged together; all where absent."
    )
    a_a: tuple[Rule, ...] | None = Field(
        default=None,
        description="Cells that are run twice to show the noise floor; chosen where absent.",
    )
    deadlines: tuple[str, ...] = Field(
        default=(), description="Deadlines whose shares are reported."
    )
    margin: str = Field(default="3 %", description="Differences within it count as equivalent.")
    statistic: str = Field(
        default="p50",
        description="What sessions are judged by; the workload's first where absent.",
    )
    blocks: Blocks = Blocks()
    causes: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Extra sessions of each cell in which operations are counted, for the budget by"
        " cause; after the blocks.",
    )
    session: dict[str, str] = Field(default_factory=dict, description="Settings of every session.")
    seed: int | None = Field(default=None, ge=0, lt=1 << 32, description="Of the order of trials.")

    @property
    def deadlines_ns(self) -> tuple[int, ...]:
        """The deadlines in nanoseconds."""
        return tuple(units.duration(deadline) for deadline in self.deadlines)

    @property
    def margin_share(self) -> float:
        """The margin of equivalence as a fraction."""
        return units.fraction(self.margin)


def load(path: Path) -> Experiment:
    """Read and validate an experiment file.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; every problem is named.
    """
    try:
        if path.stat().st_size > _SIZE_LIMIT:
            raise UsageError(f"{path} is larger than 1 MiB: not an experiment file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", "`tare list` shows the experiments that ship"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not a text file: {error.reason} at byte {error.start}"
        ) from error
    return parse(text, str(path))


def parse(text: str, name: str) -> Experiment:
    """Validate the text of an experiment file; `name` is what errors call it.

    Raises:
        UsageError: something in it is wrong; every problem is named with its line.
    """
    try:
        document = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{name}:{line}: not valid YAML: {error.problem}") from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, CommentedMap):
        raise UsageError(
            f"{name}:1: an experiment is a mapping with 'title', 'factors' and 'baseline'",
            "start from experiments/example.yaml",
        )
    problems, content = canonical(document, Experiment.model_fields)
    if not problems:
        try:
            return Experiment.model_validate(content)
        except ValidationError as error:
            problems = [_from_pydantic(item) for item in error.errors()]
    shown = "\n".join(
        f"{name}:{_line(document, p.path)}: {_where(p.path)}{p.message}" for p in problems
    )
    raise UsageError(shown, "`tare schema` prints what is allowed")


def _from_pydantic(item: Any) -> Problem:
    path = tuple(item["loc"])
    if item["type"] == "missing":
        return Problem(path, "is required")
    found = item.get("input")
    shown = f" (found {found!r})" if isinstance(found, str | int | float | bool) else ""
    return Problem(path, item["msg"].removeprefix("Value error, ") + shown)


def _line(document: CommentedMap, path: tuple[str | int, ...]) -> int:
    """Line of the deepest node along a path that the document has."""
    node: Any = document
    line = 1
    for step in path:
        if isinstance(node, CommentedMap) and step in node:
            line = node.lc.key(step)[0] + 1
        elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
            line = node.lc.item(step)[0] + 1
        else:
            break
        node = node[step]
    return line


def _where(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) + ": " if path else ""
