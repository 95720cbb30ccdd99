"""What all tables share: their shape, and how cells are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tare.analysis import CellView
from tare.report import numbers
from tare.report.numbers import Value
from tare.report.wording import Names
from tare.stats import Estimate

UNRESOLVED = "unresolved"


DASH = "\N{EM DASH}"


@dataclass(frozen=True)
class Table:
    """A table; the first `heads` columns are row headings, the rest numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int = 2
    note: str = ""
    words: tuple[int, ...] = ()
    """Columns of running text, from 0."""
    conditioned: bool = True
    """Whether accelerator and mode matter to it, and stand below it."""

    @classmethod
    def of(
        cls, caption: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]], **more: Any
    ) -> Table | None:
        """The table of some rows; None where there are none."""
        found = tuple(rows)
        return cls(caption, columns, found, **more) if found else None


def cell_heads(view: CellView, names: Names) -> tuple[str, str]:
    """The two row headings of a cell."""
    place = names.place(view.cell)
    second = " (second arm of A/A)" if view.cell.replica > 1 else ""
    return place.environment, place.rest + second


def time(estimate: Estimate, like: float | None = None) -> Value:
    """An estimate in ns, rounded, in the unit that suits `like`."""
    return numbers.time(estimate.value, estimate.low, estimate.high, like=like)
