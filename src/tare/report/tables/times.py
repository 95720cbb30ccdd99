"""Response times: the middle, the tails, the deadlines."""

from __future__ import annotations

from tare.analysis import Analysis, CellView
from tare.report import numbers
from tare.report.tables.table import DASH, UNRESOLVED, Table, cell_heads, time
from tare.report.wording import Names
from tare.stats import DeadlineView, Estimate

_MIDDLE = ("p50", "mean", "min", "jitter")


_TAIL = ("p90", "p99", "p99.9", "p99.99")


def levels(analysis: Analysis, names: Names) -> Table | None:
    """The middle of every cell's distribution, over its sessions."""
    if not analysis.response_times:
        return None
    rows = tuple(
        (
            *cell_heads(view, names),
            _sessions(view),
            *(_level(view, statistic) for statistic in _MIDDLE),
            _rate(view.estimates["throughput"]),
        )
        for view in analysis.cells
    )
    return Table(
        "Response times: geometric mean over sessions [95 % interval]",
        (names.heading, names.lead, "sessions", *_MIDDLE, "thousand replies a second"),
        rows,
        note="min is the shortest response of a session, jitter the mean absolute difference of"
        " successive responses (RFC 3550, section 6.4.1).",
    )


def tails(analysis: Analysis, names: Names) -> Table | None:
    """The tail of every cell's distribution, over its sessions."""
    if not analysis.response_times:
        return None
    rows = tuple(
        (
            *cell_heads(view, names),
            *(_level(view, statistic) for statistic in _TAIL),
            numbers.time(_longest(view), like=view.estimates["p50"].value).bare,
            f"{numbers.count(view.lost)} of {numbers.count(view.requests)}",
        )
        for view in analysis.cells
    )
    return Table(
        "Their tails: geometric mean over sessions [95 % interval]",
        (names.heading, names.lead, *_TAIL, "longest of all", "lost"),
        rows,
        note="A percentile that a session's effective samples cannot tell from its maximum is"
        " unresolved: p99 needs 299 of them, p99.9 needs 2995, p99.99 needs 29956.",
    )


def _longest(view: CellView) -> float | None:
    """Of every reply of every session; an estimate knows but means of sessions."""
    found = (session.summary.max_ns for session in view.sessions.values())
    return max((longest for longest in found if longest is not None), default=None)


def deadlines(analysis: Analysis, names: Names) -> Table | None:
    """Shares of each deadline, and what came late."""
    rows = tuple(
        (*cell_heads(view, names), text, *_deadline(view, found))
        for number, text in enumerate(analysis.experiment.deadlines)
        for view in analysis.cells
        if view.cell.replica == 1 and view.deadlines
        for found in (view.deadlines[number],)
    )
    return Table.of(
        "Share that p50 and p99 take of each deadline [95 % interval], and what missed it",
        (names.heading, names.lead, "deadline", "p50", "p99", "late", "missed"),
        rows,
        heads=3,
        note="Late: replies after the deadline. Missed: requests answered late or not at all, with"
        " an interval that takes into account that lateness clusters in sessions (Korn and"
        " Graubard).",
    )


def _deadline(view: CellView, found: DeadlineView) -> tuple[str, str, str, str]:
    late, missed = (numbers.count(counted.count) for counted in (found.late, found.missed))
    if found.missed.count:
        missed += f" = {numbers.share(found.missed.share, found.missed.low, found.missed.high)}"
    else:
        missed += f" (below {numbers.share(found.missed.high).bare})"
    p50, p99 = (
        UNRESOLVED if view.unresolved[name] else _share(part)
        for name, part in (("p50", found.p50_share), ("p99", found.p99_share))
    )
    return p50, p99, late, missed


def _sessions(view: CellView) -> str:
    failed = f" ({view.failed} failed)" if view.failed else ""
    return f"{len(view.sessions)}{failed}"


def _level(view: CellView, statistic: str) -> str:
    if view.resolved(statistic) is None:
        short = view.unresolved.get(statistic, 0)
        total = len(view.sessions)
        if short and short < total:
            return f"{UNRESOLVED} in {short} of {total}"
        return UNRESOLVED if short else DASH
    return str(time(view.estimates[statistic], like=view.estimates["p50"].value))


def _share(estimate: Estimate) -> str:
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if end is None else 100.0 * end for end in ends)
    return str(numbers.percent(value, low, high))


def _rate(estimate: Estimate) -> str:
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if end is None else end / 1e3 for end in ends)
    return str(numbers.fixed(value, low, high))
