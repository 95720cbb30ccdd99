"""What tests of every environment ask of a server inside it, and how they wait for what it left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from needs import PROGRAMS
from tare import accounting, process
from tare.accounting import Account
from tare.command import Command, start_time
from tare.environments import Inside, Site
from tare.errors import TrialError
from tare.leftovers import clean
from tare.testing import traces

PORT = ("--port", "7400")
PATIENCE_NS = 20_000_000_000
"""For a reply: a machine that stands still for a second has lost nothing."""


def ask(
    site: Site, transport: str, *options: str, payload: int = 64, requests: int = 200
) -> dict[str, int]:
    """Send requests from the client's host; return what the client counted."""
    argv = (
        str(PROGRAMS / f"echo/echo-{transport}"), "ask", *options, "--payload", str(payload),
        "--requests", str(requests), "--timeout-ns", str(PATIENCE_NS),
        "--out", str(site.scratch / "samples"),
    )  # fmt: skip
    with process.start(Command(argv, netns=site.hosts.client_ns)) as client:
        return dict(client.finish(60)["counters"])


def a_server_answers_and_is_accounted_for(site: Site, inside: Inside) -> Account:
    """Send 200 small requests over the bridge; return what the server's side consumed meanwhile."""
    with inside.start(["echo/echo-udp", "serve", "--bind", inside.address, *PORT]) as server:
        assert server.event(30)["event"] == "ready"
        before = server.account()
        counters = ask(site, "udp", "--peer", inside.address, *PORT)
        used = accounting.difference(before, server.account())
        last = server.stop(30)
    # UML on a busy machine may not see that a request has come before the next one comes.
    assert counters["received"] + counters["late"] == 200, counters
    assert last["replies"] >= 200
    for counted in (used.sent_bytes, used.received_bytes):
        assert counted is not None
        assert counted >= 200 * 64
    assert used.peak_memory_bytes is not None
    return used


def long_arrays_cross_by_tcp(site: Site, inside: Inside) -> None:
    """Have 60 000 bytes go there and back, 200 times, and every one of them right."""
    with inside.start(["echo/echo-tcp", "serve", "--bind", inside.address, *PORT]) as server:
        server.event(30)
        counters = ask(site, "tcp", "--peer", inside.address, *PORT, payload=60_000)
        assert counters["received"] == 200, counters
        assert counters["corrupted"] == 0
        server.stop(30)


def a_dds_is_found_by_unicast(site: Site, inside: Inside, domain: int) -> None:
    """Let Cyclone DDS discover a server that it is given by name: no multicast goes in there."""
    hosts, known = site.hosts, ("--domain", str(domain))
    serve = (*known, "--interface", inside.interface, "--peer", hosts.client_address)
    with inside.start(["echo/echo-cyclonedds", "serve", *serve]) as server:
        server.event(30)
        reach = ("--interface", hosts.client_address, "--peer", inside.address)
        assert ask(site, "cyclonedds", *known, *reach)["received"] == 200
        server.stop(30)


def a_failing_program_says_why(inside: Inside) -> None:
    """Have programs fail each in its own way; what is inside goes on."""
    with pytest.raises(TrialError, match="No such file"):
        inside.run(["cat", "/no/such/file"], 30)
    with (
        pytest.raises(TrialError, match="no-such-echo"),
        inside.start(["echo/no-such-echo"]) as server,
    ):
        server.event(30)
    elsewhere = ["echo/echo-udp", "serve", "--bind", "192.0.2.1", *PORT]
    with pytest.raises(TrialError, match=r"192\.0\.2\.1"), inside.start(elsewhere) as server:
        server.event(30)
    assert inside.run(["echo", "well"], 30) == "well\n"


LIFE = """
import json, re, sys
from pathlib import Path
from tare.environments import Site, for_plot
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.placement import Placement

root, programs, scratch, cache = map(Path, sys.argv[2:])
with Registry(root) as registry, Hosts(registry) as hosts:
    site = Site(hosts, programs, scratch, cache, registry, Placement())
    with for_plot({"environment": sys.argv[1]}).enter(site) as inside:
        serve = ["echo/echo-udp", "serve", "--bind", inside.address, "--port", "7400"]
        with inside.start(serve) as server:
            server.event(30)
            account = server.account()
            threads = [t.tid for t in account.threads if t.role in ("vmm", "vcpu")]
            told = [Path(f"/proc/{tid}/status").read_text() for tid in threads]
            processes = {int(re.search("Tgid:\\s*(\\d+)", status)[1]) for status in told}
            print(json.dumps(sorted(processes)), flush=True)
            sys.stdin.read()
"""


def nothing_is_left_after_a_kill(environment: str, folder: Path, cache: Path) -> None:
    """Kill a run with a server inside: its processes end, and the rest is removed."""
    root, scratch = folder / "root", folder / "scratch"
    scratch.mkdir()
    folders = map(str, (root, PROGRAMS, scratch, cache))
    argv = [sys.executable, "-c", LIFE, environment, *folders]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as life:
        assert life.stdout is not None
        # Kernel and programs, whichever of them the mark can be read of.
        pidfds = [os.pidfd_open(pid) for pid in json.loads(life.stdout.readline())]
        assert len(pidfds) > 1
        mark = f"{life.pid}:{start_time(life.pid)}"
        life.send_signal(signal.SIGKILL)
    runs = [path.name for path in root.glob("*") if path.is_dir()]
    clean(root)
    assert runs != []
    for run_id in runs:
        assert traces.of_run(run_id, mark) == []
    assert [*scratch.glob("tare-*"), *folder.glob("uml-*")] == []
    for pidfd in pidfds:
        assert process.wait_pidfd(pidfd, 10)
        os.close(pidfd)


def await_that(holds: Callable[[], bool], timeout_s: float = 30) -> bool:
    """Look again and again whether something holds; False if it did not in time."""
    tick = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if holds():
            return True
        tick.wait(0.02)
    return False
