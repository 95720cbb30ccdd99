"""What differs between two cells, and how much of the effect it can explain."""

from __future__ import annotations

from collections.abc import Iterable

from tare.analysis import Analysis
from tare.analysis.difference import Difference, OperationChange, ReadingChange
from tare.report import numbers
from tare.report.tables.table import DASH, Table
from tare.report.wording import Names, interval_text
from tare.stats import Interval
from tare.stats.shares import Share

_MOST_NAMED = 3
_LONGEST_FACT = 60


def differences(analysis: Analysis, names: Names) -> list[tuple[str, bool, list[str], list[Table]]]:
    """Every effect that was judged: a heading, whether it is explained, words, and tables."""
    said = []
    for found in analysis.differences:
        here, there = (names.place(cell).full for cell in (found.cell, found.against))
        tables = of_differences(found, here, there)
        said.append((f"{here} against {there}", found.explained, conclusion(found), tables))
    return said


def of_differences(found: Difference, here: str, there: str) -> list[Table]:
    """Every table of two cells that has something to say; its columns have the cells' names."""
    made = (make(found, here, there) for make in (_threads, _operations, _readings, _facts))
    return [table for table in made if table is not None]


def conclusion(found: Difference) -> list[str]:
    """Say whether the effect is explained, and by what; the first sentence is the verdict."""
    if not found.effect_found:
        return [
            "There is no effect to explain: the two cannot be told apart, so there is nothing that"
            " their differences could account for."
        ]
    said = []
    if not found.explained:
        ask = (
            "Ask for `causes`, or switch" if found.countable and not found.operations else "Switch"
        )
        said.append(
            "Cannot explain: nothing that was recorded makes up half of the effect."
            f" {ask} one difference at a time."
        )
    if found.threads is not None:
        named = [p for p in found.threads.parts if p.amount.excludes(0.0)][:_MOST_NAMED]
        parts = ", ".join(f"{p.name} {_share(p.share)}" for p in named) or "none that is certain"
        all_of_them = _share(found.threads.together.share)
        said.append(f"By where threads were: {parts}; all together {all_of_them}.")
        if not found.closes:
            said.append("One side's account cannot be expected to close: shares are bounds.")
    if found.operations_share is not None:
        parts = ", ".join(
            f"{o.name} {_share(o.share, bare=True)} ({_why(o)})"
            for o in found.operations[:_MOST_NAMED]
        )
        rest = 1.0 - found.operations_share
        said.append(
            f"By operations: {parts}; all together {numbers.share(found.operations_share).bare}"
            + (
                f", and {numbers.share(rest).bare} is not explained."
                if rest > 0
                else ", which overlap."
            )
        )
    if found.uncounted:
        said.append(f"Not known on one side, and in no sum: {', '.join(found.uncounted)}.")
    priced = [
        f"{reading.name} {_share(reading.share)}"
        for reading in found.readings
        if reading.share and (reading.share.estimate or 0.0) > 0.0
    ]
    if priced:
        parts = ", ".join(priced[:_MOST_NAMED])
        said.append(f"Beside the trials, at most: {parts}; these overlap with all of the above.")
    return said


def _threads(found: Difference, here: str, there: str) -> Table | None:
    """Where the threads were, the largest change first."""
    if found.threads is None:
        return None
    effect, together = found.threads.whole, found.threads.together

    def row(part: Share, one: str, other: str) -> tuple[str, ...]:
        change = str(interval_text(part.amount, "difference", effect.estimate))
        return part.name, one, other, change, _share(part.share)

    def end(interval: Interval) -> str:
        return str(interval_text(interval, "time", effect.estimate))

    rows = [row(part, end(part.here), end(part.there)) for part in found.threads.parts]
    return Table(
        f"Where threads were, for each request [95 % interval]; the effect is"
        f" {interval_text(effect, 'difference')}",
        ("thread", here, there, "more", "share of the effect"),
        (*rows, row(together, DASH, DASH)),
        heads=1,
        note="The largest change first. On one core these add up to the effect where the account"
        " closes; shares by Fieller, unbounded where the effect is not told from zero.",
    )


def _operations(found: Difference, here: str, there: str) -> Table | None:
    """Operations, and what their changes add, the largest first."""
    if not found.operations:
        return None
    like = found.threads.whole.estimate if found.threads else None
    rows = tuple(
        (
            operation.name + "".join(f"\noverlaps with {other}" for other in operation.overlaps),
            *(numbers.time(cost, like=like).bare for cost in operation.costs_ns),
            *(numbers.fixed(count).bare for count in operation.counts),
            str(interval_text(operation.by_cost, "difference", like)),
            str(interval_text(operation.by_count, "difference", like)),
            str(interval_text(operation.amount, "difference", like)),
            _share(operation.share, bare=True),
        )
        for operation in found.operations
    )
    return Table(
        "Operations, and what their changes add to a response [95 % interval]",
        (
            "operation",
            f"costs: {here}",
            f"costs: {there}",
            f"a request: {here}",
            f"a request: {there}",
            "because it costs more",
            "because it happens more",
            "together",
            "share of the effect",
        ),
        rows,
        heads=1,
        note="Unit cost times count, its change split symmetrically between the two. A hot loop's"
        " cost is a lower bound of what the operation costs cold.",
    )


def _readings(found: Difference, here: str, there: str) -> Table | None:
    """What was read beside the trials and differs."""
    if not found.readings and not found.alike:
        return None
    rows = tuple(
        (
            reading.name,
            _reading(reading, reading.here),
            _reading(reading, reading.there),
            _reading(reading, reading.change),
            _worth(reading.share) if found.effect_found else DASH,
        )
        for reading in found.readings
    )
    alike = f" No difference was seen in: {'; '.join(found.alike)}." if found.alike else ""
    return Table(
        "Read beside the trials, where it differs [95 % interval]",
        ("reading", here, there, "more", "can explain at most"),
        rows,
        heads=1,
        note="A share of time that was taken away can have slowed a trial by its inverse and no"
        " more; an event counts at its unit cost; what has no unit cost is named without one."
        " These overlap with each other and with the tables above." + alike,
    )


def _facts(found: Difference, here: str, there: str) -> Table | None:
    """Levels, facts and settings that differ, without an amount."""
    if not found.facts:
        return None
    return Table(
        "Levels, facts and settings that differ",
        ("what", here, there),
        tuple((name, *map(_fact, both)) for name, *both in found.facts),
        heads=1,
        words=(1, 2),
        conditioned=False,
    )


def _reading(reading: ReadingChange, interval: Interval) -> str:
    ends = (interval.estimate, interval.low, interval.high)
    if reading.kind == "share of time":
        return str(numbers.share(*ends))
    unit = {"events a second": "1/s", "frequency": "MHz"}.get(reading.kind, "")
    return str(numbers.fixed(*ends, unit=unit))


def _worth(share: Interval | None) -> str:
    return "no price" if share is None else _share(share)


def _why(change: OperationChange) -> str:
    by_cost, by_count = abs(change.by_cost.estimate or 0.0), abs(change.by_count.estimate or 0.0)
    return "its cost" if by_cost >= by_count else "its count"


def _share(share: Interval, *, bare: bool = False) -> str:
    value = interval_text(share, "share")
    return value.bare if bare else str(value)


def _fact(value: object) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    text = DASH if value is None else str(value)
    return text if len(text) <= _LONGEST_FACT else text[:_LONGEST_FACT] + "\N{HORIZONTAL ELLIPSIS}"
