"""Tables and texts of results in Markdown, for pull requests and documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def escaped(text: str) -> str:
    """Text of a result in Markdown: no cell's end, no markup, and nobody is notified."""
    return _literal(" ".join(text.split()))


def prose(text: str) -> str:
    """Text of ours in Markdown, as `escaped`, but what it has between backticks is code."""
    parts = re.split(r"(`[^`|]+`)", " ".join(text.split()))
    return "".join(part if at % 2 else _literal(part) for at, part in enumerate(parts))


def _literal(text: str) -> str:
    text = re.sub(r"([\\`*_\[\]|~])", r"\\\1", text)
    for mark, name in (("&", "&amp;"), ("#", "&#35;"), ("<", "&lt;"), ("@", "&#64;")):
        text = text.replace(mark, name)
    return text


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> Iterator[str]:
    """The lines of a table.

    Args:
        columns: their headings.
        rows: of cells that are Markdown.
        left: how many columns hold text, and begin at the left; the others hold figures.
    """
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * left}{'--:|' * (len(columns) - left)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
