"""Two results, cell by cell: what does the later one take over the earlier one?

Within a run, cells are paired by block. Two runs share no block, so their sessions are compared as
two independent samples: Welch's interval for the difference of mean logarithms (Welch 1947,
Biometrika 34:28), Holm's adjustment over all cells that both have.

What the interval does not hold: how much one and the same thing differs from run to run (another
day, another boot). Two runs of the same version show it; where it matters, interleave the versions
in one run instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy import stats

from tare import experiment as experiments
from tare import machine
from tare.analysis.questions import above_below, instrument_floor
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.errors import UsageError
from tare.plan import ALPHA
from tare.record import Record
from tare.report.wording import quantity_text, ratio_text
from tare.stats import Interval, Judgement, Method, Ratio, Verdict, holm, judge, mean_interval
from tare.workloads import Unit, registry

__all__ = ["CellComparison", "Comparison", "as_json", "compare", "fails", "table", "unpaired_ratio"]

_IDENTITY = ("cpu.model", "cpu.online", "cpu.usable", "cpu.virtual", "memory_bytes")
"""What makes it another machine. All else may be what the comparison is about."""
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class CellComparison:
    """One cell that both results have."""

    cell: str
    """Its id in the later result."""
    ratio: Ratio
    """Later over earlier, unpaired: `a` is the later result, `b` the earlier. `n_used` is the
    number of sessions of the smaller side."""
    judgement: Judgement


@dataclass(frozen=True)
class Comparison:
    """Two results."""

    earlier: str
    later: str
    statistic: str
    """What a session is summarised by."""
    unit: Unit
    """Of the statistic."""
    margin: float
    """Of equivalence, as a fraction, as the later result declares it."""
    machines: Mapping[str, tuple[Any, Any]]
    """Fingerprints: key -> (earlier, later), where they differ."""
    settings: Mapping[str, tuple[Any, Any]]
    """Settings of the sessions: key -> (earlier, later), where they differ."""
    accelerators: Mapping[str, tuple[str, str]]
    """Cells of guests that did not all run under one: id -> (earlier, later)."""
    cells: tuple[CellComparison, ...]
    only_earlier: tuple[str, ...]
    only_later: tuple[str, ...]


def compare(a: Record, b: Record, *, across_machines: bool = False) -> Comparison:
    """Compare result b with result a.

    Args:
        a: the earlier result, the baseline.
        b: the later one. Its margin and statistic count.
        across_machines: compare even though they come from different machines, or their guests ran
            under different accelerators.

    Raises:
        UsageError: the machines or the accelerators differ, or no cell is in both.
    """
    unlike = machine.unlike(a.fingerprint, b.fingerprint)
    _refuse_other_machine(a, b, unlike, across_machines)
    experiment = experiments.load(b.experiment_path, recorded=True)
    statistic, margin = experiment.statistic, experiment.margin_share
    plan_a, plan_b = a.plan, b.plan
    cells_a = {_identity(cell): cell for cell in plan_a.cells if cell.replica == 1}
    cells_b = {_identity(cell): cell for cell in plan_b.cells if cell.replica == 1}
    common = [key for key in cells_b if key in cells_a]
    if not common:
        raise UsageError(
            f"{a.folder} and {b.folder} have no cell in common",
            "compare two results of one experiment",
        )
    before, after = Sessions(a), Sessions(b)
    pairs = [(cells_a[key], cells_b[key]) for key in common]
    accelerators = _unlike_accelerators(before, after, pairs)
    if accelerators and not across_machines:
        raise _other_accelerator(a, b, accelerators)
    ratios = [
        unpaired_ratio(
            _values(after, cells_b[key].id, statistic), _values(before, cells_a[key].id, statistic)
        )
        for key in common
    ]
    adjusted = holm([ratio.p for ratio in ratios])
    workload = registry.by_name()[experiment.workload]
    declared = workload.statistics[statistic]
    timed = workload.response_times and declared.unit == "ns"
    words = above_below(declared)

    def floor(key: tuple[tuple[str, str], ...]) -> float | None:
        ends = (after, cells_b[key].id), (before, cells_a[key].id)
        return instrument_floor(*ends) if timed else None

    return Comparison(
        earlier=str(a.folder),
        later=str(b.folder),
        statistic=statistic,
        unit=declared.unit,
        margin=margin,
        machines=unlike,
        settings=machine.unlike(plan_a.session, plan_b.session),
        accelerators=accelerators,
        cells=tuple(
            CellComparison(
                cells_b[key].id,
                ratio,
                judge(ratio, p, alpha=ALPHA, margin=margin, floor=floor(key), above_below=words),
            )
            for key, ratio, p in zip(common, ratios, adjusted, strict=True)
        ),
        only_earlier=tuple(cell.id for key, cell in cells_a.items() if key not in cells_b),
        only_later=tuple(cell.id for key, cell in cells_b.items() if key not in cells_a),
    )


def unpaired_ratio(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], confidence: float = _CONFIDENCE
) -> Ratio:
    """Compare two independent sets of sessions.

    Assumes sessions that are independent and whose logarithms are about normal; their spreads may
    differ. Below two sessions a side, or without any spread, there is no interval and p is 1.

    Args:
        a: the numerator's sessions, shape (sessions,), positive.
        b: the denominator's, shape (other sessions,), same unit.
        confidence: nominal coverage of each interval.
    """
    logs = np.log(a), np.log(b)
    difference, p = _welch(*logs, confidence)
    return Ratio(
        ratio=_exponential(difference),
        difference=_welch(a, b, confidence)[0],
        a=_exponential(mean_interval(logs[0], confidence, Method.T)),
        b=_exponential(mean_interval(logs[1], confidence, Method.T)),
        p=p,
        sd_log=None,
        n_used=min(a.size, b.size),
        n_dropped=0,
        paired=False,
    )


def fails(found: Comparison, on: str) -> bool:
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


def as_json(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON; times in ns."""
    plain: dict[str, Any] = TypeAdapter(Comparison).dump_python(found, mode="json")
    return plain


