"""What tests of every environment ask of a server inside it, and how they wait for what it left."""

from __future__ import annotations

import threading
from collections.abc import Callable

from needs import PROGRAMS
from tare import accounting, process
from tare.accounting import Account
from tare.command import Command
from tare.environments import Inside, Site

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


def await_that(holds: Callable[[], bool], timeout_s: float = 30) -> bool:
    """Look again and again whether something holds; False if it did not in time."""
    tick = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if holds():
            return True
        tick.wait(0.02)
    return False
