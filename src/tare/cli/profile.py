"""`tare run --profile`: where the wall time of a run went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tare.cli import printing

if TYPE_CHECKING:
    from tare.stopwatch import Spent, Stopwatch

_WIDE = 200
"""Where no terminal says how wide it is: a table that is folded cannot be read."""


def show(stopwatch: Stopwatch) -> None:
    """Print seconds by place and phase; on standard error, beside the run's own messages."""
    from tare.stopwatch import PHASES  # noqa: PLC0415 - so that --help is fast

    rows = stopwatch.rows()
    seen = [phase for phase in PHASES if any(phase in row.seconds for row in rows)]

    def shown(place: str, times: str, among: Sequence[Spent]) -> tuple[str, ...]:
        found = [_spent(phase, among) for phase in seen]
        return place, times, *map(_shown, found), _shown(sum(found))

    each = (shown(row.place, str(row.times or ""), [row]) for row in rows)
    every = (*each, shown("in all", "", rows))
    table = printing.table("seconds", "times", *seen, "in all", rows=every)
    for column in table.columns[1:]:
        column.justify = "right"
    if not printing.err.is_terminal:
        printing.err.width = _WIDE
    printing.err.print(table)
    measured, whole = _spent("measuring", rows), sum(_spent(phase, rows) for phase in seen)
    if whole:
        printing.say("", f"measuring: {measured:.1f} of {whole:.1f} s, {measured / whole:.0%}")


def _spent(phase: str, rows: Iterable[Spent]) -> float:
    return sum(row.seconds.get(phase, 0.0) for row in rows)


def _shown(seconds: float) -> str:
    return f"{seconds:.2f}" if seconds >= 0.005 else ""
