"""A server as a process of the host and in a container, asked from the client's host."""

from __future__ import annotations

import ctypes
import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import reach

from needs import needs_root
from tare import accounting, process
from tare.command import Command
from tare.environments import Environment, Inside, Site
from tare.environments.container import Container
from tare.environments.native import Native
from tare.errors import TrialError
from tare.pauses import pauses
from tare.workloads import overhead

pytestmark = [pytest.mark.system, needs_root]

PORT = "7400"
ROUND_TRIPS = 500
KILLED = r"(was killed by signal 9 \(Killed\)|ended with exit code 137)"


@pytest.fixture(params=["native", "container"])
def environment(request: pytest.FixtureRequest) -> Environment:
    return {"native": Native(), "container": Container()}[request.param]


@pytest.fixture(params=[None, 50], ids=["other", "fifo"])
def site(request: pytest.FixtureRequest, tidy_site: Site) -> Site:
    return replace(tidy_site, placement=replace(tidy_site.placement, fifo=request.param))


@pytest.fixture
def inside(environment: Environment, site: Site) -> Iterator[Inside]:
    with environment.enter(site) as entered:
        yield entered


def serve(inside: Inside) -> tuple[str, ...]:
    return ("echo/echo-udp", "serve", "--bind", inside.address, "--port", PORT)


def ask(site: Site, inside: Inside) -> dict[str, Any]:
    argv = (
        str(site.programs / "echo/echo-udp"), "ask", "--peer", inside.address, "--port", PORT,
        "--payload", "64", "--requests", str(ROUND_TRIPS), "--out", str(site.scratch / "samples"),
        "--timeout-ns", str(reach.PATIENCE_NS),
    )  # fmt: skip
    placement = site.placement
    command = Command(argv, netns=site.hosts.client_ns, cpus=placement.client, fifo=placement.fifo)
    with process.start(command) as client:
        return dict(client.finish(60)["counters"])


def test_it_says_that_it_runs_here(environment: Environment) -> None:
    found = environment.availability()
    assert found.available, found.detail
    assert found.remedy is None


def test_a_server_answers_is_accounted_for_and_stops(site: Site, inside: Inside) -> None:
    with inside.start(serve(inside)) as server:
        assert server.event(30)["event"] == "ready"
        before = server.account()
        counters = ask(site, inside)
        used = accounting.difference(before, server.account())
        last = server.stop(30)
    assert counters["received"] == ROUND_TRIPS
    assert last["replies"] >= ROUND_TRIPS
    by_role = {thread.role for thread in used.threads if thread.cpu_ns > 0}
    assert "server" in by_role
    # Every request and every reply woke somebody, and crossed the wire with 64 bytes or more.
    switches = sum(thread.switches for thread in used.threads if thread.role == "server")
    assert switches >= ROUND_TRIPS / 2
    assert used.sent_bytes is not None
    assert used.sent_bytes >= 64 * ROUND_TRIPS
    assert used.received_bytes is not None
    assert used.received_bytes >= 64 * ROUND_TRIPS
    assert used.peak_memory_bytes is not None


def test_the_server_runs_where_and_as_the_placement_says(site: Site, inside: Inside) -> None:
    with inside.start(serve(inside)) as server:
        server.event(30)
        tid = next(t.tid for t in server.account().threads if t.role == "server")
        assert os.sched_getaffinity(tid) == set(site.placement.server)
        expected = os.SCHED_OTHER if site.placement.fifo is None else os.SCHED_FIFO
        assert os.sched_getscheduler(tid) == expected
        server.stop(30)


def test_one_server_after_another_gets_the_same_port(inside: Inside) -> None:
    for _ in range(5):
        with inside.start(serve(inside)) as server:
            server.event(30)
            # Left without being stopped, as after an error.


def test_what_an_environment_says_of_itself(inside: Inside) -> None:
    assert inside.facts["kernel"] == platform.release()
    assert inside.run(("uname", "-r"), 30).strip() == platform.release()
    assert inside.interface in inside.run(("ip", "-brief", "link"), 30)


def test_an_idle_program_has_started_when_its_footprint_is_taken(inside: Inside) -> None:
    found = [overhead._footprint(inside) or 0 for _ in range(6)]
    assert max(found) < 2 * min(found)  # the kernel counts pages a thread in batches


