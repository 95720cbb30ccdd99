"""How the command line prints: data on standard output, everything else on standard error.

Messages are not wrapped: a path or a command that is to be copied must stay on one line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tare.errors import TareError

_WIDE = 10_000
out = Console()
if not out.is_terminal:
    out.width = _WIDE  # a program that reads a table has no columns to fold names into
err = Console(stderr=True)


def say(mark: str, text: str) -> None:
    """Print a message on standard error: a mark in rich's markup, then plain text."""
    said = escape(text)
    err.print(f"{mark} {said}" if mark else said, highlight=False, soft_wrap=True)


def show(text: str) -> None:
    """Print a plain line on standard output."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def heading(text: str) -> None:
    """Print a line that parts what follows from what came before."""
    if out.is_terminal:
        out.rule(escape(text), align="left")
    else:
        show(f"\n{text}")


def show_json(value: Any) -> None:
    """Print data for machines."""
    sys.stdout.write(json.dumps(value, indent=1, default=str) + "\n")


def show_error(error: TareError) -> None:
    """Say what happened, and what to do next."""
    say("[bold red]tare:[/]", error.what)
    if error.remedy:
        say("  [dim]→[/]", error.remedy)


def table(*headings: str, title: str | None = None) -> Table:
    """A table without lines whose long cells are folded, never cut."""
    made = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def add_row(to: Table, cells: Sequence[str]) -> None:
    """Add a row of plain text."""
    to.add_row(*(escape(cell) for cell in cells))


def minutes(seconds: float) -> str:
    """A duration as a person plans with it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
