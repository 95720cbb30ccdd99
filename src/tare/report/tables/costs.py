"""Where the time goes, and what a request consumes."""

from __future__ import annotations

from tare.analysis import Analysis, CellThreads
from tare.analysis.threads import LINES
from tare.cell import Cell
from tare.report import numbers
from tare.report.tables.table import DASH, Table, time
from tare.report.wording import UNADJUSTED, Names, interval_text


def contrasts(analysis: Analysis, names: Names) -> Table | None:
    """The mean response by contrast, in time and as shares."""
    rows = []
    for found in analysis.contrasts:
        shares = found.shares
        like = shares.whole.estimate
        parts = [
            f"{interval_text(part.amount, 'time' if part.name == 'floor' else 'difference', like)}"
            f"\n{interval_text(part.share, 'share')}"
            for part in shares.parts
        ]
        total = str(interval_text(shares.whole, "time"))
        rows.append((*_heads(found.cell, names), *parts, total, str(shares.n_used)))
    if not rows:
        return None
    named = tuple(
        UNADJUSTED.get(part.name, part.name) for part in analysis.contrasts[0].shares.parts
    )
    return Table(
        "Budget of the mean response by contrast [95 % interval], and each part's share",
        (names.heading, names.lead, *named, "total", "blocks"),
        tuple(rows),
        note="The parts add up in every block by construction, so their sum proves nothing; each"
        " interval is of one part by itself, and none is adjusted for how many there are: an"
        " interaction is no verdict. Shares: Fieller.",
    )


def threads(analysis: Analysis, names: Names) -> Table | None:
    """The closing account, line by line."""
    found = [(one.cell, one.shares) for one in analysis.threads if one.shares is not None]
    used = {part.name for _, shares in found for part in shares.parts}
    lines = [name for name in LINES if name in used]
    rows = []
    for cell, shares in found:
        like = shares.whole.estimate
        amounts = {
            part.name: interval_text(part.amount, "time", like).bare for part in shares.parts
        }
        rows.append(
            (
                *_heads(cell, names),
                *(amounts.get(name, DASH) for name in lines),
                str(interval_text(shares.together.amount, "time", like)),
                str(interval_text(shares.whole, "time")),
                str(interval_text(shares.together.share, "share")),
            )
        )
    return Table.of(
        "Time of every thread involved, for each request, against the mean response"
        " [95 % interval]",
        (names.heading, names.lead, *lines, "sum", "mean response", "sum / response"),
        rows,
        note="From the scheduler's own accounts (schedstat), read before and after the measured"
        " part. Above 100 % threads ran at the same time, or for something else. In open loop, with"
        " several clients, or where a guest's kernel answers by itself, it need not close.",
    )


def operations(analysis: Analysis, names: Names) -> Table | None:
    """Operations, what each costs, how often a request needs it, and what they explain."""
    rows = []
    for found in analysis.operations:
        head, shares = _heads(found.cell, names), found.shares
        like, together = shares.whole.estimate, shares.together
        rows += [
            (
                *head,
                cost.name,
                numbers.time(cost.unit_cost_ns).bare,
                numbers.fixed(cost.count).bare,
                str(interval_text(cost.amount, "time", like)),
                interval_text(cost.share, "share").bare,
                ", ".join(cost.overlaps) or DASH,
            )
            for cost in shares.parts
        ]
        rows += [(*head, name, DASH, DASH, DASH, DASH, "not known here") for name in found.absent]
        rows.append(
            (
                *head,
                together.name,
                DASH,
                DASH,
                str(interval_text(together.amount, "time", like)),
                str(interval_text(together.share, "share")),
                f"mean response {interval_text(shares.whole, 'time')}; while counting"
                f" {numbers.ratio(found.inflation).bare}",
            )
        )
    return Table.of(
        "Operations of a request: unit cost, count, and what they explain [95 % interval]",
        (
            names.heading,
            names.lead,
            "operation",
            "costs each",
            "a request",
            "time a request",
            "share of the mean",
            "overlaps with",
        ),
        rows,
        heads=3,
        words=(7,),
        note="Costs come from probes that repeat one operation, counts from sessions of their own"
        " (perf stat), since counting slows what it counts. Where operations overlap, their sum"
        " counts something twice; above 100 % it is shown as it is. A hot loop's cost is a lower"
        " bound of what the same operation costs cold.",
    )


def resources(analysis: Analysis, names: Names) -> Table | None:
    """Processor, memory and wire, for each request, or each second of what has none."""
    requests = analysis.response_times

    def size(of: float | None) -> str:
        return str(numbers.fixed(of, unit="B")) if requests else numbers.memory(of)

    rows = tuple(
        (
            *_heads(found.cell, names),
            str(time(found.cpu_ns)),
            str(time(found.guest_ns, found.cpu_ns.value)) if found.guest_ns else DASH,
            _waits(found) or DASH,
            numbers.memory(found.memory_bytes.value),
            size(found.wire_bytes.value),
        )
        for found in analysis.threads
    )
    return Table.of(
        "What a request consumes, both ends together"
        if requests
        else "What the server's side consumes in each second that is measured",
        (
            names.heading,
            names.lead,
            "CPU time on the host",
            "the server's, as the guest sees it",
            "waits for a processor, overlapping",
            "peak memory of the server's side",
            "bytes on its interface",
        ),
        rows,
        note="The guest's own view overlaps with its virtual CPU's time on the host and is never"
        " added to it. Waits overlap with each other and with CPU times: while one thread waits,"
        " another of the same work may run. Memory of a guest is QEMU's.",
    )


def _heads(cell: Cell, names: Names) -> tuple[str, str]:
    place = names.place(cell)
    return place.environment, place.rest


def _waits(found: CellThreads) -> str:
    """Waits of those who work for this request alone; kernel threads serve the whole machine."""
    return "\n".join(
        f"{role} {time(wait, found.cpu_ns.value)}"
        for role, wait in found.waits.items()
        if wait.value and role != "kernel"
    )
