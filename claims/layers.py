"""B1 and B3: paper B in full with intervals, and whether a whole map of layers can be repeated."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from claims.checking import Found, Workshop, shown
from claims.experiments import run_shipped
from tare import compare, suite
from tare.errors import UsageError
from tare.published import papers
from tare.sides import TareRun
from tare.stats.bounds import Kept

_PAPER_B = "kvm-overhead.yaml"
_MAP = "environments.yaml"
_REPEATABLE = 0.93
_WITHOUT = 2
"""Cells of the host's loop device over NFS, cached and buffered: Tare mounts NFS in guests only."""


def _parts(workshop: Workshop, name: str) -> list[str]:
    """Name the parts of a suite that ships, relative to the folder of experiments."""
    path = workshop.home / "experiments" / name
    found = suite.load(path)
    if found is None:
        raise UsageError(f"{path} is no suite")
    return list(found.parts)


def _in_the_paper() -> int:
    """Count the cells of paper B's tables: each row has two figures, and each class one."""
    classes = 4
    return classes + sum(2 * len(table.rows) for table in papers()["B"].tables)


def _typical(half_widths: list[float]) -> str:
    return f"median half-width {median(half_widths):.1%}" if half_widths else "no interval"


def every_cell(workshop: Workshop) -> Found:
    """B1: which cells of the tables have an interval."""
    wanted = _in_the_paper() - _WITHOUT
    data: dict[str, str] = {}
    widths: list[float] = []
    for part in _parts(workshop, _PAPER_B):
        workshop.say(part)
        for beside in run_shipped(workshop, part).analysis.beside:
            for ours in beside.ours:
                if ours.low is not None and ours.high is not None:
                    name = f"{beside.figure.measured} ({beside.what})"
                    data[name] = f"{ours.estimate:.4g} [{ours.low:.4g}, {ours.high:.4g}]"
                    widths.append((ours.high - ours.low) / 2 / ours.estimate)
    figure = (
        f"{len(data)} of {wanted} cells have an interval, {_typical(widths)}; the host's"
        f" {_WITHOUT} over NFS are not measured"
    )
    return Found(figure, data, counted=Kept.counted(len(data) == wanted))


def repeat(workshop: Workshop) -> Found:
    """B3: the whole map measured twice, and how many intervals of one over the other contain 1."""
    cells = containing = 0
    half_widths: list[float] = []
    data: dict[str, str] = {}
    turns = [
        replace(workshop, scratch=workshop.scratch / turn, measured={})
        for turn in ("original", "repeat")
    ]
    for part in _parts(workshop, _MAP):
        records = [[TareRun(run_shipped(turn, part).record)] for turn in turns]
        for one in compare.compare(*records).cells:
            ratio = one.ratio.ratio
            cells += 1
            data[f"{part}: {one.cell}"] = shown(ratio)
            if ratio.low is not None and ratio.high is not None:
                containing += ratio.low <= 1 <= ratio.high
                half_widths.append((ratio.high / ratio.low) ** 0.5 - 1)
    share = containing / cells if cells else 0.0
    figure = (
        f"the interval of repeat over original contains 1 in {containing} of {cells} cells"
        f" ({share:.0%}), {_typical(half_widths)}"
    )
    return Found(figure, data, counted=Kept.counted(share >= _REPEATABLE))
