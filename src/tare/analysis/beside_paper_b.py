"""Paper B's tables, each cell with what this run measured of the same kind.

The paper's machine is an Arm board with KVM; ours may be anything, and its guest may be emulated.
What can be compared is therefore the pattern: which cell is above which. Its cores 0 and 1 are our
first and second processor, its SD card our scratch disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tare.analysis.beside import Beside, Ours
from tare.analysis.cells import CellView
from tare.analysis.questions import Question
from tare.published import Figure, Table, papers

__all__ = ["beside_paper_b"]

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


def beside_paper_b(
    workload: str, views: Iterable[CellView], questions: Iterable[Question]
) -> tuple[Beside, ...]:
    """Set paper B's figures beside this run's; those of which it measured nothing stay out."""
    paper = papers()["B"]
    tables = {table.id: table for table in paper.tables}
    originals = [view for view in views if view.cell.replica == 1]
    if workload == "disk":
        rows = _disk(tables["disk"], originals)
    elif workload == "network":
        rows = _network(tables["network"], originals)
    elif workload not in ("cpu", "memory"):
        rows = []
    else:
        found = list(questions)
        rows = [
            Beside(
                paper.figure(figure),
                f"score of the class {kind} in the guest over that on the host",
                _scores(found, kind),
            )
            for figure, kinds in _CLASSES.items()
            for kind in kinds
        ]
    return tuple(row for row in rows if row.ours)


def _scores(questions: Iterable[Question], kind: str) -> tuple[Ours, ...]:
    found = []
    for question in questions:
        levels, ratio = question.cell.levels, question.others["score"].ratio
        of_guest = levels.get("environment") in _GUESTS and levels.get("class") == kind
        # The paper computed with one side at a time.
        of_guest = of_guest and levels.get("mode", "alone") == "alone"
        if of_guest and question.against.levels.get("environment") == "native" and ratio.estimate:
            low, high = (None if end is None else 100 * end for end in (ratio.low, ratio.high))
            found.append(Ours(question.cell, 100 * ratio.estimate, low, high))
    return tuple(found)


def _disk(table: Table, views: Iterable[CellView]) -> list[Beside]:
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


def _network(table: Table, views: Iterable[CellView]) -> list[Beside]:
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
    views: Iterable[CellView], wanted: Mapping[str, str], statistic: str
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
