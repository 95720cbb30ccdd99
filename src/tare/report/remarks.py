"""What a reader must know before he believes a number: failures, drift, modes, noise, losses."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from tare.analysis import Analysis, CellView
from tare.analysis.beside_trials import LOAD, STOLEN, machine, stolen
from tare.analysis.cells import ODD_ALPHA
from tare.report import gate, numbers
from tare.report.wording import Names, interval_text
from tare.stats import Verdict
from tare.stats.noise import NoiseFloor

_MOST_FOUND = 1000
"""Percent; beyond, how much more it is tells nobody anything."""


def outcome(analysis: Analysis) -> str:
    """Say how the run ended, in one sentence: its blocks, and whether intervals met the target."""
    blocks, target = analysis.complete_blocks, analysis.experiment.blocks.until_percent
    most = len(analysis.plan.blocks)
    family = [q for q in analysis.questions if q.comparison.family]
    widths = [question.ratio.half_width_percent for question in family]
    wide = [width for width in widths if width is None or width > target]
    if blocks < analysis.plan.min_blocks:
        return (
            f"{blocks} of at least {analysis.plan.min_blocks} planned blocks are on record: the"
            " run has not ended, and its verdicts are provisional."
        )
    if analysis.gating is not None:
        return f"Gate: {'; '.join(gate.after(analysis)).removeprefix('gate: ')}."
    least = analysis.plan.min_blocks
    planned = str(least) if least == most else f"{least} to {most}"
    reached = f"{blocks} complete blocks (planned: {planned})"
    if (sessions := 1 + max((trial.repeat for trial in analysis.trials), default=0)) > 1:
        reached += f", up to {sessions} sessions of a cell in each"
    if not family:
        return f"{reached}; no comparison is judged."
    if all(question.ratio.ratio.estimate is None for question in family):
        why = "too few of their trials succeeded" if analysis.failures else "zero has no ratio"
        return f"{reached}; nothing can be compared: {why}."
    if not wide:
        return f"{reached}; every interval's half-width is within the target of {target:g} %."
    if len(wide) == len(family):
        which = "The interval is" if len(wide) == 1 else "All intervals are"
    else:
        which = f"{len(wide)} of {len(family)} intervals {'is' if len(wide) == 1 else 'are'}"
    return (
        f"{reached}. {which} wider than the target half-width of {target:g} %: where a verdict is"
        " missing, more blocks would be needed."
    )


def failures(analysis: Analysis, names: Names) -> list[tuple[str, str, str]]:
    """What failed, grouped by reason: (cells, blocks, reason), one cell a line."""
    found: dict[str, dict[str, list[int]]] = {}
    for trial in analysis.failures:
        name = _name(analysis.view(trial.cell), names)
        by_cell = found.setdefault(trial.error or "no reason on record", {})
        by_cell.setdefault(name, []).append(trial.block)
    rows = []
    for reason, by_cell in found.items():
        by_blocks: dict[str, list[str]] = {}
        for name, blocks in by_cell.items():
            by_blocks.setdefault(_blocks(blocks), []).append(name)
        rows += [("\n".join(cells), blocks, reason) for blocks, cells in by_blocks.items()]
    return rows


def _name(view: CellView, names: Names) -> str:
    second = " (second arm of A/A)" if view.cell.replica > 1 else ""
    return names.place(view.cell).full + second


def noise(analysis: Analysis) -> list[str]:
    """What the A/A pairs say of the instrument."""
    floor = analysis.noise
    if not floor.pairs:
        return [
            "No A/A pair has two blocks that can be compared, so the noise floor of this run is"
            " unknown."
        ]
    spread = numbers.percent(floor.sd_percent).bare
    return [
        *_shared_setting_up(analysis),
        f"The same cell measured twice differed by at most {numbers.percent(floor.largest_percent)}"
        f" ({_many(floor.pairs, 'A/A pair')}); from block to block the two arms scatter by"
        f" {spread} (standard deviation).",
        f"With as many blocks, a difference of {detectable(floor)} would be found four times in"
        " five (one comparison, unadjusted).",
        _false_positives(floor),
    ]


def detectable(floor: NoiseFloor) -> str:
    """The smallest difference that as many blocks find, where it is one that can be told."""
    found = floor.detectable_percent
    if found is None or found >= _MOST_FOUND:
        return f"more than {_MOST_FOUND} %"
    return str(numbers.percent(found))


def _false_positives(floor: NoiseFloor) -> str:
    false = floor.false_positives
    if not false.of:
        return (
            "No A/A pair has the blocks in which a difference could be found at level"
            f" {floor.alpha:g}, so this run says nothing of false positives."
        )
    return (
        f"False positives among the A/A pairs: {false.count} of {false.of} at level"
        f" {floor.alpha:g}. So few pairs bound the rate only by"
        f" {numbers.share(floor.false_positive_upper)} (one-sided 95 %); the simulations behind"
        " the method bound it better."
    )


def _shared_setting_up(analysis: Analysis) -> list[str]:
    """Say so where pairs share a boot and comparisons do not: plans were once made that way."""
    together = analysis.plan.together
    shared = sum(together(pair.comparison) for pair in analysis.pairs)
    if not shared or all(together(question.comparison) for question in analysis.questions):
        return []
    return [
        f"Both arms of {_many(shared, 'A/A pair')} were measured within one setting up, which"
        " comparisons between settings-up were not: what differs from one boot or start of an"
        " environment to the next is not in these figures, and they are too small for those."
    ]


def observations(analysis: Analysis, names: Names) -> list[str]:
    """What looks odd, in sentences; empty where nothing does."""
    found = [*analysis.workload.remarks(analysis)]
    if (polite := analysis.experiment.polite) is not None:
        found.append(
            f"It ran within bounds: at most {polite.processors} of the processors and"
            f" {polite.memory} of the memory, behind everything else on the machine. Without bounds"
            " the figures are others."
        )
    if analysis.experiment.at_once:
        found.append(
            "Hosts were measured at once, one cell at a time on each. Where two of them share a"
            " machine, as its guests do, they disturbed each other; nothing here could show it."
        )
    statistic = analysis.experiment.statistic
    for view in analysis.cells:
        name = _name(view, names)
        if len(view.accelerators) > 1:
            both = " and some under ".join(which.upper() for which in view.accelerators)
            found.append(f"Some trials of {name} ran under {both}: its figures are neither's.")
        if view.modes is not None and view.modes.flagged:
            unit = analysis.statistic.unit
            low, high = (
                numbers.quantity(unit, mode).bare for mode in (view.modes.low, view.modes.high)
            )
            slow = round(view.modes.share_high * view.modes.n)
            which = ", one a block" if view.modes.n < len(view.declared) else ""
            found.append(
                f"{name} starts in one of two modes: {low}, or {high} in {slow} of"
                f" {view.modes.n} sessions{which}."
                " Its mean depends on the mix."
            )
        if view.trend.flagged and view.trend.percent_per_block is not None:
            slope = numbers.percent(view.trend.percent_per_block, signed=True)
            found.append(f"{name} drifts from block to block: {statistic} by {slope} a block.")
        if view.lost:
            found.append(
                f"{name} lost {numbers.count(view.lost)} of {numbers.count(view.requests)}"
                " requests: its percentiles rank them as the longest, its mean is of replies alone."
            )
        if view.duplicated or view.reordered:
            found.append(
                f"{name} saw {numbers.count(view.duplicated)} replies twice and"
                f" {numbers.count(view.reordered)} out of order."
            )
    drifting = [
        f"{_name(view, names)} ({_blocks(block for block, _ in view.drifting)})"
        for view in analysis.cells
        if view.drifting
    ]
    if drifting:
        found.append(
            "The medians of a session's halves differ by more than 1 %, and not by chance"
            f" (p < {ODD_ALPHA:g}, adjusted over all sessions), in: {'; '.join(drifting)}. It was"
            " still warming up, or was disturbed."
        )
    found += _stolen_at_times(analysis, names)
    found += [_refused(q.comparison.id) for q in analysis.questions if _below(q.judgement)]
    return found + _unclosed(analysis, names)


def cautions(analysis: Analysis) -> list[str]:
    """What failed behind the trials; whether the machine had other work, as load and steal tell."""
    beside = machine(analysis.trials)
    found = [f"After its trials of block {one.block}, {one.error}" for one in analysis.losses]
    load = beside.get(LOAD)
    processors = analysis.fingerprint.cpu.usable
    if load and processors and load.median > _BUSY * processors:
        found.append(
            "The machine was busy with other work: its load average was"
            f" {load.median:.3g} in the median of the trials, on {processors} processors. Intervals"
            " are wide for it, and means and tails are not those of a quiet machine."
        )
    steal = beside.get(STOLEN)
    if steal and steal.median > _STOLEN:
        found.append(
            f"The hypervisor below took {numbers.share(steal.median).bare} of a processor's time"
            " in the median of the trials."
        )
    return found


def _stolen_at_times(analysis: Analysis, names: Names) -> list[str]:
    """Trials that stand out may do so for this; they stay, and the reader is told."""
    shares = [(share, t) for t in analysis.trials if (share := stolen(t)) is not None]
    high = [(share, trial) for share, trial in shares if share > _STOLEN_AT_ONCE]
    if not high:
        return []
    high.sort(key=itemgetter(0), reverse=True)
    blocks: dict[str, list[int]] = {}
    for _, trial in high:
        blocks.setdefault(_name(analysis.view(trial.cell), names), []).append(trial.block)
    shown = list(blocks)[:_CELLS_NAMED]
    where = "; ".join(f"{name} ({_blocks(blocks[name])})" for name in shown)
    if len(blocks) > len(shown):
        where += f"; and in {_many(len(blocks) - len(shown), 'cell')} more"
    worst, _ = high[0]
    return [
        "The hypervisor below took more than"
        f" {100 * _STOLEN_AT_ONCE:g} % of a processor's time, at worst"
        f" {numbers.share(worst).bare}, in {_many(len(high), 'trial')} of"
        f" {len(shares)}: {where}. What stands out there may be the machine's doing."
    ]


_BUSY = 2.0
"""Runnable threads a processor: one trial alone keeps it below."""
_STOLEN = 0.01
"""In the median of the trials."""
_STOLEN_AT_ONCE = 0.05
"""In one trial."""
_CELLS_NAMED = 4


def _below(judgement: object) -> bool:
    return getattr(judgement, "verdict", None) is Verdict.BELOW_INSTRUMENT


def _refused(comparison: str) -> str:
    return f"{comparison}: the difference is below what the instrument can tell here."


def _unclosed(analysis: Analysis, names: Names) -> list[str]:
    """Accounts that miss the mean response by more than a tenth."""
    return [
        f"The account of {names.place(found.cell).full} does not close: threads explain"
        f" {interval_text(closure, 'share')} of the mean response."
        for found in analysis.threads
        if found.closes and found.shares is not None
        if (closure := found.shares.together.share).estimate is not None
        and abs(closure.estimate - 1.0) > 0.1
    ]


def _blocks(blocks: Iterable[int]) -> str:
    """Block numbers as people count them, runs of them drawn together."""
    ordered = sorted(set(blocks))
    runs = []
    for _, group in groupby(enumerate(ordered), key=lambda item: item[1] - item[0]):
        members = [block + 1 for _, block in group]
        ends = {members[0], members[-1]}
        runs.append("\N{EN DASH}".join(str(end) for end in sorted(ends)))
    return f"{'block' if len(ordered) == 1 else 'blocks'} {', '.join(runs)}"


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")
