"""A5: does the time that is accounted for add up to the response that was measured?"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from claims import Claim, Result, Workshop, conclude, shown
from claims.shipped import run_shipped
from tare.stats import Interval, Method
from tare.stats.bounds import Bound

_CLOSES_WITHIN = 0.10
_EXPLAINS = 0.80
_UNBOUNDED = "qemu/cyclonedds"
"""Cold code after a switch costs more there than any hot loop: reported without a bound."""

_MISSING = Interval(None, None, None, 0.95, Method.T, 0)


def _check(workshop: Workshop) -> Result:
    with TemporaryDirectory(prefix="tare-claim-") as folder:
        found = run_shipped(workshop, "budget.yaml", Path(folder))
    closures = {a.cell.id: a.shares.together.share for a in found.threads if a.shares}
    shares = {c.cell.id: c.shares.together.share for c in found.operations}
    cells = [cell.id for cell in found.plan.cells if cell.replica == 1]
    bounds = [
        Bound(
            f"{cell} closes", closures.get(cell, _MISSING), 1 - _CLOSES_WITHIN, 1 + _CLOSES_WITHIN
        )
        for cell in cells
    ]
    bounds += [
        Bound(f"{cell} explained", shares.get(cell, _MISSING), least=_EXPLAINS)
        for cell in cells
        if cell != _UNBOUNDED
    ]
    figure = "account closes at " + ", ".join(f"{c} {shown(v, 2)}" for c, v in closures.items())
    figure += "; operations explain " + ", ".join(f"{c} {shown(v, 2)}" for c, v in shares.items())
    data = {
        "closure": {cell: shown(value) for cell, value in closures.items()},
        "explained": {
            c.cell.id: {
                "share": shown(c.shares.together.share),
                "inflation": c.inflation,
                "absent": c.absent,
                "lines": {cost.name: [cost.unit_cost_ns, cost.count] for cost in c.shares.parts},
            }
            for c in found.operations
        },
    }
    return conclude(bounds, figure, data)


CLAIMS = (
    Claim(
        "A5",
        "The time accounted to every thread involved adds up to the mean response on one core,"
        " native and in QEMU; operations times their unit cost explain most of it.",
        "whole intervals: account within 10 % of the mean; operations explain at least 80 % (UDP"
        " native and in QEMU,"
        " Cyclone native)",
        _check,
        experiments=("budget.yaml",),
        grows=True,
    ),
)
