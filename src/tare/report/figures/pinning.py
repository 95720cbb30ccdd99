"""Heat maps of pinnings (paper B, Fig. 4): host's processors against the guest's."""

from __future__ import annotations

import re

from tare.analysis import Analysis
from tare.report import numbers
from tare.report.figures.figure import Figure, Map
from tare.report.wording import Names

_PINNING = re.compile(r"host=(?P<host>\S+) guest=(?P<guest>\S+)")
_ORDER = ("first", "second", "all")
_FEWEST = 3
"""Fewer pinnings than this make no map."""


def pinnings(analysis: Analysis, names: Names) -> Figure | None:
    """Every statistic over the pinnings of host and guest; the split's evenness among them."""
    maps: dict[str, dict[tuple[str, str], tuple[float, numbers.Value]]] = {}
    for view in analysis.cells:
        placement = _PINNING.fullmatch(view.cell.levels.get("placement", ""))
        if placement is None or view.cell.replica > 1:
            continue
        rest = [
            names.level(factor, level)
            for factor, level in view.cell.levels.items()
            if factor != "placement" and factor not in names.constant
        ]
        for name, statistic in analysis.statistics.items():
            found = view.estimates.get(name)
            if found is not None and found.value:
                shown = numbers.quantity(statistic.unit, found.value, found.low, found.high)
                cells = maps.setdefault(", ".join([*rest, name]), {})
                cells[placement["host"], placement["guest"]] = found.value, shown
    pairs = dict.fromkeys(pair for cells in maps.values() for pair in cells)
    if len(pairs) < _FEWEST:
        return None
    found_ = dict.fromkeys(pinning for pair in pairs for pinning in pair)
    order = [p for p in _ORDER if p in found_] + [p for p in found_ if p not in _ORDER]
    return Figure(
        "pinnings",
        "What pinning does",
        "Each map is one statistic of one setting; rows are the processors that the host's side may"
        " use, columns the guest's. Numbers are geometric means over sessions with their 95 %"
        " intervals; the stronger the colour, the larger within its map. `jain` is Jain's index of"
        " the split between the two: 1 where both have the same, 0.5 where one has all.",
        maps=tuple(_map(heading, cells, order) for heading, cells in maps.items()),
    )


def _map(
    heading: str, cells: dict[tuple[str, str], tuple[float, numbers.Value]], order: list[str]
) -> Map:
    most = max(value for value, _ in cells.values())

    def cell(host: str, guest: str) -> tuple[float, str, str] | None:
        if (host, guest) not in cells:
            return None
        value, shown = cells[host, guest]
        return value / most, shown.bare, shown.interval

    rows = tuple((f"host {host}", tuple(cell(host, guest) for guest in order)) for host in order)
    return Map(heading, tuple(f"guest {guest}" for guest in order), rows)
