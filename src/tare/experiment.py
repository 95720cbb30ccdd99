"""What is asked: an experiment file, read, validated and frozen.

Errors name file, line, field, what was found and what is allowed, all of them at once. The same
rows that validate (`Workload.levels`) give the JSON Schema that editors use.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tare import document, units
from tare.bounds import Bounds
from tare.canonical import canonical
from tare.errors import UsageError
from tare.workloads.command.reading import Reading


def _is_share(value: object) -> str:
    """Keep a share as it was written.

    Raises:
        ValueError: it is none; told with its line.
    """
    try:
        units.fraction(value)
    except UsageError as error:
        raise ValueError(error.what) from error
    return str(value)


_Share = Annotated[str, BeforeValidator(_is_share)]


class Blocks(BaseModel):
    """How many complete blocks are run, and when to stop."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min: int = Field(default=8, ge=2, le=1000, description="Never stop before so many blocks.")
    max: int = Field(
        default=30, ge=2, le=1000, description="Never run more; then say 'inconclusive'."
    )
    until: _Share = Field(
        default="3 %", description="Stop once every interval's half-width is this small."
    )
    sessions: Annotated[int, Field(ge=1, le=100)] | Literal["auto"] = Field(
        default=1,
        description="Of each cell in a block; 'auto': cheap cells run several, as many as cost and"
        " spread of the first blocks ask for.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) is smaller than min ({self.min})")
        return self

    @property
    def until_percent(self) -> float:
        """Half-width in percent."""
        return units.fraction(self.until) * 100


