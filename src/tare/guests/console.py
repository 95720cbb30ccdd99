"""What a guest's console tells of its end. Guests may write anything to it."""

from __future__ import annotations

import re

__all__ = ["TAIL_LINES", "causes", "causes_and_tail", "lines"]

TAIL_LINES = 8
_CAUSE = re.compile(r"Kernel panic|BUG:|Oops:|Out of memory|init failed")
_CAUSES = 3


def causes_and_tail(text: str) -> list[str]:
    """Return the last lines, and above them those that tell why the kernel died."""
    tail = lines(text)[-TAIL_LINES:]
    return [cause for cause in causes(text) if cause not in tail] + tail


def causes(text: str) -> list[str]:
    """Return the last lines that may tell why the kernel died."""
    return [line for line in lines(text) if _CAUSE.search(line)][-_CAUSES:]


def lines(text: str) -> list[str]:
    """Return the lines that hold anything, without what cannot be printed."""
    stripped = (line.strip() for line in text.splitlines())
    return ["".join(c if c.isprintable() else "?" for c in line) for line in stripped if line]
