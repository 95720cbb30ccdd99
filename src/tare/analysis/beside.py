"""A paper's figures, each with what this run measured of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from tare import environments, transports
from tare.analysis.cells import CellView
from tare.analysis.contrast import Contrast
from tare.analysis.questions import Question
from tare.analysis.sessions import Sessions
from tare.cell import Cell
from tare.published import Figure, papers
from tare.stats import Interval, paired_ratio

__all__ = ["Beside", "Ours", "beside_paper_a"]

_T = TypeVar("_T")
_DEADLINES_NS = {"10ms": 10e6, "100ms": 100e6}


@dataclass(frozen=True)
class Ours:
    """One of this run's numbers, in the unit of the figure that it stands beside."""

    cell: Cell
    estimate: float
    low: float | None
    """None where the blocks give no interval."""
    high: float | None


@dataclass(frozen=True)
class Beside:
    """A published figure and ours."""

    figure: Figure
    what: str
    """What ours is: the same quantity, or the nearest that was measured."""
    ours: tuple[Ours, ...]


def beside_paper_a(
    views: Iterable[CellView],
    questions: Iterable[Question],
    contrasts: Iterable[Contrast],
    sessions: Sessions,
) -> tuple[Beside, ...]:
    """Set the figures of paper A beside this run's; those of which it measured nothing stay out."""
    paper = papers()["A"]
    guests = [v for v in views if _virtualised(v.cell) and v.cell.replica == 1]
    effects = [
        q
        for q in questions
        if q.comparison.kind == "effect"
        and _virtualised(q.cell)
        and q.against.levels.get("environment") == "native"
    ]
    splits = [c for c in contrasts if _virtualised(c.cell)]
    rows = [
        Beside(
            paper.figure("virtualisation-extra"),
            "mean response in the guest beyond that on the host",
            _each(effects, _cell_of, lambda q: q.others["mean"].ratio, lambda r: 100 * (r - 1)),
        ),
        Beside(
            paper.figure("response-virtualised"),
            "mean response in the guest; ours crosses no wire",
            _levels(guests),
        ),
        Beside(
            paper.figure("middleware-share"),
            "what the stack adds to the floor on the host, over the mean response in the guest",
            _each(splits, lambda c: c.cell, _middleware_share, lambda share: 100 * share),
        ),
        # The paper's 72 % fits its own Fig. 2 so: 257 % extra is a share of 72 %.
        Beside(
            paper.figure("virtualisation-share"),
            "all that the guest adds to the same stack on the host, over the mean response in the"
            " guest (virtualisation and interaction)",
            _each(
                [q for q in effects if transports.is_dds(q.cell.levels.get("transport"))],
                _cell_of,
                lambda q: q.others["mean"].ratio,
                lambda r: 100 * (1 - 1 / r),
            ),
        ),
        *(
            Beside(
                paper.figure(f"deadline-{name}"),
                "mean response in the guest minus that on the host, over the deadline",
                _each(effects, _cell_of, lambda q: q.others["mean"].difference, _over(deadline)),
            )
            for name, deadline in _DEADLINES_NS.items()
        ),
        Beside(
            paper.figure("rti-over-opensplice"),
            "mean response over Fast DDS beyond that over Cyclone DDS in the same guest",
            _between_stacks(guests, sessions),
        ),
    ]
    return tuple(row for row in rows if row.ours)


def _virtualised(cell: Cell) -> bool:
    """Whether it has a kernel of its own: what the paper means by it."""
    return environments.row(cell.levels.get("environment", "native")).own_kernel


def _cell_of(question: Question) -> Cell:
    return question.cell


def _middleware_share(contrast: Contrast) -> Interval:
    return next(part.share for part in contrast.shares.parts if part.name == "middleware")


def _over(deadline_ns: float) -> Callable[[float], float]:
    return lambda time_ns: 100 * time_ns / deadline_ns


def _each(
    items: Iterable[_T],
    cell: Callable[[_T], Cell],
    interval: Callable[[_T], Interval],
    scale: Callable[[float], float],
) -> tuple[Ours, ...]:
    return tuple(
        ours for item in items if (ours := _ours(cell(item), interval(item), scale)) is not None
    )


def _ours(cell: Cell, interval: Interval, scale: Callable[[float], float]) -> Ours | None:
    if interval.estimate is None:
        return None
    return Ours(
        cell,
        scale(interval.estimate),
        None if interval.low is None else scale(interval.low),
        None if interval.high is None else scale(interval.high),
    )


def _levels(views: Iterable[CellView]) -> tuple[Ours, ...]:
    found = []
    for view in views:
        mean = view.estimates["mean"]
        if mean.value is not None and transports.is_dds(view.cell.levels.get("transport")):
            low, high = (None if end is None else end / 1e3 for end in (mean.low, mean.high))
            found.append(Ours(view.cell, mean.value / 1e3, low, high))
    return tuple(found)


def _between_stacks(views: Iterable[CellView], sessions: Sessions) -> tuple[Ours, ...]:
    by_rest = {
        (view.cell.levels.get("transport"), view.cell.without("transport")): view.cell
        for view in views
    }
    found = []
    for (transport, rest), cell in by_rest.items():
        other = by_rest.get(("cyclonedds", rest))
        if transport == "fastdds" and other is not None:
            a, b = sessions.columns(cell.id, other.id, statistic="mean")
            ratio = paired_ratio(a, b).ratio
            ours = _ours(cell, ratio, lambda r: 100 * (r - 1))
            if ours is not None:
                found.append(ours)
    return tuple(found)
