"""What a reader sees of an analysis: one HTML page, a summary for the terminal, JSON."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from tare.analysis import Analysis
from tare.errors import TareError
from tare.report.overview import render as render_suite
from tare.report.page import render
from tare.report.terminal import summary

__all__ = ["as_json", "render", "render_suite", "summary", "write"]


def write(page: str, path: Path) -> None:
    """Write a page into a file, whole or not at all.

    Raises:
        TareError: it cannot be written.
    """
    part = path.with_suffix(path.suffix + ".part")
    try:
        part.write_text(page, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise TareError(f"cannot write the report {path}: {error.strerror}") from error


def as_json(analysis: Analysis) -> dict[str, Any]:
    """All that the report says, as JSON; times in ns. Trials are in the record and stay there."""
    told = [field.name for field in fields(analysis) if field.name not in _IN_THE_RECORD]
    return {name: to_jsonable_python(getattr(analysis, name)) for name in (*told, *_MADE)}


_IN_THE_RECORD = ("folder", "sessions", "trials")
_MADE = ("growths", "model", "beside", "statistics", "response_times", "subjects")
"""Told beside an analysis' fields."""
