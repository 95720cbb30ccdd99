"""Runs of versions, cell by cell: what does a later one take over the first one?

Within a run, cells are paired by block. Two runs share no block, and one and the same thing differs
from run to run (another day, another boot), which no number of sessions of one run shows. So a
verdict needs several runs a side: a run is then one value, the mean logarithm of its sessions, and
Welch's test holds the runs of both sides against each other (Welch 1947, Biometrika 34:28), with
Holm's adjustment over all cells of all later versions. Of one run a side, the sessions' interval is
a description. The same holds of what other tools left, whose sessions are what they started anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from tare import machine
from tare.analysis.questions import above_below, worse_of
from tare.errors import UsageError
from tare.plan import ALPHA
from tare.sides import (
    Run,
    ToolRun,
    differing_within,
    levels,
    refuse_unlike,
    side_name,
)
from tare.stats import Judgement, Ratio, Verdict, holm
from tare.stats.unpaired import unpaired_ratio, would_be_found
from tare.stats.verdict import judge
from tare.workloads import Unit

FEWEST_RUNS = 4
"""Runs a side for a verdict: with fewer, Welch's test errs too often where runs have modes."""
DIFFERENT = frozenset({Verdict.SLOWER, Verdict.FASTER, Verdict.MORE, Verdict.LESS})


@dataclass(frozen=True)
class CellComparison:
    """One cell that both results have."""

    cell: str
    """Its id in the later result."""
    unit: Unit
    """Of what is compared."""
    runs: tuple[int, int]
    """Runs of the earlier and of the later side that have a value of it."""
    worse: Verdict
    """What its verdict is called where the later side is the worse one."""
    ratio: Ratio
    """Later over earlier, unpaired: `a` is the later side, `b` the earlier. `n_used` is the number
    of runs of the smaller side; of sessions, where a side has but one run."""
    judgement: Judgement
    finds: float | None
    """The smallest ratio above 1 that so many runs would find 80 times in 100, at this spread from
    run to run and this number of cells; None without a verdict."""

    @property
    def judged(self) -> bool:
        """Whether the runs are enough to tell a difference from how much runs differ anyway."""
        return min(self.runs) >= FEWEST_RUNS and self.ratio.ratio.resolved


@dataclass(frozen=True)
class Versions:
    """Two versions beside each other: a result of each, or several."""

    earlier: str
    later: str
    runs: tuple[int, int]
    """Runs of the earlier and of the later side."""
    statistic: str
    """What a session is summarised by."""
    margin: float
    """Of equivalence, as a fraction, as the later result declares it; of other tools 0.03."""
    compared: int
    """Cells over which p-values are adjusted: of all versions that are compared together."""
    machines: Mapping[str, tuple[Any, Any]]
    """Fingerprints: key -> (earlier, later), where they differ."""
    within: Mapping[str, tuple[str, ...]]
    """What differs among the runs of one side, which are then not of one version: side -> keys."""
    settings: Mapping[str, tuple[Any, Any]]
    """Settings of the sessions: key -> (earlier, later), where they differ."""
    accelerators: Mapping[str, tuple[str, str]]
    """Cells of guests that did not all run under one: id -> (earlier, later)."""
    cells: tuple[CellComparison, ...]
    failed: tuple[str, ...]
    """Cells of which trials of the later runs failed."""
    only_earlier: tuple[str, ...]
    only_later: tuple[str, ...]
    not_in_all: tuple[str, ...] = ()
    """Cells of both sides that a run of either lacks."""
    forbids: str = ""
    """Of another tool's results: what its way of measuring forbids to conclude."""
    notes: tuple[str, ...] = ()
    """What another tool's results leave out, and why."""
    unfinished: tuple[str, ...] = ()
    """Runs of either side that have not ended, and how far they got: no cell passes with them."""

    @property
    def judged(self) -> bool:
        """Whether either side has as many runs as a verdict needs."""
        return min(self.runs) >= FEWEST_RUNS

    @property
    def unjudged(self) -> tuple[str, ...]:
        """Cells of the earlier side without a verdict: too few runs have a value, or a cell."""
        few = (cell.cell for cell in self.cells if not cell.judged)
        return (*few, *self.only_earlier, *self.not_in_all)


def compare(a: Sequence[Run], b: Sequence[Run], *, across_machines: bool = False) -> Versions:
    """Compare the runs b with the runs a, as `compare_all`."""
    (found,) = compare_all(a, [b], across_machines=across_machines)
    return found


def compare_all(
    first: Sequence[Run], others: Sequence[Sequence[Run]], *, across_machines: bool = False
) -> tuple[Versions, ...]:
    """Compare the runs of several versions, each with those of the first.

    Args:
        first: the earlier runs, the baseline; at least one.
        others: the later versions' runs, each at least one. Margin and statistic of the first run
            of each count.
        across_machines: compare even though they come from different machines, or their guests ran
            under different accelerators.

    Returns:
        One for each of the others. p-values are adjusted over all cells of all of them.

    Raises:
        UsageError: the machines, the accelerators or the statistics differ, or no cell is in both.
    """
    pairs = [_Pair(first, other, across_machines=across_machines) for other in others]
    adjusted = iter(holm([p for pair in pairs for p in pair.ps]))
    count = sum(len(pair.common) for pair in pairs)
    return tuple(pair.judged(adjusted, count) for pair in pairs)


