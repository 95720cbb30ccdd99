"""Where something is measured without an experiment: hosts, scratch folder, environment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tare import environments, leftovers
from tare.environments import Site
from tare.hosts import Hosts
from tare.placement import Placement
from tare.testing.far_machine import at_home
from tare.workloads import L, S, Workload


@contextmanager
def site_for(environment: str, programs: Path, cache: Path) -> Iterator[tuple[str, Site]]:
    """A site for an environment on one core, and the environment's level.

    For ssh, the level is that of a machine that is made for it.

    Args:
        environment: by its name.
        programs: the build directory.
        cache: kept between runs: guest images.
    """
    with ExitStack() as stack:
        owed = stack.enter_context(leftovers.Registry())
        hosts = stack.enter_context(Hosts(owed))
        scratch = stack.enter_context(owed.scratch())
        level = environment
        if environment == environments.FAR:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tare-far-")))
            far = stack.enter_context(at_home(folder, programs, hosts))
            level = f"{environments.FAR} {far.destination}"
        placement = Placement.here("same-core")
        yield level, Site(hosts, programs, scratch, cache, owed, placement)


def levels_of(workload: Workload[L, S], **levels: str) -> L:
    """Levels of a workload, those that are not named at their defaults, as far as they apply."""
    every = workload.levels.defaults().but(**levels)
    kept = workload.applicable(every)
    return workload.levels({n: v for n, v in every.items() if n in kept})
