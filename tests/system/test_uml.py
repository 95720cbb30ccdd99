"""A User-Mode Linux for real: one boot serves the tests that leave it whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import reach
from reach import PORT

from needs import PROGRAMS, needs_root
from tare import process
from tare.command import start_time
from tare.environments import Inside, Site
from tare.environments.uml import Uml
from tare.errors import TrialError
from tare.leftovers import clean
from tare.testing import traces

_FOUND = Uml().availability()

pytestmark = [
    pytest.mark.system,
    needs_root,
    pytest.mark.skipif(not _FOUND.available, reason=_FOUND.detail),
]


@pytest.fixture(scope="module")
def inside(site: Site) -> Iterator[Inside]:
    with Uml().enter(site) as entered:
        yield entered


def test_it_names_the_kernel_that_it_runs(inside: Inside) -> None:
    assert inside.run(["uname", "-r"], 20).strip() == inside.facts["kernel"]
    assert inside.facts["kernel"] in Uml().availability().detail
    assert "User Mode Linux" in inside.run(["cat", "/proc/cpuinfo"], 20)
    assert f"{inside.interface} " in inside.run(["ip", "-brief", "link"], 20)


def test_a_server_answers_over_the_bridge_and_is_accounted_for(site: Site, inside: Inside) -> None:
    used = reach.a_server_answers_and_is_accounted_for(site, inside)
    assert sum(t.cpu_ns for t in used.threads if t.role == "vcpu") > 0
    assert any(t.role == "guest" for t in used.threads)


def test_long_arrays_cross_by_tcp_in_both_directions(site: Site, inside: Inside) -> None:
    reach.long_arrays_cross_by_tcp(site, inside)


def test_a_dds_finds_its_way_in(site: Site, inside: Inside) -> None:
    reach.a_dds_is_found_by_unicast(site, inside, domain=21)


def test_the_host_cannot_be_written_to(site: Site, inside: Inside) -> None:
    for path in ("/etc/x", "/usr/x", "/programs/x"):
        with pytest.raises(TrialError, match="Read-only file system"):
            inside.run(["touch", path], 20)
    inside.run(["touch", "/tmp/own"], 20)
    assert not Path("/tmp/own").exists()
    assert str(site.scratch) not in inside.run(["cat", "/proc/mounts"], 20)


def test_a_failing_program_says_why(inside: Inside) -> None:
    with pytest.raises(TrialError, match="No such file"):
        inside.run(["cat", "/no/such/file"], 20)
    with (
        pytest.raises(TrialError, match="no-such-echo: No such file"),
        inside.start(["echo/no-such-echo"]) as server,
    ):
        server.event(20)
    elsewhere = ["echo/echo-udp", "serve", "--bind", "192.0.2.1", *PORT]
    with pytest.raises(TrialError, match=r"192\.0\.2\.1"), inside.start(elsewhere) as server:
        server.event(20)
    assert inside.run(["echo", "well"], 20) == "well\n"


def test_a_kernel_that_dies_is_an_error_that_says_so(site: Site) -> None:
    with Uml().enter(site) as inside:
        with inside.start(["echo/echo-udp", "serve", "--bind", inside.address, *PORT]) as server:
            server.event(30)
            tid = next(t.tid for t in server.account().threads if t.role == "vcpu")
            os.killpg(os.getpgid(tid), signal.SIGKILL)
            with pytest.raises(TrialError, match="its kernel has ended"):
                server.event(30)
        with pytest.raises(TrialError, match="its kernel has ended"):
            inside.run(["true"], 20)
    assert list(site.passed.glob(f"{inside.session}*")) == []


LIFE = """
import json, re, sys
from pathlib import Path
from tare import accounting
from tare.environments import Site
from tare.environments.uml import Uml
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement

root, programs, scratch = map(Path, sys.argv[1:])
with Registry(root) as registry, Hosts(registry) as hosts:
    site = Site(hosts, programs, scratch, scratch, registry, Placement())
    with Uml().enter(site) as inside:
        serve = ["echo/echo-udp", "serve", "--bind", inside.address, "--port", "7400"]
        with inside.start(serve) as server:
            server.event(30)
            threads = [t.tid for t in server.account().threads if t.role == "vcpu"]
            told = [Path(f"/proc/{tid}/status").read_text() for tid in threads]
            processes = {int(re.search("Tgid:\\s*(\\d+)", status)[1]) for status in told}
            print(json.dumps(sorted(processes)), flush=True)
            sys.stdin.read()
"""


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    scratch.mkdir()
    argv = [sys.executable, "-c", LIFE, str(root), str(PROGRAMS), str(scratch)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        # Kernel and programs of the guest, whichever of them the mark can be read of.
        pidfds = [os.pidfd_open(pid) for pid in json.loads(life.stdout.readline())]
        assert len(pidfds) > 1
        mark = f"{life.pid}:{start_time(life.pid)}"
        life.send_signal(signal.SIGKILL)
    runs = [path.name for path in root.glob("*") if path.is_dir()]
    clean(root)
    assert runs != []
    for run_id in runs:
        assert traces.of_run(run_id, mark) == []
    assert list(scratch.parent.glob("uml-*")) == []
    for pidfd in pidfds:
        assert process.wait_pidfd(pidfd, 10)
        os.close(pidfd)
