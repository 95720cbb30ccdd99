"""Whether a table has room in a terminal: where it has none, rich cuts figures in two, or short."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table

_ANY_WIDTH = 10_000


def fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    """Whether no column is narrower than its `min_width`, or its longest word."""
    least = Measurement.get(console, options.update(width=_ANY_WIDTH), table).minimum
    return least <= options.max_width
