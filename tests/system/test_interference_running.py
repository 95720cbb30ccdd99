"""Interference for real: it loads, or the trial fails; and it ends with its context."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from reach import await_that

from needs import PROGRAMS, needs_root
from tare import accounting, process
from tare.command import Command, owner_mark
from tare.environments import Environment, Inside, Site, scratch_disk
from tare.environments.container import Container
from tare.environments.native import Native
from tare.environments.on_host import OnAnyHost
from tare.environments.qemu import Qemu
from tare.environments.ssh import Ssh
from tare.errors import TrialError
from tare.hosts import Hosts
from tare.interference import Interference
from tare.leftovers import Registry
from tare.testing import traces
from tare.testing.far_machine import at_home

pytestmark = [pytest.mark.system, needs_root]


@pytest.fixture
def site_on_disk(tidy_site: Site) -> Iterator[Site]:
    """Also where the tests' own folders are in memory, as Debian 13's /tmp is."""
    with TemporaryDirectory(dir=scratch_disk.folder_for(tidy_site.scratch)) as scratch:
        yield replace(tidy_site, scratch=Path(scratch))


@pytest.mark.parametrize("environment", [Native(), Container()], ids=["native", "container"])
@pytest.mark.parametrize("where", ["host", "inside"])
@pytest.mark.parametrize("what", ["cpu 20 %", "memory 1", "network 20 Mbit/s", "disk 1"])
def test_it_loads_while_the_context_is_open_and_not_after(
    site_on_disk: Site, environment: Environment, where: str, what: str
) -> None:
    with environment.enter(site_on_disk) as inside:
        inside.run(("true",), 30)  # by now, what an environment has of its own is there
        before = set(traces.processes_of(owner_mark()))
        with Interference.parse(f"{where} {what}").running(site_on_disk, inside):
            new = set(traces.processes_of(owner_mark())) - before
            names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in new}
            assert any(name.startswith(("stress-ng", "iperf3", "fio")) for name in names), names
            classes = {os.sched_getscheduler(pid) for pid in new}
            assert classes == {os.SCHED_OTHER}
            if what == "disk 1":
                # While it writes its files it reads none.
                said = "".join(Path(f"/proc/{pid}/io").read_text() for pid in new)
                assert any(int(n) for n in re.findall(r"^read_bytes: (\d+)$", said, re.MULTILINE))
            time.sleep(0.5)  # as long as a trial: a busy machine may let a load wait for a moment
        assert set(traces.processes_of(owner_mark())) <= before


@pytest.fixture(scope="module")
def guest_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("guest")
    with Registry(root / "leftovers") as registry, Hosts(registry) as hosts:
        yield Site(hosts, PROGRAMS, root / "scratch", PROGRAMS / "test-cache", registry)


@pytest.fixture(scope="module")
def guest(guest_site: Site) -> Iterator[Inside]:
    with Qemu(accel="tcg").enter(guest_site) as entered:
        yield entered


@pytest.mark.parametrize("what", ["cpu 50 %", "memory 1", "network 5 Mbit/s", "disk 1"])
def test_it_loads_in_a_guest(guest_site: Site, guest: Inside, what: str) -> None:
    with Interference.parse(f"inside {what}").running(guest_site, guest):
        tools = guest.run(("ps",), 30)
        assert any(tool in tools for tool in ("stress-ng", "iperf3", "fio"))
    tools = guest.run(("ps",), 30)
    assert not any(tool in tools for tool in ("stress-ng", "iperf3", "fio"))


@pytest.mark.parametrize("held", [Native(), Container()], ids=["itself", "container"])
@pytest.mark.parametrize("what", ["cpu 20 %", "memory 1"])
def test_it_loads_another_machine(
    tidy_site: Site, tmp_path: Path, held: OnAnyHost, what: str
) -> None:
    (tmp_path / "far").mkdir()
    with at_home(tmp_path / "far", PROGRAMS, tidy_site.hosts) as far:
        loads = Interference.parse(f"inside {what}")
        with Ssh(far.destination, held).enter(tidy_site) as inside:
            before = len(far.left())
            with loads.running(tidy_site, inside):
                assert len(far.left()) > before
        assert await_that(lambda: far.left() == [])


@pytest.mark.parametrize("where", ["host", "inside"])
def test_a_disk_is_loaded_by_files_that_go_again_on_a_disk_where_the_runs_are_in_memory(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    memory, disk = tidy_site.scratch, tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr("tare.environments.scratch_disk._ON_DISK", disk)
    if where == "host":
        monkeypatch.setattr(
            "tare.mounts.kind_at", lambda path: "tmpfs" if path == memory else "ext4"
        )
    folder = disk if where == "host" else memory
    with (
        Native().enter(tidy_site) as inside,
        Interference.parse(f"{where} disk 1").running(tidy_site, inside),
    ):
        assert await_that(lambda: [*folder.glob("tare-interference-*/*")] != [])
    assert list(folder.glob("tare-interference-*")) == []


def test_it_loads_the_way_to_another_machine_whatever_the_interface_is_called(
    tidy_site: Site, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    with at_home(tmp_path / "far", PROGRAMS, tidy_site.hosts) as far:
        here = ("ip", "-netns", tidy_site.hosts.client_ns, "link", "set")
        for words in (("eth0", "down"), ("eth0", "name", "lan0"), ("lan0", "up")):
            process.run(Command((*here, *words)), 30)
        loads = Interference.parse("inside network 20 Mbit/s")
        with Ssh(far.destination).enter(tidy_site) as inside, loads.running(tidy_site, inside):
            pass
        assert await_that(lambda: far.left() == [])


def test_none_starts_nothing(tidy_site: Site) -> None:
    before = set(traces.processes_of(owner_mark()))
    with Native().enter(tidy_site) as inside, Interference().running(tidy_site, inside):
        assert set(traces.processes_of(owner_mark())) <= before


def test_a_higher_level_consumes_more(tidy_site: Site) -> None:
    # CPU time against CPU time; each while the same program sleeps.
    consumed = []
    with Native().enter(tidy_site) as inside:
        for level in (5, 90):
            with Interference("cpu", level, "host").running(tidy_site, inside):
                before = accounting.snapshot(os.getpid(), "server")
                process.run(Command(("sleep", "1")), 30)
                used = accounting.difference(before, accounting.snapshot(os.getpid(), "server"))
                consumed.append(
                    sum(t.cpu_ns for t in used.threads if t.name.startswith("stress-ng"))
                )
    assert consumed[1] > consumed[0] > 0


@pytest.mark.parametrize("what", ["cpu 20 %", "network 20 Mbit/s"])
def test_a_tool_that_dies_spoils_the_trial(tidy_site: Site, what: str) -> None:
    before = set(traces.processes_of(owner_mark()))
    with (
        Native().enter(tidy_site) as inside,
        pytest.raises(TrialError, match="ended before the trial"),
        Interference.parse(f"host {what}").running(tidy_site, inside),
    ):
        for pid in set(traces.processes_of(owner_mark())) - before:
            os.kill(pid, 9)
            assert process.wait_pid(pid, 20)


def test_a_tool_that_cannot_start_says_why(
    tidy_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.interference._FILE_BYTES", "nonsense")
    before = set(accounting.descendants(os.getpid()))
    with (
        Native().enter(tidy_site) as inside,
        pytest.raises(TrialError, match=r"(?s)'host disk 1'.*nonsense"),
        Interference.parse("host disk 1").running(tidy_site, inside),
    ):
        # It refuses after it was started: on a busy machine that may be after it was seen to work.
        # One that is ending has no environment any more, but still its parent.
        started = set(accounting.descendants(os.getpid())) - before
        assert all(process.wait_pid(pid, 20) for pid in started)


def test_an_error_of_the_trial_is_not_hidden(tidy_site: Site) -> None:
    with (
        Native().enter(tidy_site) as inside,
        pytest.raises(ZeroDivisionError),
        Interference.parse("host memory 1").running(tidy_site, inside),
    ):
        raise ZeroDivisionError


def test_network_interference_crosses_the_wire(tidy_site: Site) -> None:
    def sent() -> int:
        argv = ("ip", "-json", "-statistics", "link", "show", "eth0")
        shown = process.run(Command(argv, netns=tidy_site.hosts.client_ns), 30).stdout
        return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])

    before = sent()
    with (
        Native().enter(tidy_site) as inside,
        Interference.parse("inside network 20 Mbit/s").running(tidy_site, inside),
    ):
        assert sent() - before >= 50_000
