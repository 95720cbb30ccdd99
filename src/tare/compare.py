"""Runs of two versions, cell by cell: what does the later one take over the earlier one?

Within a run, cells are paired by block. Two runs share no block, and one and the same thing differs
from run to run (another day, another boot), which no number of sessions of one run shows. So a
verdict needs several runs a side: a run is then one value, the mean logarithm of its sessions, and
Welch's test holds the runs of both sides against each other (Welch 1947, Biometrika 34:28), with
Holm's adjustment over all cells. Of one run a side, the sessions' interval is a description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tare import machine, suite
from tare.analysis.questions import judge_declared
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import UsageError
from tare.plan import ALPHA
from tare.record import Record
from tare.report.wording import quantity_text, ratio_text
from tare.stats import Judgement, Ratio, Verdict
from tare.stats.unpaired import unpaired_ratio, would_be_found
from tare.workloads import Unit

FEWEST_RUNS = 4
"""Runs a side for a verdict: with fewer, Welch's test errs too often where runs have modes."""


@dataclass(frozen=True)
class CellComparison:
    """One cell that both results have."""

    cell: str
    """Its id in the later result."""
    ratio: Ratio
    """Later over earlier, unpaired: `a` is the later side, `b` the earlier. `n_used` is the number
    of runs of the smaller side; of sessions, where a side has but one run."""
    judgement: Judgement
    finds: float | None
    """The smallest ratio above 1 that so many runs would find 80 times in 100, at this spread from
    run to run and this number of cells; None without a verdict."""


@dataclass(frozen=True)
class Versions:
    """Two versions beside each other: a result of each, or several."""

    earlier: str
    later: str
    runs: tuple[int, int]
    """Runs of the earlier and of the later side."""
    statistic: str
    """What a session is summarised by."""
    unit: Unit
    """Of the statistic."""
    margin: float
    """Of equivalence, as a fraction, as the later result declares it."""
    machines: Mapping[str, tuple[Any, Any]]
    """Fingerprints: key -> (earlier, later), where they differ."""
    within: Mapping[str, tuple[str, ...]]
    """What differs among the runs of one side, which are then not of one version: side -> keys."""
    settings: Mapping[str, tuple[Any, Any]]
    """Settings of the sessions: key -> (earlier, later), where they differ."""
    accelerators: Mapping[str, tuple[str, str]]
    """Cells of guests that did not all run under one: id -> (earlier, later)."""
    cells: tuple[CellComparison, ...]
    only_earlier: tuple[str, ...]
    only_later: tuple[str, ...]

    @property
    def judged(self) -> bool:
        """Whether the runs are enough to tell a difference from how much runs differ anyway."""
        return min(self.runs) >= FEWEST_RUNS


def runs_of(folder: Path) -> list[Record]:
    """The runs of a side: a result, or every result that a folder holds.

    Raises:
        UsageError: it is neither, or a suite's result.
    """
    inside = sorted(path.parent for path in folder.glob("*/plan.json"))
    if (folder / "plan.json").is_file() or suite.is_result(folder) or not inside:
        return [Record(folder)]
    return [Record(path) for path in inside]


