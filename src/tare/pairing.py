"""Cells of a plan by patterns of their names, each with what it is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tare.plan import Plan


def paired(plan: Plan, cells: str, against: str | None = None) -> list[tuple[str, str]]:
    """Name pairs of cells: `*` stands for any text, in `against` for the same text, in order.

    Example: `qemu/*/64B/*` and `native/*/64B/*`; or `{1}/icmp/{3}`, by
    number; `{0}` is the whole name.

    Args:
        plan: whose cells they are.
        cells: one cell, or those of a pattern.
        against: the pattern of the others; what the plan compares with where None.

    Returns:
        Pairs of which the plan has both; repetitions of a cell apart.
    """
    ids = {cell.id for cell in plan.cells if cell.replica == 1}
    usual = {c.cell: c.against for c in plan.comparisons if c.kind == "effect"}
    pattern = re.escape(cells).replace(r"\*", "(.*)")
    found = []
    for cell in (cell.id for cell in plan.cells if cell.replica == 1):
        match = re.fullmatch(pattern, cell)
        if match is not None:
            other = usual.get(cell, "") if against is None else _filled(against, match)
            if other in ids:
                found.append((cell, other))
    return found


def _filled(pattern: str, match: re.Match[str]) -> str:
    texts: Iterator[str] = iter(match.groups())
    last = ""

    def text(hole: re.Match[str]) -> str:
        nonlocal last
        if hole[1]:
            return match[int(hole[1])]
        # One text may be wanted again and again.
        last = next(texts, last)
        return last

    return re.sub(r"\*|\{([0-9])\}", text, pattern)
