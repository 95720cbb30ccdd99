"""The report's tables as rows of text: every number rounded, every interval beside its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tare.analysis import Analysis, CellAccount, CellView, Question
from tare.analysis.accounts import LINES
from tare.analysis.questions import DESCRIPTIVE
from tare.report import numbers
from tare.report.numbers import Value
from tare.report.wording import Names, interval_text
from tare.stats import DeadlineView, Estimate, Interval
from tare.stats.budget import Part

__all__ = [
    "Table",
    "accounts",
    "budgets",
    "calibration",
    "deadlines",
    "effects",
    "levels",
    "other_statistics",
    "paper",
    "resources",
    "tails",
]

UNRESOLVED = "unresolved"
_DASH = "\N{EM DASH}"


@dataclass(frozen=True)
class Table:
    """A table; the first `heads` columns are row headings, the rest numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heads: int = 2
    note: str = ""
    words: tuple[int, ...] = ()
    """Columns of running text, from 0."""
    conditioned: bool = True
    """Whether accelerator and mode matter to it, and stand below it."""


def effects(analysis: Analysis, names: Names, questions: Sequence[Question]) -> Table | None:
    """Every comparison: the ratio, and both ends of it."""
    statistic = analysis.experiment.statistic
    rows = []
    for question in questions:
        place, ratio = names.place(question.cell), question.ratio
        judged = question.judgement
        rows.append(
            (
                place.environment,
                _what(place.series, place.panel),
                str(judged.verdict) if judged else "descriptive",
                _ratio(ratio.ratio),
                interval_text(ratio.a, "time").bare,
                interval_text(ratio.b, "time").bare,
                str(interval_text(ratio.difference, "difference")),
                f"{judged.adjusted_p:.2g}" if judged else _DASH,
                _blocks(question),
            )
        )
    if not rows:
        return None
    return Table(
        f"Ratio of {statistic}, paired by block, geometric mean [95 % interval]",
        (
            "environment",
            "transport",
            "verdict",
            f"ratio of {statistic}",
            "here",
            "baseline",
            "difference",
            "adjusted p",
            "blocks",
        ),
        tuple(rows),
        heads=3,
        note="Adjusted p: sign-flip test, Holm over the family. Descriptive comparisons stand"
        " outside of the family: their intervals are each 95 % by themselves.",
    )


def other_statistics(analysis: Analysis, names: Names) -> Table | None:
    """The same comparisons by other summaries of a session: descriptive."""
    others = [name for name in DESCRIPTIVE if name != analysis.experiment.statistic]
    rows = []
    for question in analysis.questions:
        place = names.place(question.cell)
        columns: list[str] = []
        for name in others:
            ratio = question.others[name]
            columns += [
                _ratio(ratio.ratio),
                interval_text(ratio.a, "time").bare,
                interval_text(ratio.b, "time").bare,
            ]
        rows.append((place.environment, _what(place.series, place.panel), *columns))
    if not rows:
        return None
    return Table(
        f"Ratios by other statistics than {analysis.experiment.statistic} [95 % interval]",
        (
            "environment",
            "transport",
            *(column for name in others for column in (f"ratio of {name}", "here", "baseline")),
        ),
        tuple(rows),
        note="Descriptive: each interval is 95 % by itself, and none carries a verdict.",
    )


def levels(analysis: Analysis, names: Names) -> Table:
    """The middle of every cell's distribution, over its sessions."""
    rows = tuple(
        (
            *_cell(view, names),
            _sessions(view),
            *(_level(view, statistic) for statistic in _MIDDLE),
            _rate(view.estimates["throughput"]),
        )
        for view in analysis.cells
    )
    return Table(
        "Response times: geometric mean over sessions [95 % interval]",
        ("environment", "transport", "sessions", *_MIDDLE, "thousand replies a second"),
        rows,
        note="min is the shortest response of a session, jitter the mean absolute difference of"
        " successive responses (RFC 3550, section 6.4.1).",
    )


def tails(analysis: Analysis, names: Names) -> Table:
    """The tail of every cell's distribution, over its sessions."""
    rows = tuple(
        (
            *_cell(view, names),
            *(_level(view, statistic) for statistic in _TAIL),
            numbers.time(view.estimates["max"].max).bare,
            f"{numbers.count(view.lost)} of {numbers.count(view.requests)}",
        )
        for view in analysis.cells
    )
    return Table(
        "Their tails: geometric mean over sessions [95 % interval]",
        ("environment", "transport", *_TAIL, "longest of all", "lost"),
        rows,
        note="A percentile that a session's effective samples cannot tell from its maximum is"
        " unresolved: p99 needs 299 of them, p99.9 needs 2995, p99.99 needs 29956.",
    )


