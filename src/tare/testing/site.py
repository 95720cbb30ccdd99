"""Where something is measured without an experiment: hosts, scratch folder, environment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare import environments, leftovers, workloads
from tare.cell import Cell
from tare.environments import Site
from tare.hosts import Hosts
from tare.placement import Placement
from tare.testing.far_machine import at_home

__all__ = ["cell_of", "site_for"]


@contextmanager
def site_for(
    environment: str, folder: Path, programs: Path, cache: Path
) -> Iterator[tuple[str, Site]]:
    """A site for an environment on one core, and the environment's level.

    For ssh, the level is that of a machine that is made for it.

    Args:
        environment: by its name.
        folder: holds the list of leftovers, and what the far machine needs.
        programs: the build directory.
        cache: kept between runs: guest images.
    """
    with leftovers.Registry(folder / "leftovers") as owed, Hosts(owed) as hosts:
        scratch = Path(tempfile.gettempdir()) / f"tare-{owed.run_id}"
        with (
            owed.owing("directory", str(scratch)),
            _level(environment, programs, hosts, folder) as level,
        ):
            scratch.mkdir()
            yield (
                level,
                Site(
                    hosts=hosts,
                    programs=programs,
                    scratch=scratch,
                    cache=cache,
                    leftovers=owed,
                    placement=Placement.here("same-core"),
                ),
            )


@contextmanager
def _level(environment: str, programs: Path, hosts: Hosts, folder: Path) -> Iterator[str]:
    if environment != environments.FAR:
        yield environment
        return
    with at_home(folder, programs, hosts) as far:
        yield f"{environments.FAR} {far.target}"


def cell_of(workload: str, **levels: str) -> Cell:
    """A cell of a workload whose other levels are the defaults, as far as they apply."""
    found = workloads.by_name()[workload]
    every = {name: factor.level(factor.default) for name, factor in found.factors.items()}
    every |= levels
    kept = found.applicable(every)
    return Cell(id=workload, levels={n: v for n, v in every.items() if n in kept})