def compare(a: Sequence[Record], b: Sequence[Record], *, across_machines: bool = False) -> Versions:
    """Compare the runs b with the runs a.

    Args:
        a: the earlier runs, the baseline; at least one.
        b: the later ones. Margin and statistic of the first of them count.
        across_machines: compare even though they come from different machines, or their guests ran
            under different accelerators.

    Raises:
        UsageError: the machines or the accelerators differ, or no cell is in both.
    """
    for other in (*a[1:], *b):
        _refuse_other_machine(a[0], other, across_machines)
    experiment = b[0].experiment
    statistic, margin = experiment.statistic, experiment.margin_share
    before, after = [_Run(record) for record in a], [_Run(record) for record in b]
    common = [k for k in after[0].cells if all(k in run.cells for run in (*before, *after))]
    if not common:
        raise UsageError(
            f"{a[0].folder} and {b[0].folder} have no cell in common",
            "compare results of one experiment",
        )
    accelerators = _unlike_accelerators(before, after, common)
    if accelerators and not across_machines:
        raise _other_accelerator(a[0], b[0], accelerators)
    judged = min(len(a), len(b)) >= FEWEST_RUNS
    values = [(_values(after, key, statistic), _values(before, key, statistic)) for key in common]
    ratios = [unpaired_ratio(*sides, cautious=judged) for sides in values]
    ids = [after[0].cells[key].id for key in common]
    judgements = dict.fromkeys(ids, Judgement(Verdict.INCONCLUSIVE, _TOO_FEW, 1.0))
    if judged:
        ends = {
            name: [(run.sessions, run.cells[key].id) for run in (*before, *after)]
            for name, key in zip(ids, common, strict=True)
        }
        judgements = judge_declared(b[0].plan, dict(zip(ids, ratios, strict=True)), ends)
    earlier, later = (
        {k: c for run in side for k, c in run.cells.items()} for side in (before, after)
    )
    return Versions(
        earlier=_side(a),
        later=_side(b),
        runs=(len(a), len(b)),
        statistic=statistic,
        unit=b[0].plan.workload.statistics[statistic].unit,
        margin=margin,
        machines=machine.unlike(a[0].fingerprint.whole, b[0].fingerprint.whole),
        within={"earlier": _differing_within(a), "later": _differing_within(b)},
        settings=machine.unlike(a[0].plan.session, b[0].plan.session),
        accelerators=accelerators,
        cells=tuple(
            CellComparison(
                name,
                ratio,
                judgements[name],
                would_be_found(*sides, ALPHA / len(common)) if judged else None,
            )
            for name, ratio, sides in zip(ids, ratios, values, strict=True)
        ),
        only_earlier=tuple(cell.id for key, cell in earlier.items() if key not in common),
        only_later=tuple(cell.id for key, cell in later.items() if key not in common),
    )


_Key = tuple[tuple[str, str], ...]
_TOO_FEW = f"a verdict needs {FEWEST_RUNS} runs a side, which show how much runs differ"


class _Run:
    """One run: its sessions, and its cells by their levels."""

    def __init__(self, record: Record) -> None:
        self.sessions = Sessions(record)
        self.cells: dict[_Key, Cell] = {
            tuple(sorted(cell.levels.items())): cell
            for cell in record.plan.cells
            if cell.replica == 1
        }


def _differing_within(side: Sequence[Record]) -> tuple[str, ...]:
    first = side[0].fingerprint.whole
    differing = (machine.unlike(first, other.fingerprint.whole) for other in side[1:])
    return tuple(dict.fromkeys(key for keys in differing for key in keys))


def _side(runs: Sequence[Record]) -> str:
    return str(runs[0].folder if len(runs) == 1 else runs[0].folder.parent)


def _values(side: Sequence[_Run], key: _Key, statistic: str) -> npt.NDArray[np.float64]:
    """One value a run, the geometric mean of its sessions; of one run alone, its sessions."""
    cells = [(run.sessions, run.cells[key].id) for run in side]
    values = [sessions.level(cell, statistic) for sessions, cell in cells]
    if len(cells) == 1:
        values = cells[0][0].column(cells[0][1], statistic)
    return np.array([value for value in values if value is not None], dtype=np.float64)


def fails(found: Versions, on: str) -> bool:
    """Whether any cell has the verdict that shall fail.

    Args:
        found: the comparison.
        on: slower, faster, or different (either).
    """
    verdicts = {
        "slower": {Verdict.SLOWER},
        "faster": {Verdict.FASTER},
        "different": {Verdict.SLOWER, Verdict.FASTER, Verdict.MORE, Verdict.LESS},
    }[on]
    return any(cell.judgement.verdict in verdicts for cell in found.cells)


def as_json(found: Versions) -> dict[str, Any]:
    """The comparison as JSON; times in ns."""
    plain: dict[str, Any] = TypeAdapter(Versions).dump_python(found, mode="json")
    return plain