def test_a_failing_program_says_why(inside: Inside) -> None:
    with pytest.raises(TrialError, match="No such file"):
        inside.run(("cat", "/no/such/file"), 30)
    with (
        pytest.raises(TrialError, match=r"no-such-echo.*: [Nn]o such"),
        inside.start(("echo/no-such-echo",)) as server,
    ):
        server.event(30)


def test_a_server_that_dies_in_mid_trial_is_an_error_of_the_trial(inside: Inside) -> None:
    with inside.start(serve(inside)) as server:
        server.event(30)
        tid = next(t.tid for t in server.account().threads if t.role == "server")
        os.kill(tid, 9)
        with pytest.raises(TrialError, match=f"{KILLED} without the event that was waited for"):
            server.event(30)
        with pytest.raises(TrialError, match=f"{KILLED}$"):
            server.stop(30)


def test_each_session_has_its_own_name(environment: Environment, tidy_site: Site) -> None:
    names = set()
    for _ in range(2):
        with environment.enter(tidy_site) as inside:
            names.add(inside.session)
    assert len(names) == 2


def test_a_container_cannot_write_to_the_host(tidy_site: Site) -> None:
    with Container().enter(tidy_site) as inside:
        for path in ("/etc/x", "/usr/x", f"{tidy_site.programs}/x", "/proc/sys/kernel/hostname"):
            with pytest.raises(TrialError, match="Read-only file system"):
                inside.run(("touch", path), 30)
        inside.run(("touch", str(tidy_site.scratch / "shared"), "/tmp/own"), 30)
        assert (tidy_site.scratch / "shared").exists()
        processes = inside.run(("ls", "/proc"), 30).split()
        assert len([name for name in processes if name.isdigit()]) <= 3


def test_a_container_ends_with_the_runtime_that_holds_it(tidy_site: Site) -> None:
    with Container().enter(tidy_site) as inside:
        state = run_json(tidy_site, inside)
        os.kill(int((tidy_site.scratch / inside.session / "pid").read_text()), 9)
        assert state["status"] == "running"
        said = ""
        for _ in pauses(30):  # its processes end one after the other
            try:
                inside.run(("true",), 30)
            except TrialError as error:
                said = str(error)
            if "container does not exist" in said:
                break
        assert "container does not exist" in said


def test_a_servers_children_end_with_it(inside: Inside) -> None:
    with inside.start(("sh", "-c", "sleep 300 & echo '{}'; wait")) as server:
        server.event(30)
        children = accounting.descendants(server.pid)
    assert children
    assert all(process.wait_pid(child, 10) for child in children)


@pytest.fixture
def adopting() -> Iterator[None]:
    prctl = ctypes.CDLL(None).prctl
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    yield
    prctl(36, 0)


@pytest.mark.usefixtures("adopting")
def test_who_is_killed_in_a_container_becomes_nobodys_orphan(tidy_site: Site) -> None:
    with Container().enter(tidy_site) as inside, inside.start(serve(inside)) as server:
        server.event(30)
    with suppress(ChildProcessError):  # there is no child at all
        assert os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def test_two_containers_under_real_time_priority_do_not_wait_for_each_other(
    tidy_site: Site,
) -> None:
    site = replace(tidy_site, placement=replace(tidy_site.placement, fifo=50))
    with Container().enter(site) as one, Container().enter(site) as other:
        for inside in (one, other):
            said = inside.run(("probe/probe", "--help"), 30)
            assert "probe" in said


def test_under_fifo_a_server_is_scheduled_with_the_host_and_else_in_its_own_group(
    tidy_site: Site,
) -> None:
    if not Path("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists():
        pytest.skip("this kernel does not schedule real-time tasks by group")
    for fifo, told in ((50, "the host's"), (None, "its own")):
        site = replace(tidy_site, placement=replace(tidy_site.placement, fifo=fifo))
        with Container().enter(site) as inside, inside.start(serve(inside)) as server:
            server.event(30)
            assert inside.facts["cpu_group"] == told
            pid = next(t.tid for t in server.account().threads if t.role == "server")
            groups = Path(f"/proc/{pid}/cgroup").read_text()
            mine = next(line for line in groups.splitlines() if ":cpu:" in line)
            assert (mine.rpartition(":")[2] == "/") == (fifo is not None)


def run_json(site: Site, inside: Inside) -> dict[str, Any]:
    bundle = Path(site.scratch / inside.session)
    argv = ("runc", "--root", str(bundle / "state"), "state", inside.session)
    return dict(json.loads(process.run(Command(argv), 30).stdout))
