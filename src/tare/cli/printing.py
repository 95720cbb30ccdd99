"""How the command line prints: data on standard output, everything else on standard error.

Messages are not wrapped: a path or a command that is to be copied must stay on one line.
"""

from __future__ import annotations

import io
import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.markup import escape
from rich.table import Table

from tare.errors import TareError

_WIDE = 10_000
_CONTROLS = {
    code: 0x2400 + code if code < 0x20 else 0xFFFD
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t"
}
"""What a terminal would obey -> a picture of it."""


class _Inert(RenderHook):
    """Texts of results are not ours: whatever in them would command a terminal is shown instead."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Shown:
    renderable: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            yield (
                segment
                if segment.control
                else segment._replace(text=segment.text.translate(_CONTROLS))
            )


out = Console()
if not out.is_terminal:
    out.width = _WIDE  # a program that reads a table has no columns to fold names into
err = Console(stderr=True)
for _console in (out, err):
    _console.push_render_hook(_Inert())


class _Out(io.FileIO):
    """Standard output, where a full disk is an error in words, and a reader's end is none."""

    def write(self, data: Any, /) -> Any:
        """Write, or say why not."""
        try:
            while (written := super().write(data)) is None:  # another made it not block
                select.select([], [self], [])
            return written
        except OSError as error:
            # What is still held back goes nowhere, or the interpreter's own end would fail, too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                return len(data)  # the exit code is what it would be: a gate's is a verdict
            raise TareError(
                f"cannot write standard output: {error.strerror}",
                "make room, or write it elsewhere",
            ) from error


class _Err(io.FileIO):
    """Standard error, where what nobody reads is lost: an exit code is a verdict."""

    def write(self, data: Any, /) -> Any:
        """Write, or let it go."""
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written  # None: it would have to wait


@contextmanager
def told() -> Iterator[None]:
    """Have all that is printed on standard output written when the context is left.

    Raises:
        TareError: it cannot be written.
    """
    sys.stdout, sys.stderr = _through(_Out, sys.stdout), _through(_Err, sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()


def _through(kind: type[io.FileIO], usual: TextIO | None) -> io.TextIOWrapper:
    # Where it was closed, nothing is told.
    number = usual.fileno() if usual else os.open(os.devnull, os.O_WRONLY)
    # A character that this terminal has not, or a name that is no text, is shown by its number.
    return io.TextIOWrapper(
        io.BufferedWriter(kind(number, "wb", closefd=False)),
        usual.encoding if usual else "utf-8",
        "backslashreplace",
        line_buffering=kind is _Err or os.isatty(number),
    )


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


def table(*headings: str, rows: Iterable[Sequence[str]] = (), title: str = "") -> Table:
    """A table of plain text without lines, whose long cells are folded, never cut."""
    made = Table(box=None, pad_edge=False, title=escape(title) or None, title_justify="left")
    for heading in headings:
        made.add_column(escape(heading), overflow="fold")
    for row in rows:
        made.add_row(*map(escape, row))
    return made
