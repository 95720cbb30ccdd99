"""What a reader sees of an analysis: one HTML page, a summary for the terminal, JSON."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from tare import lines
from tare.errors import TareError

if TYPE_CHECKING:
    from tare.analysis import Analysis

__all__ = ["as_json", "render", "markdown", "write"]


def markdown(analysis: Analysis) -> str:
    """The values of every cell, as a table in Markdown; empty where the workload shows none."""
    from tare.report import tables, wording  # noqa: PLC0415
    from tare.report.markup import escaped  # noqa: PLC0415
    from tare.report.markup import table as rows_of  # noqa: PLC0415

    table = tables.shown(analysis, wording.names_of(analysis))
    if table is None:
        return ""
    columns, *rows = ([*map(escaped, row)] for row in (table.columns, *table.rows))
    return "".join(f"{line}\n" for line in rows_of(columns, rows, left=1))


def render(analysis: Analysis) -> str:
    """Draw the page of a result; see `page.render`."""
    from tare.report import page  # noqa: PLC0415 - whoever writes numbers alone needs no analysis

    return page.render(analysis)


def write(page: str, path: Path, *, follow: bool = True) -> None:
    """Write a page into a file, as `lines.put`.

    Raises:
        TareError: it cannot be written.
    """
    try:
        lines.put(path, page.encode(), follow=follow)
    except OSError as error:
        raise TareError(f"cannot write the report {path}: {error.strerror}") from error


def as_json(analysis: Analysis) -> dict[str, Any]:
    """All that the report says, as JSON; times in ns. Trials are in the record and stay there."""
    told = [field.name for field in fields(analysis) if field.name not in _IN_THE_RECORD]
    return {name: to_jsonable_python(getattr(analysis, name)) for name in (*told, *_MADE)}


_IN_THE_RECORD = ("folder", "sessions", "trials")
_MADE = ("growths", "model", "beside", "statistics", "response_times", "subjects")
"""Told beside an analysis' fields."""
