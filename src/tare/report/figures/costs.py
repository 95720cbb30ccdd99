"""Where the time goes: by contrast, by thread, by operation."""

from __future__ import annotations

from tare.analysis import Analysis
from tare.analysis.threads import WAITED
from tare.report.figures.axis import share, written
from tare.report.figures.figure import Figure, Mark, Strip, strips
from tare.report.wording import UNADJUSTED, Names, interval_text
from tare.stats import Interval

_PARTS = {
    "floor": "grey",
    "virtualisation": "c0",
    "middleware": "c4",
    "interaction": "c3",
}
_LINES = {
    "client on CPU": "c0",
    "server on CPU": "c4",
    "vmm on CPU": "c3",
    "vcpu on CPU": "c2",
    "kernel on CPU": "grey",
    WAITED: "c1",
}


def contrasts(analysis: Analysis, names: Names) -> Figure | None:
    """Each response as a staircase of its parts by contrast."""
    groups = []
    for found in analysis.contrasts:
        start, rows, whole = 0.0, [], found.shares.whole
        for part in found.shares.parts:
            if part.amount.estimate is None:
                continue
            end = start + part.amount.estimate
            bar = Mark("bar", _PARTS[part.name], min(start, end), max(start, end))
            kind = "time" if part.name == "floor" else "difference"
            text = str(interval_text(part.amount, kind, whole.estimate))
            label = UNADJUSTED.get(part.name, part.name)
            rows.append(Strip(label, (bar, *_line(part.amount, start=start)), text))
            start = end
        total = (Mark("bar", "soft", 0.0, start), *_line(whole))
        rows.append(Strip("total", total, str(interval_text(whole, "time"))))
        groups.append((names.place(found.cell).full, rows))
    if not groups:
        return None
    return Figure(
        "budget",
        "Where a response goes, layer by layer",
        "Bars start where the one above ends; together they make the total. Lines are 95 %"
        " intervals of each part by itself. Floor: the plain transport on the host. Virtualisation:"
        " what the environment adds to the floor. Middleware: what the stack adds on the host."
        " Interaction: what the two add beyond their sum; it reaches left where together they cost"
        " less. Means, since means add and medians do not.",
        groups=strips(groups, written("ns"), log=False, seen=(0.0,)),
    )


def threads(analysis: Analysis, names: Names) -> Figure | None:
    """Who was on a processor during a response, as shares of its mean."""
    groups: dict[str, list[Strip]] = {}
    used = set()
    for found in analysis.threads:
        if found.shares is None or not found.closes:
            continue
        marks, end = [], 0.0
        for part in found.shares.parts:
            start, end = end, end + (part.share.estimate or 0.0)
            marks.append(Mark("bar", _LINES[part.name], start, end, tip=part.name))
            used.add(part.name)
        place, closure = names.place(found.cell), found.shares.together.share
        text = str(interval_text(closure, "share")) if closure.resolved else ""
        row = Strip(place.rest, (*marks, *_line(closure)), text)
        groups.setdefault(place.environment, []).append(row)
    if not groups:
        return None
    return Figure(
        "account",
        "Does the account close?",
        "On-CPU time of every thread involved for each request, and what they waited while other"
        " programs ran, over the mean response. The line at a bar's end is the 95 % interval of"
        " their sum; at 100 % the account closes. Kernel threads serve the whole machine: theirs is"
        " an upper bound.",
        groups=strips(list(groups.items()), share, log=False, seen=(0.0, 1.0), common=True),
        legend=tuple((style, name) for name, style in _LINES.items() if name in used),
        rule=1.0,
    )


def operations(analysis: Analysis, names: Names) -> Figure | None:
    """What each operation explains of a response."""
    groups = []
    for found in analysis.operations:
        response, together = found.shares.whole.estimate, found.shares.together
        if not response:
            continue
        rows = []
        for part in (*found.shares.parts, together):
            style, line = "c5", _line(part.amount, response)
            if part is together:
                style, line = "soft", _line(part.share)
            bar = Mark("bar", style, 0.0, part.share.estimate or 0.0)
            rows.append(Strip(part.name, (bar, *line), str(interval_text(part.share, "share"))))
        groups.append((names.place(found.cell).full, rows))
    if not groups:
        return None
    return Figure(
        "causes",
        "What operations explain",
        "Unit cost times count of each operation, over the mean response; lines are 95 %"
        " intervals. What is missing up to 100 % is not explained; beyond it, operations overlap.",
        groups=strips(groups, share, log=False, seen=(0.0, 1.0), common=True),
        rule=1.0,
    )


def _line(found: Interval, unit: float = 1.0, start: float = 0.0) -> tuple[Mark, ...]:
    """An interval over a bar that starts somewhere; none where there is none."""
    if found.low is None or found.high is None:
        return ()
    return (Mark("line", "ink", start + found.low / unit, start + found.high / unit),)