def table(found: Comparison) -> RenderableType:
    """The comparison for a terminal."""
    rows = Table(box=None, pad_edge=False)
    for heading in ("verdict", "cell", "ratio [95 %]", "later", "earlier", "p (Holm)"):
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
            Text(verdict, style.get(verdict, "yellow")),
            Text(cell.cell),
            Text(ratio_text(cell.ratio.ratio)),
            Text(quantity_text(cell.ratio.a, found.unit).bare),
            Text(quantity_text(cell.ratio.b, found.unit).bare),
            Text(f"{cell.judgement.adjusted_p:.2g}"),
        )
    lines: list[RenderableType] = [
        Text(f"{found.later} over {found.earlier}, {found.statistic} of a session", "bold"),
        rows,
        Text(
            "Unpaired (Welch on logarithms, Holm over all cells): what one and the same thing"
            " differs by from run to run is not in the intervals.",
            "dim",
        ),
    ]
    for what, differences in (
        ("accelerator", found.accelerators),
        ("fingerprint", found.machines),
        ("session", found.settings),
    ):
        lines += (Text(line, "yellow") for line in _differing(what, differences))
    for where, cells in (("earlier", found.only_earlier), ("later", found.only_later)):
        if cells:
            lines.append(Text(f"only in the {where} result: {', '.join(cells)}", "yellow"))
    return Group(*lines)


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


def _refuse_other_machine(
    a: Record, b: Record, unlike: Mapping[str, tuple[Any, Any]], across_machines: bool
) -> None:
    other = [key for key in _IDENTITY if key in unlike]
    if other and not across_machines:
        shown = "; ".join(f"{key}: {unlike[key][0]} and {unlike[key][1]}" for key in other)
        raise UsageError(
            f"{a.folder} and {b.folder} come from different machines ({shown}): a ratio would be"
            " theirs, not the programs'",
            "run both on one machine, or add --across-machines to compare the machines",
        )


def _unlike_accelerators(
    before: Sessions, after: Sessions, pairs: Iterable[tuple[Cell, Cell]]
) -> dict[str, tuple[str, str]]:
    """Name the cells whose guests did not all run under one accelerator."""
    found = {}
    for earlier, later in pairs:
        one, other = before.accelerators(earlier.id), after.accelerators(later.id)
        if one and other and len({*one, *other}) > 1:
            found[later.id] = ("+".join(one), "+".join(other))
    return found


def _other_accelerator(a: Record, b: Record, unlike: Mapping[str, tuple[str, str]]) -> UsageError:
    cell, (earlier, later) = next(iter(unlike.items()))
    return UsageError(
        f"guests of {a.folder} and {b.folder} did not run under one accelerator ({cell}:"
        f" {earlier.upper()} and {later.upper()}): a ratio would be the accelerators', not the"
        " programs'",
        "run both where guests get the same one, or add --across-machines to compare them so",
    )


def _identity(cell: Cell) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(cell.levels.items()))


def _values(sessions: Sessions, cell: str, statistic: str) -> npt.NDArray[np.float64]:
    found = sessions.column(cell, statistic)
    return np.array([value for value in found if value is not None], dtype=np.float64)


def _welch(
    a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], confidence: float
) -> tuple[Interval, float]:
    """Difference of means with its interval, and the p-value of none."""
    n = min(a.size, b.size)
    if n == 0:
        return Interval(None, None, None, confidence, Method.T, 0), 1.0
    estimate = float(a.mean() - b.mean())
    if n < 2:
        return Interval(estimate, None, None, confidence, Method.T, n), 1.0
    variances = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    total = float(sum(variances))
    if total == 0.0:
        return Interval(estimate, None, None, confidence, Method.T, n), 1.0
    freedom = total**2 / sum(
        float(v) ** 2 / (side.size - 1) for v, side in zip(variances, (a, b), strict=True)
    )
    error = math.sqrt(total)
    reach = float(stats.t.ppf((1.0 + confidence) / 2.0, freedom)) * error
    p = float(2.0 * stats.t.sf(abs(estimate) / error, freedom))
    return Interval(estimate, estimate - reach, estimate + reach, confidence, Method.T, n), p


def _exponential(interval: Interval) -> Interval:
    ends = (
        None if end is None else math.exp(end)
        for end in (interval.estimate, interval.low, interval.high)
    )
    estimate, low, high = ends
    return Interval(estimate, low, high, interval.confidence, interval.method, interval.n)
