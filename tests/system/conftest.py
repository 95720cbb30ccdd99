"""A site for an environment, and the proof that nothing is left of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from reach import await_that

from needs import PROGRAMS
from tare.command import owner_mark
from tare.environments import Site
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement
from tare.testing import traces
from tare.testing.far_machine import FarMachine, at_home


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A list of a test's own; when the test is over, nothing on it is left."""
    before = set(traces.processes_of(owner_mark()))
    with Registry(tmp_path / "leftovers") as made:
        yield made
    assert traces.of_run(made.run_id) == []
    assert set(traces.processes_of(owner_mark())) <= before


@pytest.fixture
def hosts(registry: Registry) -> Iterator[Hosts]:
    with Hosts(registry) as made:
        yield made


@pytest.fixture
def tidy_site(registry: Registry, hosts: Hosts, tmp_path: Path) -> Site:
    scratch = tmp_path / "run" / "scratch"
    scratch.mkdir(parents=True)
    cpu = (max(os.sched_getaffinity(0)),)
    return Site(
        hosts=hosts,
        programs=PROGRAMS,
        scratch=scratch,
        cache=tmp_path / "cache",
        leftovers=registry,
        placement=Placement(client=cpu, server=cpu, vmm=cpu, vcpus=cpu),
    )


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site that a module's tests share; what is made once lies in the module's CACHE."""
    root = tmp_path_factory.mktemp("site")
    scratch = root / "run" / "scratch"
    scratch.mkdir(parents=True)
    with Registry(root / "leftovers") as registry, Hosts(registry) as hosts:
        yield Site(
            hosts=hosts,
            programs=PROGRAMS,
            scratch=scratch,
            cache=getattr(request.module, "CACHE", root / "cache"),
            leftovers=registry,
            placement=Placement.here("same-core"),
        )


@pytest.fixture
def far(site: Site, tmp_path: Path) -> Iterator[FarMachine]:
    """The server's host, as a machine that is reached by ssh alone."""
    with at_home(tmp_path, PROGRAMS, site.hosts) as machine:
        yield machine
    assert await_that(lambda: machine.left() == [])  # what sshd closes ends a moment later
