"""A first experiment file, with a comment at each line, from what somebody wants to compare.

Its comments are the help texts of the rows and fields that the file is validated by.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tare import experiment, plan, repetition, workloads
from tare.errors import FaultyFileError, UsageError
from tare.experiment import Blocks, Experiment
from tare.levels import Factor
from tare.plan import ALPHA, Plan
from tare.stats.family import family_resolvable
from tare.workloads import AnyWorkload

_PLAIN = re.compile(r"[A-Za-z0-9][\w ./%+-]*")
_WIDTH = 100
_MOST_BLOCKS = 1000


@dataclass(frozen=True)
class Wishes:
    """What somebody wants to compare; whatever is left out is chosen."""

    workload: str = "request-reply"
    factors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Factor -> levels. One of them has two or more."""
    baseline: Mapping[str, str] = field(default_factory=dict)
    """The first factor with two levels, at its first, where empty."""
    statistic: str | None = None
    blocks: tuple[int, int] | None = None
    """Fewest and most; the fewest that can resolve the comparisons, and 30, where None."""
    budget_s: float | None = None
    """As many blocks as fit into it, instead."""
    margin: str = "3 %"
    title: str | None = None


@dataclass(frozen=True)
class Draft:
    """The text of a valid experiment file, and the plan that it makes."""

    text: str
    plan: Plan


def workload(name: str) -> AnyWorkload:
    """Look a workload up.

    Raises:
        UsageError: there is none of that name.
    """
    known = workloads.by_name()
    if name not in known:
        raise UsageError(f"{name!r} is no workload", f"choose one of {', '.join(known)}")
    return known[name]


def levels_in(row: Factor[Any], text: str) -> tuple[str, ...]:
    """The levels in a text, commas between them; one that holds commas stands alone.

    Raises:
        UsageError: one of them is no level of the factor.
    """
    try:
        return (row.level(text.strip()),)
    except UsageError:
        if "," not in text:
            raise
    return tuple(dict.fromkeys(row.level(part.strip()) for part in text.split(",")))


def draft(wishes: Wishes) -> Draft:
    """Write an experiment file that does what is wished.

    Raises:
        UsageError: nothing is compared, a wish is not to be had, or the budget is too short.
    """
    wishes = _completed(wishes)
    if wishes.blocks is not None:
        return _laid_out(wishes, wishes.blocks)
    default = Blocks()
    whole = _laid_out(wishes, (default.max, default.max)).plan
    needed = family_resolvable(0, max(1, len(whole.family)), ALPHA).blocks_needed
    least = max(default.min, needed or 0)
    if wishes.budget_s is None:
        return _laid_out(wishes, (least, default.max))
    fitting = int((wishes.budget_s - whole.causes_seconds()) / whole.block_seconds())
    if fitting < least:
        raise UsageError(
            f"the {least} blocks that this needs take about {whole.seconds(least):.0f} s, and the"
            f" budget is {wishes.budget_s:.0f} s",
            "name fewer levels, or give more time",
        )
    return _laid_out(wishes, (least, min(fitting, _MOST_BLOCKS)))


def _completed(wishes: Wishes) -> Wishes:
    rows = workload(wishes.workload).levels.rows
    for name in (*wishes.factors, *wishes.baseline):
        if name not in rows:
            raise UsageError(
                f"{wishes.workload} has no factor {name!r}", f"choose one of {', '.join(rows)}"
            )
    varied = [name for name, levels in wishes.factors.items() if len(levels) > 1]
    if not varied:
        raise UsageError(
            "nothing is compared: no factor has two levels",
            "give one of them two, such as --factor environment=native,container",
        )
    baseline = wishes.baseline or {varied[0]: wishes.factors[varied[0]][0]}
    (factor, level), *_ = baseline.items()
    others = ", ".join(one for one in wishes.factors.get(factor, ()) if one != level)
    title = wishes.title or f"{wishes.workload}: {factor} {others} against {level}"
    statistic = wishes.statistic or next(iter(workload(wishes.workload).statistics))
    return replace(wishes, baseline=baseline, title=title, statistic=statistic)


def _laid_out(wishes: Wishes, blocks: tuple[int, int]) -> Draft:
    text = "\n".join(_lines(wishes, blocks)) + "\n"
    try:
        asked = experiment.parse(text, "the draft")
    except FaultyFileError as error:
        # Nobody has seen the lines that it names.
        said = "; ".join(dict.fromkeys(str(fault) for fault in error.faults))
        raise UsageError(said, error.remedy) from error
    return Draft(text, repetition.planned(plan.make(asked)))


def _lines(wishes: Wishes, blocks: tuple[int, int]) -> Iterator[str]:
    kind = workload(wishes.workload)
    yield from _comment(_HEAD)
    yield from _field("title", _quoted(str(wishes.title)))
    yield from _field("workload", wishes.workload, workloads.about(wishes.workload))
    yield from _field("factors", "", "What is commented out has its default.")
    for row in kind.levels.rows.values():
        offered = f" One of: {', '.join(row.choices)}." if row.choices else ""
        yield from _comment(row.help + offered, indent="  ")
        levels = wishes.factors.get(row.name)
        named = [_scalar(level) for level in levels or [row.default]]
        value = named[0] if len(named) == 1 else f"[{', '.join(named)}]"
        yield f"  {'' if levels else '# '}{row.name}: {value}"
    cell = ", ".join(f"{name}: {_scalar(level)}" for name, level in wishes.baseline.items())
    yield from _field("baseline", f"{{{cell}}}")
    known = ", ".join(kind.statistics)
    yield from _field("statistic", _scalar(str(wishes.statistic)), f"This workload has {known}.")
    yield from _field("margin", _scalar(wishes.margin))
    said = " ".join(f"{name}: {f.description}" for name, f in Blocks.model_fields.items())
    yield from _field("blocks", f"{{min: {blocks[0]}, max: {blocks[1]}}}", said)
    if kind.settings.rows:
        yield from _field("session", "")
    for row in kind.settings.rows.values():
        yield from _comment(row.help, indent="  ")
        yield f"  {row.name}: {_scalar(row.default)}"


_HEAD = (
    "`tare check FILE` validates this file, `tare run FILE --dry-run` says what it would do here,"
    " and `tare schema` prints all that it can hold."
)


def _field(name: str, value: str, more: str = "") -> Iterator[str]:
    yield ""
    yield from _comment(f"{Experiment.model_fields[name].description} {more}")
    yield f"{name}: {value}".rstrip()


def _comment(text: str, indent: str = "") -> Iterator[str]:
    for line in textwrap.wrap(text, _WIDTH - len(indent) - 2):
        yield f"{indent}# {line}"


def _scalar(level: str) -> str:
    """A level as YAML reads it back, in quotes where it is not a plain word or quantity."""
    return level if _PLAIN.fullmatch(level) else _quoted(level)


def _quoted(text: str) -> str:
    named = {"\\": "\\\\", '"': '\\"'}
    said = (named.get(c, c) if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
    return '"' + "".join(said) + '"'
