"""Where the time goes, and what a request consumes."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis import Analysis, CellAccount
from tare.analysis.accounts import LINES
from tare.report import numbers
from tare.report.numbers import Value
from tare.report.tables.table import DASH, Table, time, what
from tare.report.wording import Names, interval_text
from tare.stats.budget import Part


def budgets(analysis: Analysis, names: Names) -> Table | None:
    """The mean response by contrast, in time and as shares."""
    rows = []
    for budget in analysis.budgets:
        place, total = names.place(budget.cell), budget.split.total
        rows.append(
            (
                place.environment,
                what(place.series, place.panel),
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
        (names.heading, "transport", *parts, "total", "blocks"),
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
        (names.heading, "transport", *lines, "sum", "mean response", "sum / response"),
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
        what(place.series, place.panel),
        *(
            interval_text(by_name[name].time, "time", like=like).bare if name in by_name else DASH
            for name in lines
        ),
        str(interval_text(closing.sum, "time", like=like)),
        str(interval_text(closing.response, "time")),
        str(interval_text(closing.closure, "share")),
    )


def causes(analysis: Analysis, names: Names) -> Table | None:
    """Operations, what each costs, how often a request needs it, and what they explain."""
    rows = []
    for found in analysis.causes:
        place, explanation = names.place(found.cell), found.explanation
        head = (place.environment, what(place.series, place.panel))
        like = explanation.response_ns.estimate
        rows += [
            (
                *head,
                line.name,
                numbers.time(line.unit_cost_ns).bare,
                numbers.fixed(line.count).bare,
                str(interval_text(line.time, "time", like=like)),
                numbers.share(line.share).bare,
                ", ".join(line.overlaps) or DASH,
            )
            for line in explanation.lines
        ]
        rows += [(*head, name, DASH, DASH, DASH, DASH, "not known here") for name in found.absent]
        inflation = numbers.ratio(found.inflation).bare
        rows.append(
            (
                *head,
                "all together",
                DASH,
                DASH,
                str(interval_text(explanation.explained_ns, "time", like=like)),
                str(interval_text(explanation.share, "share")),
                f"mean response {interval_text(explanation.response_ns, 'time')}; while counting"
                f" {inflation}",
            )
        )
    if not rows:
        return None
    return Table(
        "Operations of a request: unit cost, count, and what they explain [95 % interval]",
        (
            names.heading,
            "transport",
            "operation",
            "costs each",
            "a request",
            "time a request",
            "share of the mean",
            "overlaps with",
        ),
        tuple(rows),
        heads=3,
        words=(7,),
        note="Costs come from probes that repeat one operation, counts from sessions of their own"
        " (perf stat), since counting slows what it counts. Where operations overlap, their sum"
        " counts something twice; above 100 % it is shown as it is. A hot loop's cost is a lower"
        " bound of what the same operation costs cold.",
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
                what(place.series, place.panel),
                str(time(account.cpu_ns)),
                str(time(guest)) if guest else DASH,
                _waits(account) or DASH,
                numbers.memory(account.memory_bytes.value),
                str(numbers.fixed(account.wire_bytes.value, unit="B")),
            )
        )
    if not rows:
        return None
    return Table(
        "What a request consumes, both ends together",
        (
            names.heading,
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


def _waits(account: CellAccount) -> str:
    """Waits of those who work for this request alone; kernel threads serve the whole machine."""
    return "\n".join(
        f"{role} {time(wait)}"
        for role, wait in account.waits.items()
        if wait.n and role != "kernel"
    )
