"""One trial before a run, which goes on no record: whether it works at all, and how long it takes.

A command with a slip of the pen is told at once, not after an environment has been set up for each
of its cells; and how long a run will take nobody can say who has not seen the command run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tare import bounds, leftovers
from tare.hosts import Hosts
from tare.plan import Plan
from tare.site import Site
from tare.workloads import AnyBench


@contextmanager
def rehearsed(plan: Plan, programs: Path, cache: Path) -> Iterator[AnyBench]:
    """Set up what the first cell of a plan is measured in.

    Args:
        plan: of which nothing else is done.
        programs: the build directory.
        cache: kept between runs: guest images.

    Raises:
        TrialError: it cannot be set up.
    """
    workload, plot = plan.workload, plan.cells[0].levels
    with ExitStack() as stack:
        registry = stack.enter_context(leftovers.Registry())
        stack.enter_context(bounds.within(plan.experiment.bounds, registry))
        scratch = stack.enter_context(registry.scratch())
        hosts = stack.enter_context(Hosts(registry, rate_bits_s=workload.link_rate(plot)))
        placement = workload.placement(plot)
        site = Site(hosts, programs, scratch, cache, registry, placement)
        yield stack.enter_context(workload.enter(plot, site, plan.session))