class _Pair:
    """A later side beside the first one."""

    def __init__(
        self, before: Sequence[Run], after: Sequence[Run], *, across_machines: bool
    ) -> None:
        for other in (*before[1:], *after):
            refuse_unlike(before[0], other, across_machines=across_machines)
        self._before, self._after, runs = before, after, (*before, *after)
        self.common = [k for k in after[0].names if all(k in run.names for run in runs)]
        if not self.common:
            raise UsageError(
                f"{before[0].folder} and {after[0].folder} have no cell in common",
                "compare results of one experiment",
            )
        self._accelerators = _unlike_accelerators(before, after, self.common)
        if self._accelerators and not across_machines:
            raise _other_accelerator(before[0], after[0], self._accelerators)
        for key in self.common:
            if len(units := {run.statistic(key).unit for run in runs}) > 1:
                said = f"{after[0].names[key]} is in {' and '.join(sorted(units))}"
                raise UsageError(said, "compare results of one unit")
        self._values = [(levels(after, key), levels(before, key)) for key in self.common]
        self._counts = [
            # Of one run alone, the values are its sessions'.
            (min(b.size, len(before)), min(a.size, len(after)))
            for a, b in self._values
        ]
        self._enough = [min(runs) >= FEWEST_RUNS for runs in self._counts]
        self._ratios = [
            unpaired_ratio(*values, cautious=enough)
            for values, enough in zip(self._values, self._enough, strict=True)
        ]

    @property
    def ps(self) -> list[float]:
        """Of every cell, 1 where it is not judged: it makes no other's verdict easier."""
        found = zip(self._ratios, self._enough, strict=True)
        return [ratio.p if enough else 1.0 for ratio, enough in found]

    def judged(self, adjusted: Iterable[float], count: int) -> Versions:
        """Judge every cell, each with the next of the adjusted p-values, one of `count`."""
        before, after = self._before, self._after
        earlier, later = (
            {k: name for run in side for k, name in run.names.items()} for side in (before, after)
        )
        tool = after[0].tool if isinstance(after[0], ToolRun) else None
        return Versions(
            earlier=side_name(before),
            later=side_name(after),
            runs=(len(before), len(after)),
            statistic=after[0].summary,
            margin=after[0].margin,
            compared=count,
            machines=machine.unlike(before[0].conditions, after[0].conditions),
            within={"earlier": differing_within(before), "later": differing_within(after)},
            settings=machine.unlike(before[0].settings, after[0].settings),
            accelerators=self._accelerators,
            cells=tuple(
                self._cell(place, p, ALPHA / count)
                for place, p in zip(range(len(self.common)), adjusted, strict=False)
            ),
            failed=tuple(name for k, name in later.items() if any(run.failed(k) for run in after)),
            only_earlier=tuple(name for k, name in earlier.items() if k not in later),
            only_later=tuple(name for k, name in later.items() if k not in earlier),
            not_in_all=tuple(
                name for k, name in later.items() if k in earlier and k not in self.common
            ),
            forbids=tool.forbids if tool else "",
            notes=tuple(dict.fromkeys(note for run in (*before, *after) for note in run.notes)),
            unfinished=tuple(
                dict.fromkeys(
                    f"{run.folder}: {run.unfinished}" for run in (*before, *after) if run.unfinished
                )
            ),
        )

    def _cell(self, place: int, adjusted_p: float, alpha: float) -> CellComparison:
        key, ratio, enough = self.common[place], self._ratios[place], self._enough[place]
        statistic = self._after[0].statistic(key)
        return CellComparison(
            cell=self._after[0].names[key],
            unit=statistic.unit,
            runs=self._counts[place],
            worse=worse_of(statistic),
            ratio=ratio,
            judgement=self._judgement(key, ratio, adjusted_p) if enough else _TOO_FEW,
            finds=would_be_found(*self._values[place], alpha) if enough else None,
        )

    def _judgement(self, key: Hashable, ratio: Ratio, adjusted_p: float) -> Judgement:
        floors = [run.floor(key) for run in (*self._before, *self._after)]
        return judge(
            ratio,
            adjusted_p,
            alpha=ALPHA,
            margin=self._after[0].margin,
            floor=max((floor for floor in floors if floor is not None), default=None),
            above_below=above_below(self._after[0].statistic(key)),
        )


_TOO_FEW = Judgement(
    Verdict.INCONCLUSIVE,
    f"a verdict needs {FEWEST_RUNS} runs a side, which show how much runs differ",
    1.0,
)


def fails(found: Versions, on: str) -> bool:
    """Whether any cell has the verdict that shall fail.

    Args:
        found: the comparison.
        on: slower (the worse, whatever the statistic), faster (the better), or different (either).
    """
    different = [cell for cell in found.cells if cell.judgement.verdict in DIFFERENT]
    worse = [cell.judgement.verdict is cell.worse for cell in different]
    return {"slower": any(worse), "faster": not all(worse), "different": bool(worse)}[on]


def as_json(found: Versions) -> dict[str, Any]:
    """The comparison as JSON; times in ns."""
    plain: dict[str, Any] = TypeAdapter(Versions).dump_python(found, mode="json")
    return plain


def _unlike_accelerators(
    before: Sequence[Run], after: Sequence[Run], cells: Iterable[Hashable]
) -> dict[str, tuple[str, str]]:
    """Name the cells whose guests did not all run under one accelerator."""
    found = {}
    for key in cells:
        one, other = (
            sorted({a for run in side for a in run.accelerators(key)}) for side in (before, after)
        )
        if one and other and len({*one, *other}) > 1:
            found[after[0].names[key]] = ("+".join(one), "+".join(other))
    return found


def _other_accelerator(a: Run, b: Run, unlike: Mapping[str, tuple[str, str]]) -> UsageError:
    cell, (earlier, later) = next(iter(unlike.items()))
    return UsageError(
        f"guests of {a.folder} and {b.folder} did not run under one accelerator ({cell}:"
        f" {earlier.upper()} and {later.upper()}): a ratio would be the accelerators', not the"
        " programs'",
        "run both where guests get the same one, or add --across-machines to compare them so",
    )
