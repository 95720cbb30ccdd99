"""Tables for a terminal, of words and figures: however narrow it is, no figure is cut.

Rich squeezes words to nothing and then cuts what must not be folded, so that 1128 reads 11.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_BETWEEN = 2
_FOLDED = 16
"""Columns that words are left with before figures go into a table below."""


class Columns:
    """A table; where it is too wide, several, one below the other, each with the key's column.

    Args:
        headings: of its columns; what is neither text nor figure draws itself in any width.
        words: which hold words, and are folded; the others hold figures.
        key: which tells a row from others.
    """

    def __init__(self, *headings: RenderableType, words: Collection[int], key: int = 0) -> None:
        self._rows: list[list[RenderableType]] = []
        self._words = words
        self._key = key
        self.add_row(*headings)

    def add_row(self, *cells: RenderableType) -> None:
        """Add a cell a column."""
        self._rows.append([Text(one) if isinstance(one, str) else one for one in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = [self._least(place) for place in range(len(self._rows[0]))]
        for part in self._parts(options.max_width, least):
            table = Table(box=None, pad_edge=False)
            for place in part:
                figures = place not in self._words
                room = options.max_width - len(part) * _BETWEEN
                table.add_column(
                    self._rows[0][place],
                    justify="right" if figures else "left",
                    no_wrap=figures and least[place] < room,
                    overflow="fold",
                )
            for row in self._rows[1:]:
                table.add_row(*(row[place] for place in part))
            yield table

    def _parts(self, width: int, least: Sequence[int]) -> Iterator[list[int]]:
        """The columns of each table."""
        part: list[int] = []
        for place, own in enumerate(least):
            taken = sum(least[one] + _BETWEEN for one in part)
            full = taken + own > width and part not in ([], [self._key])
            if full and place != self._key:
                yield part
                part = [self._key]
            if place not in part:
                part.append(place)
        yield part

    def _least(self, place: int) -> int:
        """What a column takes, its words folded."""
        cells = (row[place] for row in self._rows)
        longest = max((one.cell_len for one in cells if isinstance(one, Text)), default=_FOLDED)
        return min(longest, _FOLDED) if place in self._words else longest