_MIDDLE = ("p50", "mean", "min", "jitter")
_TAIL = ("p90", "p99", "p99.9", "p99.99")


def deadlines(analysis: Analysis, names: Names) -> Table | None:
    """Shares of each deadline, and what came late."""
    texts = analysis.experiment.deadlines
    rows = [
        (
            *_cell(view, names),
            *(text for found in view.deadlines for text in _deadline(view, found)),
        )
        for view in analysis.cells
        if view.cell.replica == 1 and view.deadlines
    ]
    if not rows:
        return None
    return Table(
        "Share that p50 and p99 take of each deadline [95 % interval], and what missed it",
        (
            "environment",
            "transport",
            *(
                heading
                for text in texts
                for heading in (f"p50 of {text}", f"p99 of {text}", f"late; missed {text}")
            ),
        ),
        tuple(rows),
        note="Late: replies after the deadline. Missed: requests answered late or not at all, with"
        " an interval that takes into account that lateness clusters in sessions (Korn and"
        " Graubard).",
    )


def _deadline(view: CellView, found: DeadlineView) -> tuple[str, str, str]:
    late, missed = (numbers.count(counted.count) for counted in (found.late, found.missed))
    if found.missed.count:
        missed += f" = {numbers.share(found.missed.share, found.missed.low, found.missed.high)}"
    else:
        missed += f" (below {numbers.share(found.missed.high).bare})"
    p99 = UNRESOLVED if view.unresolved["p99"] else _share(found.p99_share)
    return _share(found.p50_share), p99, f"{late}; {missed}"


def budgets(analysis: Analysis, names: Names) -> Table | None:
    """The mean response by contrast, in time and as shares."""
    rows = []
    for budget in analysis.budgets:
        place, total = names.place(budget.cell), budget.split.total
        rows.append(
            (
                place.environment,
                _what(place.series, place.panel),
                *(
                    f"{_part(part, total.estimate)}\n{interval_text(part.share, 'share')}"
                    for part in budget.split.parts
                ),
                str(interval_text(total, "time")),
                str(budget.split.n_used),
            )
        )
    if not rows:
        return None
    parts = tuple(part.name for part in analysis.budgets[0].split.parts)
    return Table(
        "Budget of the mean response by contrast [95 % interval], and each part's share",
        ("environment", "transport", *parts, "total", "blocks"),
        tuple(rows),
        note="The parts add up in every block by construction, so their sum proves nothing; each"
        " interval is of one part by itself. Shares: Fieller.",
    )


def _part(part: Part, total_ns: float | None) -> Value:
    kind = "time" if part.name == "floor" else "difference"
    return interval_text(part.time, kind, like=total_ns)


def accounts(analysis: Analysis, names: Names) -> Table | None:
    """The closing account, line by line."""
    found = [a for a in analysis.accounts if a.closing is not None]
    used = {line.name for a in found if a.closing for line in a.closing.lines}
    lines = [name for name in LINES if name in used]
    rows = [_account(account, names, lines) for account in found]
    if not rows:
        return None
    return Table(
        "Time of every thread involved, for each request, against the mean response"
        " [95 % interval]",
        ("environment", "transport", *lines, "sum", "mean response", "sum / response"),
        tuple(rows),
        note="From the scheduler's own accounts (schedstat), read before and after the measured"
        " part. Above 100 % threads ran at the same time, or for something else. In open loop, with"
        " several clients, or where a guest's kernel answers by itself, it need not close.",
    )


def _account(account: CellAccount, names: Names, lines: Sequence[str]) -> tuple[str, ...]:
    assert account.closing is not None
    place, closing = names.place(account.cell), account.closing
    by_name = {line.name: line for line in closing.lines}
    like = closing.response.estimate
    return (
        place.environment,
        _what(place.series, place.panel),
        *(
            interval_text(by_name[name].time, "time", like=like).bare if name in by_name else _DASH
            for name in lines
        ),
        str(interval_text(closing.sum, "time", like=like)),
        str(interval_text(closing.response, "time")),
        str(interval_text(closing.closure, "share")),
    )


