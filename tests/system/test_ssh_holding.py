"""A container and a guest on another machine: an sshd in a namespace, and what stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
from reach import PORT, ask, await_that
from test_ssh import SERVE

from needs import PROGRAMS, needs_root
from tare import accounting, environments
from tare.accounting import Account
from tare.environments import Environment, Inside, Site
from tare.errors import TrialError
from tare.far import FarHost
from tare.leftovers import clean
from tare.testing.far_machine import FarMachine

pytestmark = [pytest.mark.system, needs_root]

CACHE = platformdirs.user_cache_path("tare")


def level_of(far: FarMachine, kind: str) -> str:
    machine, of, namespace = str(far.destination).partition(" from ")
    return f"ssh {machine}/{kind}{of}{namespace}"


def holding(far: FarMachine, kind: str) -> Environment:
    # Where KVM opens and hangs, finding that out takes a while, and is not what is tested.
    found = environments.for_plot({"environment": level_of(far, kind), "accelerator": "tcg"})
    if not found.availability().available:
        pytest.skip(found.availability().detail)
    return found


def left_of(mark: str, name: str) -> list[str]:
    """Processes that carry a far folder's mark, and control groups of a name."""
    found = [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append(str(process))
        except OSError:  # it has ended
            continue
    return found


def served(site: Site, inside: Inside) -> Account:
    with inside.start([*SERVE, inside.address]) as server:
        assert server.event(60)["event"] == "ready"
        before = server.account()
        assert ask(site, "udp", "--peer", inside.address, *PORT)["received"] == 200
        used = accounting.difference(before, server.account())
        assert server.stop(60)["replies"] >= 200
    return used


@pytest.mark.parametrize("fifo", [None, 50], ids=["other", "fifo"])
def test_a_container_there_answers_and_goes_without_a_trace(
    site: Site, far: FarMachine, fifo: int | None
) -> None:
    asked = replace(site, placement=replace(site.placement, fifo=fifo))
    with holding(far, "container").enter(asked) as inside:
        mark, name = inside.host.mark, inside.session  # type: ignore[attr-defined]
        assert left_of(mark, name) != []
        assert inside.run(["uname", "-n"], 60) == "tare\n"
        # It is the second process beside the one that waits: a container has its own.
        assert len(inside.run(["sh", "-c", "ls -d /proc/[0-9]*"], 60).split()) < 10
        with pytest.raises(TrialError, match="No such file"):
            inside.run(["cat", "/no/such/file"], 60)
        with pytest.raises(TrialError, match=r"192\.0\.2\.1"), inside.start(
            [*SERVE, "192.0.2.1"]
        ) as server:  # fmt: skip
            server.event(60)
        used = served(asked, inside)
        assert {thread.role for thread in used.threads} == {"server"}
        assert used.sent_bytes is not None
        assert used.sent_bytes >= 200 * 64
        assert inside.facts["machine"] == str(far.destination)
        assert inside.facts["runtime"].startswith("runc")
    assert left_of(mark, name) == []


def test_a_guest_there_answers_at_the_machines_address_and_goes_without_a_trace(
    site: Site, far: FarMachine
) -> None:
    with holding(far, "qemu").enter(site) as inside:
        mark = inside._guest.host.mark  # type: ignore[attr-defined]
        assert inside.address == site.hosts.server_address
        assert inside.run(["uname", "-r"], 60).strip() == inside.facts["kernel"]
        assert inside.facts["kernel"] != inside.facts["host_kernel"]
        used = served(site, inside)
        assert {"vcpu", "vmm", "guest"} <= {thread.role for thread in used.threads}
        assert inside.run(["stress-ng", "--version"], 120).startswith("stress-ng")
        # The far machine's own kernel would answer, and be taken for the guest.
        with pytest.raises(TrialError, match=r"ICMP .*not by the guest"):
            inside.start(["echo/echo-icmp", "serve", "--bind", inside.address])
        with pytest.raises(TrialError, match="ended with code 1"):
            inside.run(["cat", "/no/such/file"], 60)
    assert left_of(mark, "none") == []


@pytest.mark.parametrize(
    ("kind", "lack", "package"),
    [
        ("container", "it lacks runc", "runc"),
        ("qemu", "it lacks qemu-system-x86_64", "qemu-system-x86"),
    ],
)
def test_what_the_machine_lacks_is_said_with_what_to_install_there(
    site: Site,
    far: FarMachine,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    lack: str,
    package: str,
) -> None:
    entered = holding(far, kind).enter(site)
    # As if nothing were installed there.
    monkeypatch.setattr(FarHost, "has", lambda *_: False)
    with pytest.raises(TrialError, match=lack) as error, entered:
        pass
    assert str(far.destination) in error.value.what
    assert error.value.remedy == f"apt-get install {package} there"


LIFE = """
import sys
from pathlib import Path
from types import ModuleType
from tare import environments
from tare.environments import Site
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement

root, programs, scratch, cache = map(Path, sys.argv[1:5])
with Registry(root) as registry, Hosts(registry) as hosts:
    site = Site(hosts, programs, scratch, cache, registry, Placement())
    plot = {"environment": sys.argv[5], "accelerator": "tcg"}
    with environments.for_plot(plot).enter(site) as inside:
        serve = ["echo/echo-udp", "serve", "--port", "7400", "--bind", inside.address]
        with inside.start(serve) as server:
            server.event(60)
            host = getattr(inside, "host", None) or inside._guest.host
            print(host.mark, inside.session, flush=True)
            sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("kind", "who"), [("container", "tare"), ("container", "the connection"), ("qemu", "tare")]
)
def test_nothing_is_left_there_when_somebody_is_killed(
    far: FarMachine, tmp_path: Path, kind: str, who: str
) -> None:
    holding(far, kind)
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    scratch.mkdir()
    argv = [
        sys.executable, "-c", LIFE, str(root), str(PROGRAMS), str(scratch), str(CACHE),
        level_of(far, kind),
    ]  # fmt: skip
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as life:
        assert life.stdout is not None
        mark, name = life.stdout.readline().split()
        assert left_of(mark, name) != []
        if who == "tare":
            life.send_signal(signal.SIGKILL)
        else:
            for pid in far.sessions():
                os.kill(pid, signal.SIGKILL)
        assert await_that(lambda: left_of(mark, name) == [], 60)
        life.kill()
    clean(root)
    assert await_that(lambda: far.left() == [])
