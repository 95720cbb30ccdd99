"""Paper A's figures, each with what a run measured of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tare import environments, transports
from tare.cell import Cell
from tare.published import papers
from tare.published.beside import Beside, Ours, each, measured
from tare.stats import Interval, paired_ratio
from tare.workloads.findings import ContrastSeen, Findings, SessionsSeen, ViewSeen

_DEADLINES_NS = {"10ms": 10e6, "100ms": 100e6}


def beside(found: Findings) -> tuple[Beside, ...]:
    """Set the figures of paper A beside a run's; those of which it measured nothing stay out."""
    paper = papers()["A"]
    guests = [v for v in found.cells if _virtualised(v.cell) and v.cell.replica == 1]
    effects = [
        q
        for q in found.questions
        if _virtualised(q.cell) and q.against.levels.get("environment") == "native"
    ]
    ratios = [(q.cell, q.others["mean"].promised.ratio) for q in effects]
    splits = [c for c in found.contrasts if _virtualised(c.cell)]
    rows = [
        Beside(
            paper.figure("virtualisation-extra"),
            "mean response in the guest beyond that on the host",
            each(ratios, lambda r: 100 * (r - 1)),
        ),
        Beside(
            paper.figure("response-virtualised"),
            "mean response in the guest; ours crosses no wire",
            _levels(guests),
        ),
        Beside(
            paper.figure("middleware-share"),
            "what the stack adds to the floor on the host, over the mean response in the guest",
            each(((c.cell, _middleware_share(c)) for c in splits), lambda share: 100 * share),
        ),
        # The paper's 72 % fits its own Fig. 2 so: 257 % extra is a share of 72 %.
        Beside(
            paper.figure("virtualisation-share"),
            "all that the guest adds to the same stack on the host, over the mean response in the"
            " guest (virtualisation and interaction)",
            each(
                (one for one in ratios if transports.is_dds(one[0].levels.get("transport"))),
                lambda r: 100 * (1 - 1 / r),
            ),
        ),
        *(
            Beside(
                paper.figure(f"deadline-{name}"),
                "mean response in the guest minus that on the host, over the deadline",
                each(((q.cell, q.others["mean"].difference) for q in effects), _over(deadline)),
            )
            for name, deadline in _DEADLINES_NS.items()
        ),
        Beside(
            paper.figure("rti-over-opensplice"),
            "mean response over Fast DDS beyond that over Cyclone DDS in the same guest",
            _between_stacks(guests, found.sessions),
        ),
    ]
    return measured(rows)


def _virtualised(cell: Cell) -> bool:
    """Whether it has a kernel of its own: what the paper means by it."""
    return environments.row(cell.levels.get("environment", "native")).own_kernel


def _middleware_share(contrast: ContrastSeen) -> Interval:
    return next(part.share for part in contrast.shares.parts if part.name == "middleware")


def _over(deadline_ns: float) -> Callable[[float], float]:
    return lambda time_ns: 100 * time_ns / deadline_ns


def _levels(views: Iterable[ViewSeen]) -> tuple[Ours, ...]:
    found = []
    for view in views:
        mean = view.estimates["mean"]
        if mean.value is not None and transports.is_dds(view.cell.levels.get("transport")):
            low, high = (None if end is None else end / 1e3 for end in (mean.low, mean.high))
            found.append(Ours(view.cell, mean.value / 1e3, low, high))
    return tuple(found)


def _between_stacks(views: Iterable[ViewSeen], sessions: SessionsSeen) -> tuple[Ours, ...]:
    by_rest = {
        (view.cell.levels.get("transport"), view.cell.without("transport")): view.cell
        for view in views
    }
    found = []
    for (transport, rest), cell in by_rest.items():
        other = by_rest.get(("cyclonedds", rest))
        if transport == "fastdds" and other is not None:
            a, b = sessions.tried(cell.id, other.id, statistic="mean")
            found.append((cell, paired_ratio(a, b).promised.ratio))
    return each(found, lambda r: 100 * (r - 1))
