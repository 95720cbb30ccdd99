"""gVisor for real; the first start builds runsc, which takes minutes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
import reach
from reach import PORT

from needs import needs_root
from tare.environments import Inside, Site
from tare.environments.gvisor import Gvisor
from tare.errors import TrialError
from tare.interference import Interference
from tare.placement import Placement

CACHE = platformdirs.user_cache_path("tare")
HERE = Gvisor().availability()

pytestmark = [
    pytest.mark.system,
    needs_root,
    pytest.mark.skipif(not HERE.available, reason=HERE.detail),
]


@pytest.fixture(scope="module")
def inside(site: Site) -> Iterator[Inside]:
    with Gvisor().enter(site) as entered:
        yield entered


def test_it_is_gvisors_kernel_that_answers(inside: Inside) -> None:
    assert inside.facts["kernel"].endswith("gvisor")
    assert "Starting gVisor" in inside.run(["dmesg"], 30)
    assert inside.interface in inside.run(["ip", "-brief", "address"], 30)


def test_a_server_answers_over_the_bridge_and_is_accounted_for(site: Site, inside: Inside) -> None:
    used = reach.a_server_answers_and_is_accounted_for(site, inside)
    for role in ("vmm", "vcpu"):
        assert sum(t.cpu_ns for t in used.threads if t.role == role) > 0


def test_long_arrays_cross_by_tcp_in_both_directions(site: Site, inside: Inside) -> None:
    reach.long_arrays_cross_by_tcp(site, inside)


def test_a_dds_finds_its_way_in(site: Site, inside: Inside) -> None:
    reach.a_dds_is_found_by_unicast(site, inside, domain=22)


def test_one_server_after_another_gets_the_same_port(inside: Inside) -> None:
    idle = inside.run(["ls", "/proc"], 30).split()
    for _ in range(3):
        with inside.start(["echo/echo-udp", "serve", "--bind", inside.address, *PORT]) as server:
            server.event(30)
            # Left without being stopped, as after an error.
    now = inside.run(["ls", "/proc"], 30).split()
    assert len([n for n in now if n.isdigit()]) == len([n for n in idle if n.isdigit()])


def programs(inside: Inside) -> list[str]:
    return inside.run(["ps", "-eo", "args"], 30).splitlines()


def test_what_does_not_end_when_asked_to_is_not_beside_the_next_session(inside: Inside) -> None:
    idle, deaf = programs(inside), "trap '' TERM; sleep 1001 & while :; do sleep 1; done"
    with (
        inside.start(["sh", "-c", f"echo '{{}}'; {deaf}"]) as server,
        pytest.raises(TrialError, match="did not end within"),
    ):
        server.event(30)
        server.stop(0.5)
    assert programs(inside) == idle
    with inside.start(["sh", "-c", "echo '{}'; sleep 1002 & exec sleep 1003"]) as server:
        server.event(30)
        server.stop(30)
    assert programs(inside) == idle
    with pytest.raises(TrialError, match="did not end within"):
        inside.run(["sh", "-c", "sleep 1004; true"], 2)
    assert programs(inside) == idle


def test_the_host_cannot_be_written_to(site: Site, inside: Inside) -> None:
    for path in ("/etc/x", "/usr/x", f"{site.programs}/x"):
        with pytest.raises(TrialError, match="Read-only file system"):
            inside.run(["touch", path], 30)


@pytest.mark.parametrize("what", ["cpu 50 %", "memory 1", "network 5 Mbit/s", "disk 1"])
def test_interference_loads_inside(site: Site, inside: Inside, what: str) -> None:
    def names() -> str:
        return inside.run(["ps", "-eo", "comm"], 30)

    with Interference.parse(f"inside {what}").running(site, inside):
        assert any(tool in names() for tool in ("stress-ng", "iperf3", "fio"))
    assert not any(tool in names() for tool in ("stress-ng", "iperf3", "fio"))


def test_interference_loads_every_processor(site: Site) -> None:
    anywhere = replace(site, placement=Placement())
    with Gvisor().enter(anywhere) as inside:
        processors = int(inside.run(["nproc"], 30))
        with Interference("cpu", 50, "inside").running(anywhere, inside):
            workers = inside.run(["ps", "-eo", "comm"], 30).count("stress-ng-cpu")
    assert workers == processors


def test_a_failing_program_says_why(inside: Inside) -> None:
    reach.a_failing_program_says_why(inside)


def test_a_sandbox_that_dies_is_an_error_and_leaves_nothing(site: Site) -> None:
    with Gvisor().enter(site) as inside:
        with inside.start(["echo/echo-udp", "serve", "--bind", inside.address, *PORT]) as server:
            server.event(30)
            tid = next(t.tid for t in server.account().threads if t.role == "vmm")
            os.kill(tid, signal.SIGKILL)
            with pytest.raises(TrialError, match="in sandbox"):
                server.event(30)
        with pytest.raises(TrialError, match=r"in sandbox|ended with exit code 128"):
            inside.run(["true"], 30)
    assert not (site.scratch / inside.session).exists()
    assert inside.session not in Path("/proc/self/mountinfo").read_text()


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    reach.nothing_is_left_after_a_kill("gvisor", tmp_path, CACHE)
