"""A5: does the time that is accounted for add up to the response that was measured?"""

from __future__ import annotations

from claims.checking import Found, Workshop
from claims.experiments import run_shipped
from claims.rows import bounded, told
from tare.analysis import Analysis
from tare.stats import Interval, Method

_BUDGET = "budget.yaml"
_UNBOUNDED = "qemu/cyclonedds"
"""Cold code after a switch costs more there than any hot loop: reported without a bound."""


def closes(workshop: Workshop) -> Found:
    """Threads' time against the mean response, in every cell."""
    found = run_shipped(workshop, _BUDGET).analysis
    closures = {a.cell.id: a.shares.together.share for a in found.threads if a.shares}
    bounds = bounded(_of_every_cell(found, closures, "closes"), 0.90, 1.10)
    return Found(f"account {told(bounds)}", bounds=bounds)


def explains(workshop: Workshop) -> Found:
    """Operations times their unit costs, as a share of the mean response."""
    found = run_shipped(workshop, _BUDGET).analysis
    shares = {c.cell.id: c.shares.together.share for c in found.operations}
    every = _of_every_cell(found, shares, "explained")
    free = {f"{_UNBOUNDED} explained": every.pop(f"{_UNBOUNDED} explained")}
    bounds = bounded(every, least=0.80)
    figure = f"operations: {told(bounds)}; {told(bounded(free))}"
    data = {
        c.cell.id: {
            "inflation": c.inflation,
            "absent": c.absent,
            "lines": {cost.name: [cost.unit_cost_ns, cost.count] for cost in c.shares.parts},
        }
        for c in found.operations
    }
    return Found(figure, {"explained": data}, bounds)


def _of_every_cell(found: Analysis, known: dict[str, Interval], what: str) -> dict[str, Interval]:
    """Cells of which nothing is known included: they leave the claim inconclusive."""
    missing = Interval(None, None, None, 0.95, Method.T, 0)
    cells = [cell.id for cell in found.plan.cells if cell.replica == 1]
    return {f"{cell} {what}": known.get(cell, missing) for cell in cells}
