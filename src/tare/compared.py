"""How a comparison of versions is shown: in a terminal, and in a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tare.compare import DIFFERENT, FEWEST_RUNS, CellComparison, Versions
from tare.report.columns import Columns
from tare.report.markup import escaped
from tare.report.markup import table as markdown_table
from tare.report.wording import quantity_text, ratio_text
from tare.stats import Verdict

_HEADINGS = ("verdict", "cell", "ratio [95 %]", "later", "earlier", "p (Holm)", "finds")
_LEFT = 2
"""Of the headings, those above text."""


def table(found: Versions) -> RenderableType:
    """The comparison for a terminal."""
    rows = Columns(*_HEADINGS, words=range(_LEFT), key=_HEADINGS.index("cell"))
    for cell in found.cells:
        verdict, *rest = _row(cell)
        rows.add_row(Text(verdict, _style(cell)), *map(Text, rest))
    lines: list[RenderableType] = [
        Text(_title(found), "bold"),
        rows,
        Text(method(found), "dim" if found.judged else "yellow"),
    ]
    return Group(*lines, *(Text(line, "yellow") for line in remarks(found)))


def markdown(all_found: Sequence[Versions]) -> str:
    """The comparisons for a pull request: a table a version, what differs folded below it."""
    return "\n".join(line for found in all_found for line in _section(found))


def _section(found: Versions) -> Iterator[str]:
    yield f"### {escaped(found.later)} over {escaped(found.earlier)}\n"
    yield f"{_answer(found)}\n"
    rows = map(_marked_up, found.cells)
    yield from markdown_table(_HEADINGS, rows, left=_LEFT)
    yield f"\n{escaped(_title(found))}. {escaped(method(found))}\n"
    if differing := list(remarks(found)):
        yield "<details><summary>What else differs, or was left out</summary>\n"
        yield from (f"- {escaped(line)}" for line in differing)
        yield "\n</details>\n"


def _style(cell: CellComparison) -> str:
    verdict = cell.judgement.verdict
    if verdict in DIFFERENT:
        return "red" if verdict is cell.worse else "green"
    return "cyan" if verdict is Verdict.EQUIVALENT else "yellow"


def _marked_up(cell: CellComparison) -> list[str]:
    verdict, *rest = map(escaped, _row(cell))
    return [f"**{verdict}**" if cell.judgement.verdict in DIFFERENT else verdict, *rest]


def _answer(found: Versions) -> str:
    """One sentence: how many of which verdict."""
    if not found.judged:
        return f"**No verdict**: {found.runs[0]} run against {found.runs[1]}."
    counted: dict[str, int] = {}
    for cell in found.cells:
        counted[_word(cell)] = counted.get(_word(cell), 0) + 1
    said = ", ".join(f"{count} {verdict}" for verdict, count in counted.items())
    return f"Of {len(found.cells)} cells: {said}."


def _title(found: Versions) -> str:
    said = f"{found.later} over {found.earlier}, {found.statistic}"
    return said if found.forbids else f"{said} of a session"


def _word(cell: CellComparison) -> str:
    return cell.judgement.verdict if cell.judged else "none"


def _row(cell: CellComparison) -> tuple[str, ...]:
    p = cell.judgement.adjusted_p
    return (
        _word(cell),
        cell.cell,
        ratio_text(cell.ratio.ratio),
        quantity_text(cell.ratio.a, cell.unit).bare,
        quantity_text(cell.ratio.b, cell.unit).bare,
        f"{p:.2g}" if cell.judged and p is not None else "",
        "" if cell.finds is None else f"{cell.finds:.2f}",
    )


def method(found: Versions) -> str:
    """Say how it was judged, or why it was not and what would give a verdict."""
    if not found.judged:
        return no_verdict(found)
    said = _JUDGED.format(*found.runs, found.compared, f"{100 * found.margin:g} %")
    if found.forbids:
        said += (
            " Whether the sides took turns, the files do not tell: if not, what changed between"
            " them is in the ratio too."
        )
    return said


_JUDGED = (
    "{} runs against {}, each one value (Welch on logarithms, Holm over {} cells; equivalent:"
    " within {}). finds: the smallest ratio that so many runs would find 80 times in 100; a smaller"
    " loss may pass."
)


def no_verdict(found: Versions) -> str:
    """Say why there is no verdict, of anything or of some cells, and what would give one."""
    if found.judged:
        return (
            f"no verdict of {', '.join(found.unjudged)}: fewer than {FEWEST_RUNS} runs of a side"
            " have a value, or a later run lacks it; add runs that measure it"
        )
    shown = found.statistic if found.forbids else "sessions"
    said = (
        f"no verdict: {found.runs[0]} run against {found.runs[1]} does not show how much the same"
        f" thing varies from run to run, and that is not in the intervals, which are of {shown};"
    )
    if not found.forbids:
        return (
            f"{said} run each side {FEWEST_RUNS} times or more, with --out SIDE/1, SIDE/2, ..., and"
            " compare the folders SIDE"
        )
    return (
        f"{said} besides, {found.forbids}. Let the sides take turns until each has {FEWEST_RUNS}"
        " files or more, in a folder a side, and compare the folders"
    )


def remarks(found: Versions) -> Iterator[str]:
    """What else differs between the sides, is in one alone, or was left out, a line each."""
    for what, differences in (
        ("accelerator", found.accelerators),
        ("fingerprint", found.machines),
        ("session", found.settings),
    ):
        yield from _differing(what, differences)
    for where, keys in found.within.items():
        if keys:
            yield f"the {where} runs differ among themselves: {', '.join(keys)}"
    if found.failed:
        yield f"trials of the later runs failed: {', '.join(found.failed)}"
    if found.judged and found.unjudged:
        yield no_verdict(found)
    for where, cells in (("earlier", found.only_earlier), ("later", found.only_later)):
        if cells:
            yield f"only in the {where} result: {', '.join(cells)}"
    if found.not_in_all:
        yield f"not in every run, and not compared: {', '.join(found.not_in_all)}"
    yield from found.unfinished
    yield from found.notes


def _differing(what: str, found: Mapping[str, tuple[Any, Any]]) -> Iterator[str]:
    """Lines on what differs; what one result alone tells, such as a newer one, goes into one."""
    for key, (earlier, later) in found.items():
        if earlier is not None and later is not None:
            yield f"{what} differs: {key}: {_brief(earlier)} -> {_brief(later)}"
    for where, other in (("earlier", 1), ("later", 0)):
        if alone := [key for key, pair in found.items() if pair[other] is None]:
            yield f"{what}: only the {where} result tells {', '.join(alone)}"


def _brief(value: object) -> str:
    """A value of a fingerprint, for a person: a hash tells by its first digits."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28,}", r"\1", str(value))
