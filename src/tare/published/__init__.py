"""The papers' figures as data, each with its source and with what was measured.

They are what the reports set beside their own results. Nothing is read off unlabelled bars.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

from pydantic import BaseModel, ConfigDict, model_validator
from ruamel.yaml import YAML

__all__ = ["Figure", "Paper", "Table", "papers"]


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


class Paper(BaseModel):
    """One paper."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    """The letter by which the documentation calls it."""
    title: str
    authors: str
    workload: str
    """The workloads of Tare that measure what it measured."""
    apparatus: Mapping[str, str]
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()

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
    found = {}
    for file in sorted(resources.files(__package__).iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            document = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
            paper = Paper.model_validate(document)
            found[paper.paper] = paper
    return found
