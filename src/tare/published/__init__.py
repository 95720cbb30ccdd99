"""The papers' figures as data, each with its source and with what was measured.

They are what the reports set beside their own results. Nothing is read off unlabelled bars.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator
from ruamel.yaml import YAML

__all__ = ["Claim", "Figure", "Paper", "Table", "papers"]


Letter = Literal["A", "B", "C", "D"]


class Figure(BaseModel):
    """One number of a paper, or a range."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    where: str
    """Figure, table or section."""
    measured: str
    unit: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    about: bool = False
    """Given in words, without a printed value."""

    @model_validator(mode="after")
    def _has_a_number(self) -> Figure:
        if self.value is None and self.low is None and self.high is None:
            raise ValueError(f"figure {self.id} has no number")
        return self

    @property
    def text(self) -> str:
        """The number as the paper gives it, with its unit."""
        about = "about " if self.about else ""
        if self.value is not None:
            return f"{about}{self.value:g} {self.unit}"
        if self.low is None:
            return f"up to {about}{self.high:g} {self.unit}"
        if self.high is None:
            return f"{about}{self.low:g} {self.unit} or more"
        return f"{about}{self.low:g} to {self.high:g} {self.unit}"


class Table(BaseModel):
    """A table of a paper, as printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    where: str
    measured: str
    unit: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | bool, ...], ...]

    @model_validator(mode="after")
    def _rectangular(self) -> Table:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.id} has rows of another length than its columns")
        return self


class Claim(BaseModel):
    """What a paper says of a figure or table of its, and how we ask it; or why we cannot.

    A whole interval decides: of a ratio of two cells, of their difference, or of a figure of ours
    that stands beside a published one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str
    """Figure, table or section."""
    says: str
    ours: str = ""
    """What we measure in its place, where that is not the same."""
    part: str = ""
    """Name of the experiment that asks it; one of the paper's `replay`."""
    cells: tuple[str, ...] = ("*",)
    """Patterns, as of `pairing.paired`."""
    against: str | None = None
    statistic: str | None = None
    """The experiment's own where None."""
    over: str | None = None
    """Of the other cell, or of the same one, where that is another statistic."""
    difference: bool = False
    """Whether the bounds are of a minus b, in the statistic's unit, instead of a over b."""
    figure: str = ""
    """The published figure beside which ours stand, in its unit; of these cells, none may lack."""
    least: float | None = None
    most: float | None = None
    not_asked: str = ""
    """Why it cannot be asked here, if so."""

    @model_validator(mode="after")
    def _asked_or_not(self) -> Claim:
        bounded = self.least is not None or self.most is not None
        if bool(self.not_asked) == (bool(self.part) and bounded):
            raise ValueError(f"{self.says!r} is asked by a part and a bound, or has a reason")
        return self


class Exhibits(BaseModel):
    """How many a paper has, numbered from 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    figures: int = 0
    tables: int = 0


class Paper(BaseModel):
    """One paper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: Letter
    """The letter by which the documentation calls it."""
    name: str
    """That of its file."""
    title: str
    authors: str
    workload: str
    """The workloads of Tare that measure what it measured."""
    apparatus: Mapping[str, str]
    exhibits: Exhibits
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    replay: tuple[str, ...] = ()
    """The experiments that ask what it says, as paths below `experiments/`, without their ends."""
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="after")
    def _asked_by_its_parts(self) -> Paper:
        if lost := {claim.part for claim in self.claims if claim.part} - self.parts.keys():
            raise ValueError(f"paper {self.paper} replays no {', '.join(sorted(lost))}")
        return self

    @property
    def parts(self) -> dict[str, str]:
        """Name of each experiment that asks what it says -> its path, as in `replay`."""
        return {path.rpartition("/")[2]: path for path in self.replay}

    def figure(self, figure_id: str) -> Figure:
        """Look a figure up by its id.

        Raises:
            KeyError: the paper has none of this id.
        """
        for figure in self.figures:
            if figure.id == figure_id:
                return figure
        raise KeyError(figure_id)


@cache
def papers() -> Mapping[str, Paper]:
    """Every paper by its letter."""
    found: dict[str, Paper] = {}
    for file in sorted(resources.files(__package__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            document = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
            name = file.name.removesuffix(".yaml")
            paper = Paper.model_validate({"name": name, **document})
            found[paper.paper] = paper
    return found
