"""B1 and B3: paper B in full with intervals, and whether a whole map of layers can be repeated."""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from claims import Claim, Result, Workshop
from claims.shipped import run_shipped
from tare import compare, suite
from tare.errors import UsageError
from tare.published import papers
from tare.record import Record
from tare.stats.bounds import Kept

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
    paper = papers()["B"]
    classes = 4
    return classes + sum(2 * len(table.rows) for table in paper.tables)


def _check_every_cell(workshop: Workshop) -> Result:
    wanted = _in_the_paper() - _WITHOUT
    data: dict[str, str] = {}
    widths: list[float] = []
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        for part in _parts(workshop, "kvm-overhead.yaml"):
            workshop.say(part)
            for beside in run_shipped(workshop, part, Path(folder)).beside:
                for ours in beside.ours:
                    if ours.low is not None and ours.high is not None:
                        name = f"{beside.figure.measured} ({beside.what})"
                        data[name] = f"{ours.estimate:.4g} [{ours.low:.4g}, {ours.high:.4g}]"
                        widths.append((ours.high - ours.low) / 2 / ours.estimate)
    width = f"{median(widths):.1%}" if widths else "none"
    figure = (
        f"{len(data)} of {wanted} cells have an interval, median half-width {width}; the host's"
        f" {_WITHOUT} over NFS are not measured"
    )
    return Result(Kept.counted(len(data) == wanted), figure, data)


def _check_repeat(workshop: Workshop) -> Result:
    cells = 0
    containing = 0
    half_widths: list[float] = []
    data: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="tare-claim-") as folder:
        for part in _parts(workshop, "environments.yaml"):
            records: list[list[Record]] = []
            for turn in ("original", "repeat"):
                workshop.say(f"{part}, {turn}")
                within = Path(folder) / turn
                within.mkdir(exist_ok=True)
                records.append([Record(run_shipped(workshop, part, within).folder)])
            for one in compare.compare(*records).cells:
                ratio = one.ratio.ratio
                cells += 1
                name = f"{part}: {one.cell}"
                if ratio.low is None or ratio.high is None or ratio.estimate is None:
                    data[name] = "no interval"
                    continue
                containing += ratio.low <= 1 <= ratio.high
                half_widths.append((ratio.high / ratio.low) ** 0.5 - 1)
                data[name] = f"{ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    share = containing / cells if cells else 0.0
    width = f"{median(half_widths):.1%}" if half_widths else "none"
    figure = (
        f"the interval of repeat over original contains 1 in {containing} of {cells} cells"
        f" ({share:.0%}), median half-width {width}"
    )
    return Result(Kept.counted(share >= _REPEATABLE), figure, data)


CLAIMS = (
    Claim(
        "B1",
        "Every cell of paper B's three tables is measured with an interval, in one run that can be"
        " resumed: on KVM where a guest boots with it, else on TCG. Two are left out: the host's"
        " own loop device over NFS, for which its kernel would need a client.",
        "every other cell of the tables has an interval",
        _check_every_cell,
        experiments=("kvm-overhead.yaml",),
    ),
    Claim(
        "B3",
        "The whole of environments.yaml can be repeated: a second run finds what the first found.",
        "the interval of repeat over original contains 1 in at least 93 % of cells",
        _check_repeat,
        experiments=("environments.yaml",),
    ),
)