def table(found: Versions) -> RenderableType:
    """The comparison for a terminal."""
    rows = Table(box=None, pad_edge=False)
    headings = ("verdict", "cell", "ratio [95 %]", "later", "earlier", "p (Holm)", "finds")
    for heading in headings:
        left = heading in ("verdict", "cell")
        rows.add_column(
            heading, justify="left" if left else "right", no_wrap=not left, overflow="fold"
        )
    for cell in found.cells:
        verdict = cell.judgement.verdict
        style = {
            **dict.fromkeys((Verdict.SLOWER, Verdict.MORE), "red"),
            **dict.fromkeys((Verdict.FASTER, Verdict.LESS), "green"),
            Verdict.EQUIVALENT: "cyan",
        }
        rows.add_row(
            Text(verdict if found.judged else "none", style.get(verdict, "yellow")),
            Text(cell.cell),
            Text(ratio_text(cell.ratio.ratio)),
            Text(quantity_text(cell.ratio.a, found.unit).bare),
            Text(quantity_text(cell.ratio.b, found.unit).bare),
            Text(
                f"{cell.judgement.adjusted_p:.2g}"
                if found.judged and cell.judgement.adjusted_p is not None
                else ""
            ),
            Text("" if cell.finds is None else f"{cell.finds:.2f}"),
        )
    lines: list[RenderableType] = [
        Text(f"{found.later} over {found.earlier}, {found.statistic} of a session", "bold"),
        rows,
        Text(_JUDGED.format(*found.runs), "dim")
        if found.judged
        else Text(no_verdict(found), "yellow"),
    ]
    for what, differences in (
        ("accelerator", found.accelerators),
        ("fingerprint", found.machines),
        ("session", found.settings),
    ):
        lines += (Text(line, "yellow") for line in _differing(what, differences))
    for where, keys in found.within.items():
        if keys:
            said = f"the {where} runs differ among themselves: {', '.join(keys)}"
            lines.append(Text(said, "yellow"))
    for where, cells in (("earlier", found.only_earlier), ("later", found.only_later)):
        if cells:
            lines.append(Text(f"only in the {where} result: {', '.join(cells)}", "yellow"))
    return Group(*lines)


_JUDGED = (
    "{} runs against {}, each one value (Welch on logarithms, Holm over all cells). finds: the"
    " smallest ratio that so many runs would find 80 times in 100; a smaller loss may pass."
)


def no_verdict(found: Versions) -> str:
    """Say why there is no verdict, and what would give one."""
    return (
        f"no verdict: {found.runs[0]} run against {found.runs[1]} does not show how much one and"
        " the same thing differs from run to run, and the intervals, of sessions, do not hold it;"
        f" repeat each side's run until it has {FEWEST_RUNS} or more, each with --out SIDE/1,"
        " SIDE/2, ..., and compare the folders SIDE"
    )


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


def _refuse_other_machine(a: Record, b: Record, across_machines: bool) -> None:
    unlike = machine.unlike(a.fingerprint.whole, b.fingerprint.whole)
    other = [key for key in machine.IDENTITY if key in unlike]
    if other and not across_machines:
        shown = "; ".join(f"{key}: {unlike[key][0]} and {unlike[key][1]}" for key in other)
        raise UsageError(
            f"{a.folder} and {b.folder} come from different machines ({shown}): a ratio would be"
            " theirs, not the programs'",
            "run both on one machine, or add --across-machines to compare the machines",
        )


def _unlike_accelerators(
    before: Sequence[_Run], after: Sequence[_Run], cells: Iterable[_Key]
) -> dict[str, tuple[str, str]]:
    """Name the cells whose guests did not all run under one accelerator."""
    found = {}
    for key in cells:
        one, other = (
            sorted({a for run in side for a in run.sessions.accelerators(run.cells[key].id)})
            for side in (before, after)
        )
        if one and other and len({*one, *other}) > 1:
            found[after[0].cells[key].id] = ("+".join(one), "+".join(other))
    return found


def _other_accelerator(a: Record, b: Record, unlike: Mapping[str, tuple[str, str]]) -> UsageError:
    cell, (earlier, later) = next(iter(unlike.items()))
    return UsageError(
        f"guests of {a.folder} and {b.folder} did not run under one accelerator ({cell}:"
        f" {earlier.upper()} and {later.upper()}): a ratio would be the accelerators', not the"
        " programs'",
        "run both where guests get the same one, or add --across-machines to compare them so",
    )
