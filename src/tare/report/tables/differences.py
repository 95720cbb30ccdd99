"""What differs between two cells, and how much of the effect it can explain."""

from __future__ import annotations

from collections.abc import Iterable

from tare.analysis import Analysis
from tare.analysis.explain import Explained, OperationChange, ReadingChange
from tare.report import numbers
from tare.report.tables.table import DASH, Table
from tare.report.wording import Names, interval_text
from tare.stats import Interval

__all__ = ["conclusion", "differences", "of_differences"]

_MOST_NAMED = 3
_LONGEST_FACT = 60


def differences(analysis: Analysis, names: Names) -> list[tuple[str, bool, list[str], list[Table]]]:
    """Every effect that was judged: a heading, whether it is explained, words, and tables."""
    return [
        (
            f"{names.place(found.cell).full} against {names.place(found.against).full}",
            found.explained,
            conclusion(found),
            of_differences(found),
        )
        for found in analysis.explained
    ]


def of_differences(found: Explained) -> list[Table]:
    """Every table of two cells that has something to say."""
    made = (_threads(found), _operations(found), _readings(found), _facts(found))
    return [table for table in made if table is not None]


def conclusion(found: Explained) -> list[str]:
    """Say whether the effect is explained, and by what; the first sentence is the verdict."""
    if not found.effect_found:
        return [
            "There is no effect to explain: the two cannot be told apart, so that what differs"
            " between them has nothing to be held against."
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
    if found.accounts is not None:
        named = [p for p in found.accounts.parts if p.change.excludes(0.0)][:_MOST_NAMED]
        parts = ", ".join(f"{p.name} {_share(p.share)}" for p in named) or "none that is certain"
        said.append(f"By where threads were: {parts}; all together {_share(found.accounts.share)}.")
        if not found.closes:
            said.append("One side's account cannot be expected to close: shares are bounds.")
    if found.operations_share is not None:
        parts = ", ".join(
            f"{o.name} {_percent(o.share)} ({_why(o)})" for o in found.operations[:_MOST_NAMED]
        )
        rest = 1.0 - found.operations_share
        said.append(
            f"By operations: {parts}; all together {_percent(found.operations_share)}"
            + (f", and {_percent(rest)} is not explained." if rest > 0 else ", which overlap.")
        )
    if found.uncounted:
        said.append(f"Not known on one side, and in no sum: {', '.join(found.uncounted)}.")
    priced = [r for r in found.readings if r.share and (r.share.estimate or 0.0) > 0.0]
    if priced:
        parts = ", ".join(f"{r.name} {_share(r.share)}" for r in priced[:_MOST_NAMED])
        said.append(f"Beside the trials, at most: {parts}; these overlap with all of the above.")
    return said


def _threads(found: Explained) -> Table | None:
    """Where the threads were, the largest change first."""
    if found.accounts is None:
        return None
    like = found.accounts.effect.estimate
    rows = [
        (
            part.name,
            str(interval_text(part.here, "time", like=like)),
            str(interval_text(part.there, "time", like=like)),
            str(interval_text(part.change, "difference", like=like)),
            str(interval_text(part.share, "share")),
        )
        for part in found.accounts.parts
    ]
    rows.append(
        (
            "all together",
            DASH,
            DASH,
            str(interval_text(found.accounts.together, "difference", like=like)),
            str(interval_text(found.accounts.share, "share")),
        )
    )
    effect = interval_text(found.accounts.effect, "difference")
    return Table(
        f"Where threads were, for each request [95 % interval]; the effect is {effect}",
        ("thread", "here", "there", "more here", "share of the effect"),
        tuple(rows),
        heads=1,
        note="The largest change first. On one core these add up to the effect where the account"
        " closes; shares by Fieller, unbounded where the effect is not told from zero.",
    )


def _operations(found: Explained) -> Table | None:
    """Operations, and what their changes add, the largest first."""
    if not found.operations:
        return None
    like = found.accounts.effect.estimate if found.accounts else None
    rows = tuple(
        (
            operation.name,
            *(numbers.time(cost).bare for cost in operation.costs_ns),
            *(numbers.fixed(count).bare for count in operation.counts),
            str(interval_text(operation.change.by_cost, "difference", like=like)),
            str(interval_text(operation.change.by_count, "difference", like=like)),
            str(interval_text(operation.change.change, "difference", like=like)),
            _percent(operation.share),
            ", ".join(operation.overlaps) or DASH,
        )
        for operation in found.operations
    )
    return Table(
        "Operations, and what their changes add to a response [95 % interval]",
        (
            "operation",
            "costs here",
            "costs there",
            "a request here",
            "a request there",
            "because it costs more",
            "because it happens more",
            "together",
            "share of the effect",
            "overlaps with",
        ),
        rows,
        heads=1,
        words=(9,),
        note="Unit cost times count, its change split symmetrically between the two. A hot loop's"
        " cost is a lower bound of what the operation costs cold.",
    )


def _readings(found: Explained) -> Table | None:
    """What was read beside the trials and differs."""
    if not found.readings and not found.alike:
        return None
    rows = tuple(
        (
            reading.name,
            _reading(reading, reading.here),
            _reading(reading, reading.there),
            _reading(reading, reading.change),
            _worth(reading) if found.effect_found else DASH,
        )
        for reading in found.readings
    )
    alike = f" No difference was seen in: {'; '.join(found.alike)}." if found.alike else ""
    return Table(
        "Read beside the trials, where it differs [95 % interval]",
        ("reading", "here", "there", "more here", "can explain at most"),
        rows,
        heads=1,
        note="A share of time that was taken away can have slowed a trial by its inverse and no"
        " more; an event counts at its unit cost; what has no unit cost is named without one."
        " These overlap with each other and with the tables above." + alike,
    )


def _facts(found: Explained) -> Table | None:
    """Levels, facts and settings that differ, without an amount."""
    if not found.facts:
        return None
    return Table(
        "Levels, facts and settings that differ",
        ("what", "here", "there"),
        tuple((name, _fact(here), _fact(there)) for name, here, there in found.facts),
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


def _worth(reading: ReadingChange) -> str:
    return "no price" if reading.share is None else str(interval_text(reading.share, "share"))


def _why(operation: OperationChange) -> str:
    change = operation.change
    by_cost, by_count = abs(change.by_cost.estimate or 0.0), abs(change.by_count.estimate or 0.0)
    return "its cost" if by_cost >= by_count else "its count"


def _share(share: Interval | None) -> str:
    return DASH if share is None else str(interval_text(share, "share"))


def _percent(share: float | None) -> str:
    return DASH if share is None else numbers.share(share).bare


def _fact(value: object) -> str:
    if isinstance(value, Iterable) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    text = DASH if value is None else str(value)
    return text if len(text) <= _LONGEST_FACT else text[:_LONGEST_FACT] + "\N{HORIZONTAL ELLIPSIS}"
