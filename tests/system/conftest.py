"""A site for an environment, and the proof that nothing is left of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import PROGRAMS
from tare.claims import traces
from tare.command import owner_mark
from tare.environments import Site
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement


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
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    cpu = (max(os.sched_getaffinity(0)),)
    return Site(
        hosts=hosts,
        programs=PROGRAMS,
        scratch=scratch,
        cache=tmp_path / "cache",
        leftovers=registry,
        placement=Placement(client=cpu, server=cpu, vmm=cpu, vcpus=cpu),
    )
