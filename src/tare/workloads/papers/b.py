"""Paper B's tables, each cell with what this run measured of the same kind.

The paper's machine is an Arm board with KVM; ours may be anything, and its guest may be emulated.
What can be compared is therefore the pattern: which cell is above which. Its cores 0 and 1 are our
first and second processor, its SD card our scratch disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tare.cell import Cell
from tare.published import Figure, Table, papers
from tare.published.beside import Beside, Ours, each, measured
from tare.stats import Interval
from tare.workloads.findings import Findings, QuestionSeen, ViewSeen

_MEGA = 1e6
_GUESTS = ("qemu",)
"""What the paper means by its guest."""
_PLATFORMS = {"host": "native", "guest": "qemu"}
_DEVICES = {
    "sda": "raw", "vda": "raw",
    "loop0 on sda": "loop", "loop0 on vda": "loop",
    "loop0 on nfs": "nfs",
}  # fmt: skip
_CORES = {"0": "first", "1": "second", "0,1": "all"}
_CLASSES = {
    "guest-over-host-memory-stream": ("memory", "stream"),
    "guest-over-host-integer-float": ("integer", "floating-point"),
}


def disk(found: Findings) -> tuple[Beside, ...]:
    """Set the paper's table of a disk beside a run's."""
    return measured(_disk(_tables()["disk"], _originals(found)))


def network(found: Findings) -> tuple[Beside, ...]:
    """Set the paper's table of a network beside a run's."""
    return measured(_network(_tables()["network"], _originals(found)))


def scores(found: Findings) -> tuple[Beside, ...]:
    """Set the paper's ratios of guest and host beside a run's, of computing and of memory."""
    return measured(
        Beside(
            papers()["B"].figure(figure),
            f"score of the class {kind} in the guest over that on the host",
            each(_ratios(found.questions, kind), lambda ratio: 100 * ratio),
        )
        for figure, kinds in _CLASSES.items()
        for kind in kinds
    )


def _tables() -> Mapping[str, Table]:
    return {table.id: table for table in papers()["B"].tables}


def _originals(found: Findings) -> list[ViewSeen]:
    return [view for view in found.cells if view.cell.replica == 1]


def _ratios(questions: Iterable[QuestionSeen], kind: str) -> Iterator[tuple[Cell, Interval]]:
    for question in questions:
        levels = question.cell.levels
        of_guest = levels.get("environment") in _GUESTS and levels.get("class") == kind
        # The paper computed with one side at a time.
        of_guest = of_guest and levels.get("mode", "alone") == "alone"
        if of_guest and question.against.levels.get("environment") == "native":
            yield question.cell, question.others["score"].promised.ratio


def _disk(table: Table, views: Iterable[ViewSeen]) -> list[Beside]:
    found = list(views)
    rows = []
    for platform, device, cached, low, high in table.rows:
        levels = {"environment": _PLATFORMS[str(platform)], "device": _DEVICES[str(device)]}
        name = f"{platform}, {device}"
        for operation, ends in (("cached", (cached, cached)), ("buffered", (low, high))):
            wanted = {**levels, "operation": operation}
            rows.append(
                Beside(
                    _figure(table, f"{name}, {operation}", ends),
                    f"{operation} reads, {wanted['environment']}, {wanted['device']} device",
                    _levels(found, wanted, "rate"),
                )
            )
    return rows


def _network(table: Table, views: Iterable[ViewSeen]) -> list[Beside]:
    found = list(views)
    rows = []
    for host_core, guest_core, traffic, host, low, high, odd in table.rows:
        mode, _, to = str(traffic).partition(" to ")
        pinning = f"host={_CORES[str(host_core)]} guest={_CORES[str(guest_core)]}"
        wanted = {"environment": "qemu", "placement": pinning, "mode": mode, "to": to}
        name = f"cores {host_core} and {guest_core}, {traffic}"
        note = "; the paper could not explain it" if odd else ""
        for side, ends in (("host", (host, host)), ("guest", (low, high))):
            rows.append(
                Beside(
                    _figure(table, f"{name}, {side}", ends),
                    f"throughput of the {side}, {pinning}{note}",
                    _levels(found, wanted, side),
                )
            )
    return rows


def _figure(table: Table, what: str, ends: tuple[Any, Any]) -> Figure:
    low, high = float(ends[0]), float(ends[1])
    same = low == high
    return Figure(
        id=f"{table.id}: {what}",
        where=table.where,
        measured=what,
        unit=table.unit,
        value=low if same else None,
        low=None if same else low,
        high=None if same else high,
    )


def _levels(
    views: Iterable[ViewSeen], wanted: Mapping[str, str], statistic: str
) -> tuple[Ours, ...]:
    found = []
    for view in views:
        estimate = view.estimates.get(statistic)
        if estimate is None or estimate.value is None:
            continue
        if all(view.cell.levels.get(name, level) == level for name, level in wanted.items()):
            low, high = (None if e is None else e / _MEGA for e in (estimate.low, estimate.high))
            found.append(Ours(view.cell, estimate.value / _MEGA, low, high))
    return tuple(found)