class Gate(BaseModel):
    """Whether something got slower: the run ends as soon as it is clear, and its exit code says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fail_on: Literal["slower"] = Field(
        default="slower",
        description="Exit with 1 where anything of the family is slower than its baseline.",
    )
    significance: _Share = Field(
        default="5 %",
        description="How often equal versions may fail, over all looks and comparisons; how often"
        " one that is slower by the margin may pass.",
    )
    finds: _Share = Field(
        default="10 %", description="The slow-down whose time to be found is told in advance."
    )
    over: str | None = Field(
        default=None,
        description="A factor whose levels are replicas of each version, such as builds: they, and"
        " not the blocks, are what is counted.",
    )

    @field_validator("significance")
    @classmethod
    def _an_error(cls, value: str) -> str:
        if not 0.001 <= units.fraction(value) <= 0.5:
            raise ValueError(f"{value} is no error rate: between 0.1 % and 50 %")
        return value

    @property
    def significance_share(self) -> float:
        """The error as a fraction."""
        return units.fraction(self.significance)

    @property
    def finds_share(self) -> float:
        """The slow-down as a fraction."""
        return units.fraction(self.finds)


class Polite(BaseModel):
    """The most that a run may have of a machine that must not be disturbed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    processors: _Share = Field(
        default="50 %", description="Share of the processors that Tare may use."
    )
    memory: _Share = Field(default="50 %", description="Share of the machine's memory.")

    @field_validator("processors", "memory")
    @classmethod
    def _enough(cls, value: str) -> str:
        if units.fraction(value) < 0.01:
            raise ValueError(f"{value} is no share to run within: 1 % or more, and below 100 %")
        return value

    @property
    def bounds(self) -> Bounds:
        """Both as fractions."""
        return Bounds(units.fraction(self.processors), units.fraction(self.memory))


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
    commands: dict[str, str] = Field(
        default_factory=dict,
        description="Name -> command line, the levels of `command`: the same as that mapping among"
        " the factors.",
    )
    server: dict[str, str] = Field(
        default_factory=dict,
        description="The command line of what serves, as a text or a list of words; or a mapping of"
        " names to such lines, which are the levels of the factor `server`.",
    )
    client: dict[str, str] = Field(
        default_factory=dict, description="The same of what asks it, on the host."
    )
    read: dict[str, Reading] = Field(
        default_factory=dict,
        description="Statistics that the command prints: name -> how it is found.",
    )
    exclude: tuple[Rule, ...] = Field(default=(), description="Combinations that are left out.")
    baseline: Levels = Field(description="What every cell is compared with.")
    floor: Levels | None = Field(default=None, description="The cheapest stack, for the budget.")
    family: Rule | Literal["none"] | None = Field(
        default=None,
        description="The comparisons that are judged together; all where absent, and 'none' where"
        " nothing is to be judged.",
    )
    a_a: tuple[Rule, ...] | None = Field(
        default=None,
        description="Cells that are run twice to show the noise floor; chosen where absent.",
    )
    deadlines: tuple[str, ...] = Field(
        default=(), description="Deadlines whose shares are reported."
    )
    margin: str = Field(default="3 %", description="Differences within it count as equivalent.")
    gate: Gate | None = Field(
        default=None, description="Make the run a gate for a pipeline (docs/guides/gate.md)."
    )
    statistic: str = Field(
        default="p50",
        description="What sessions are judged by; the workload's first where absent.",
    )
    blocks: Blocks = Field(
        default=Blocks(), description="How often all cells are measured, and when to stop."
    )
    causes: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Extra sessions of each cell in which operations are counted, for the budget by"
        " operation, which takes two or more; after the blocks.",
    )
    session: dict[str, str] = Field(default_factory=dict, description="Settings of every session.")
    replays: Literal["A", "B", "C", "D"] | None = Field(
        default=None,
        description="The paper whose experiment this is, and whose figures the report sets beside"
        " its own: src/tare/published/README.md.",
    )
    polite: Polite | None = Field(
        default=None,
        description="Run within bounds, behind everything else here (docs/guides/polite.md).",
    )
    hosts: Literal["in-turn", "at-once"] = Field(
        default="in-turn",
        description="at-once: within a block, cells of which no part is on this machine are"
        " measured on several machines by ssh at once, one at a time on each; the machines must not"
        " share processors.",
    )
    seed: int | None = Field(default=None, ge=0, lt=1 << 32, description="Of the order of trials.")

    @property
    def options(self) -> tuple[str, ...]:
        """What `tare run` is given to run it so: a file need not have what was put on it."""
        found: tuple[str, ...] = ()
        if self.gate is not None:
            found = ("--fail-on", self.gate.fail_on, "--significance", self.gate.significance)
            found += ("--margin", self.margin)
        # Shares that are not alike can only be the file's.
        if self.polite is not None and self.polite.processors == self.polite.memory:
            found += ("--polite", "--share", self.polite.memory)
        return found

    @property
    def bounds(self) -> Bounds | None:
        """The most that the run may have of the machine; None without bounds."""
        return self.polite.bounds if self.polite else None

    @property
    def at_once(self) -> bool:
        """Whether several machines may be measured together."""
        return self.hosts == "at-once"

    @property
    def manner(self) -> dict[str, Any]:
        """How it is run, where that is not the usual way: what else is equal, this may differ."""
        found: dict[str, Any] = {}
        if self.polite is not None:
            found["polite"] = self.polite.model_dump()
        if self.at_once:
            found["hosts"] = self.hosts
        return found

    @property
    def deadlines_ns(self) -> tuple[int, ...]:
        """The deadlines in nanoseconds."""
        return tuple(units.duration(deadline) for deadline in self.deadlines)

    @property
    def margin_share(self) -> float:
        """The margin of equivalence as a fraction."""
        return units.fraction(self.margin)


def load(path: Path, *, recorded: bool = False) -> Experiment:
    """Read and validate an experiment file; see `parse`.

    Raises:
        UsageError: it cannot be read, or something in it is wrong; every problem is named.
    """
    return parse(document.read(path), str(path), recorded=recorded)


def parse(text: str, name: str, *, recorded: bool = False) -> Experiment:
    """Validate the text of an experiment file.

    Args:
        text: of the file.
        name: what errors call it.
        recorded: it was run already, perhaps by a Tare that let pass what today is refused because
            nothing would come of it.

    Raises:
        UsageError: something in it is wrong; every problem is named with its line.
    """
    written = document.parse(text, name)
    problems, content = canonical(written, Experiment.model_fields, recorded=recorded)
    if not problems:
        try:
            return Experiment.model_validate(content)
        except ValidationError as error:
            problems = document.problems(error, content)
    raise document.refusal(written, name, problems)
