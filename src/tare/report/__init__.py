"""What a reader sees of an analysis: one HTML page, a summary for the terminal, JSON."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

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
    found: dict[str, Any] = TypeAdapter(Analysis).dump_python(
        analysis, mode="json", exclude={"trials", "folder"}
    )
    return found
