"""A User-Mode Linux for real: one boot serves the tests that leave it whole."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import reach
from reach import PORT

from needs import needs_root
from tare.environments import Inside, Site
from tare.environments.uml import Uml
from tare.errors import TrialError

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
    reach.a_failing_program_says_why(inside)


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


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    reach.nothing_is_left_after_a_kill("uml", tmp_path, tmp_path / "cache")


def test_temporary_files_of_which_it_cannot_be_told_are_refused_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a b"))
    found = Uml().availability()
    assert not found.available
    assert "a b" in found.detail
    assert found.remedy == "set TMPDIR to another folder"
