"""What of a block is measured at once: cells that live wholly on different machines. Pure.

An experiment asks for it (`hosts: at-once`), since nobody but its user knows that two names are two
machines, and not two guests of one. What takes part of this machine, as every client does that
asks from here, is alone. The order is the plan's: what is alone begins after all that was drawn
before it, and one machine's cells follow each other as they were drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tare.environments import Machine
from tare.plan import Plan, Visit


def of_block(plan: Plan, visits: Sequence[Visit]) -> Iterator[tuple[Visit, ...]]:
    """Part a block into rounds: one visit, or one of each of some machines.

    Args:
        plan: whose block it is.
        visits: in its order.
    """
    waiting: dict[Machine, list[Visit]] = {}
    for visit in visits:
        machine = _machine(plan, visit)
        if machine is not None:
            waiting.setdefault(machine, []).append(visit)
            continue
        yield from _taken(waiting)
        yield (visit,)
    yield from _taken(waiting)


def _taken(waiting: dict[Machine, list[Visit]]) -> Iterator[tuple[Visit, ...]]:
    """Every machine's first visit, then every machine's second; none waits any more."""
    each = [*waiting.values()]
    waiting.clear()
    for row in zip_longest(*each):
        yield tuple(visit for visit in row if visit is not None)


def _machine(plan: Plan, visit: Visit) -> Machine | None:
    """The machine that all of a visit is on; None where it is to be alone."""
    if not plan.experiment.at_once:
        return None
    workload = plan.workload
    found = {workload.machine(plan.cell(cell).levels) for cell in visit.cells}
    return found.pop() if len(found) == 1 else None
