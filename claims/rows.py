"""Claims as rows: an experiment that ships, cells of it, a statistic, and a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from claims.checking import NAMED, Found, Workshop, shown
from claims.experiments import run_shipped
from tare.errors import UsageError
from tare.pairing import paired
from tare.plan import Plan
from tare.report.numbers import SPACE
from tare.report.wording import quantity_text
from tare.stats import Interval, Method, Proportion
from tare.stats.bounds import Bound, Kept
from tare.workloads import Unit


@dataclass(frozen=True)
class Wanted:
    """One statistic of cells over that of others, and what its whole interval has to keep.

    Without a bound it is measured and told. Cells are called as `tare explain` calls them.
    """

    experiment: str
    cells: str = "*"
    """One cell, or those of a pattern."""
    against: str | None = None
    """Another cell, in which `*` stands for the same; what the plan compares with where None."""
    statistic: str | None = None
    """The experiment's own where None."""
    least: float | None = None
    most: float | None = None
    difference: bool = False
    """Whether the bounds are of a minus b, in the statistic's unit, instead of a over b."""
    called: str = ""
    """What stands before the cells' names where they do not say it."""

    def pairs(self, plan: Plan) -> list[tuple[str, str]]:
        """The ids of what is compared.

        Raises:
            UsageError: the plan has no such cells.
        """
        found = paired(plan, self.cells, self.against)
        if not found:
            ids = ", ".join(cell.id for cell in plan.cells if cell.replica == 1)
            raise UsageError(
                f"{self.experiment} compares no {self.cells} with {self.against or 'anything'}",
                f"mend the row: its cells are {ids}",
            )
        return found

    def __call__(self, workshop: Workshop) -> Found:
        """Measure it, or take it from what was measured for another row."""
        measured = run_shipped(workshop, self.experiment)
        statistic = self.statistic or measured.analysis.experiment.statistic
        intervals, data = {}, {}
        for cell, against in self.pairs(measured.record.plan):
            ratio = measured.ratio(cell, against, statistic, workshop.confidence)
            name = f"{self.called}{cell} over {against}, {statistic}"
            intervals[name] = ratio.difference if self.difference else ratio.ratio
            data[name] = {"values": [ratio.a.estimate, ratio.b.estimate]}
        bounds = bounded(intervals, self.least, self.most, ratio=not self.difference)
        unit = measured.analysis.statistics[statistic].unit
        show = partial(_signed, unit) if self.difference else shown
        return Found(told(bounds, self.experiment, show), data, bounds)


def bounded(
    found: Mapping[str, Interval],
    least: float | None = None,
    most: float | None = None,
    *,
    ratio: bool = True,
) -> tuple[Bound, ...]:
    """The same bounds for each of some figures."""
    return tuple(Bound(name, value, least, most, ratio) for name, value in found.items())


def bounded_rate(name: str, found: Proportion, least: float | None, most: float) -> Bound:
    """A bound of a simulated rate, by its exact interval."""
    seen = Interval(found.share, found.low, found.high, found.confidence, Method.T, found.of)
    return Bound(name, seen, least, most, ratio=False)


def told(bounds: Iterable[Bound], whence: str = "", show: Callable[[Interval], str] = shown) -> str:
    """Each figure with its interval; of many, how many hold."""
    every = list(bounds)
    if whence and len(every) > NAMED:
        kept = sum(bound.kept is Kept.HOLDS for bound in every)
        return f"{whence}: {kept} of {len(every)} figures hold"
    return "; ".join(f"{bound.name} {show(bound.found)}" for bound in every)


def _signed(unit: Unit, difference: Interval) -> str:
    return str(quantity_text(difference, unit, signed=True)).replace(SPACE, " ")