def resources(analysis: Analysis, names: Names) -> Table | None:
    """Processor, memory and wire, for each request."""
    rows = []
    for account in analysis.accounts:
        place = names.place(account.cell)
        guest = account.guest.get("on CPU")
        rows.append(
            (
                place.environment,
                _what(place.series, place.panel),
                str(_time(account.cpu_ns)),
                str(_time(guest)) if guest else _DASH,
                "\n".join(f"{role} {_time(wait)}" for role, wait in account.waits.items() if wait.n)
                or _DASH,
                numbers.memory(account.memory_bytes.value),
                str(numbers.fixed(account.wire_bytes.value, unit="B")),
            )
        )
    if not rows:
        return None
    return Table(
        "What a request consumes, both ends together",
        (
            "environment",
            "transport",
            "CPU time on the host",
            "the server's, as the guest sees it",
            "waits for a processor, overlapping",
            "peak memory of the server's side",
            "bytes on its interface",
        ),
        tuple(rows),
        note="The guest's own view overlaps with its virtual CPU's time on the host and is never"
        " added to it. Waits overlap with each other and with CPU times: while one thread waits,"
        " another of the same request may run. Memory of a guest is QEMU's.",
    )


def calibration(analysis: Analysis, names: Names) -> Table | None:
    """What the instrument costs, on both sides of every environment."""
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for trial in analysis.trials:
        heading = names.main(analysis.view(trial.cell).cell)[0]
        for side in ("client", "inside"):
            if side in trial.calibration:
                measured = {**trial.calibration[side], "floor_ns": trial.calibration["floor_ns"]}
                found.setdefault((heading, side), []).append(measured)
    if not found:
        return None
    return Table(
        "The instrument, calibrated in every session: median [least, most]",
        ("environment", "side", *_CALIBRATED.values()),
        tuple(
            (*place, *(_spread([entry[key] for entry in entries]) for key in _CALIBRATED))
            for place, entries in found.items()
        ),
        conditioned=False,
        note="Verdicts on differences, or margins, below the floor of the coarser end are refused.",
    )


_CALIBRATED = {
    "read_ns": "reading the clock",
    "resolution_ns": "smallest step",
    "timer_late_ns": "timer late by",
    "null_response_ns": "answering itself",
    "floor_ns": "floor",
}


def _spread(values: Sequence[float]) -> str:
    return str(numbers.time(median(values), min(values), max(values)))


def paper(analysis: Analysis, names: Names) -> Table | None:
    """The published figures, each beside ours."""
    rows = []
    for beside in analysis.beside:
        unit = beside.figure.unit.replace("us", "\N{MICRO SIGN}s")
        ours = "\n".join(
            f"{names.place(one.cell).full}: "
            f"{numbers.fixed(one.estimate, one.low, one.high, unit, most=3)}"
            for one in beside.ours
        )
        figure = beside.figure
        published = figure.text.replace(" us", " \N{MICRO SIGN}s")
        rows.append((figure.measured, figure.where, published, ours, beside.what))
    if not rows:
        return None
    return Table(
        "The paper's figures, and this run's",
        ("the paper measured", "where", "published", "here [95 % interval]", "what ours is"),
        tuple(rows),
        heads=3,
        words=(4,),
    )


def _cell(view: CellView, names: Names) -> tuple[str, str]:
    place = names.place(view.cell)
    second = " (second arm of A/A)" if view.cell.replica > 1 else ""
    return place.environment, _what(place.series, place.panel) + second


def _what(series: str, panel: str) -> str:
    return ", ".join(part for part in (series, panel) if part)


def _ratio(interval: Interval) -> str:
    value = interval_text(interval, "ratio")
    return f"{value.number} {value.interval}"


def _blocks(question: Question) -> str:
    dropped = question.ratio.n_dropped
    return f"{question.ratio.n_used}" + (f" ({dropped} incomplete)" if dropped else "")


def _sessions(view: CellView) -> str:
    failed = f" ({view.failed} failed)" if view.failed else ""
    return f"{len(view.sessions)}{failed}"


def _level(view: CellView, statistic: str) -> str:
    if view.resolved(statistic) is None:
        short = view.unresolved.get(statistic, 0)
        total = len(view.sessions)
        if short and short < total:
            return f"{UNRESOLVED} in {short} of {total}"
        return UNRESOLVED if short else _DASH
    return str(_time(view.estimates[statistic]))


def _time(estimate: Estimate) -> Value:
    return numbers.time(estimate.value, estimate.low, estimate.high)


def _share(estimate: Estimate) -> str:
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if end is None else 100.0 * end for end in ends)
    return str(numbers.fixed(value, low, high, "%", most=2))


def _rate(estimate: Estimate) -> str:
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if end is None else end / 1e3 for end in ends)
    return str(numbers.fixed(value, low, high, most=3))
