"""Real namespaces: what one host sends, the other receives, and nothing is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from needs import PROGRAMS, needs_root
from tare import netns
from tare.command import Command
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.process import ProcessError, run, start
from tare.testing import traces

pytestmark = [pytest.mark.system, needs_root]

SERVE = """
import socket, sys, json
server = socket.create_server((sys.argv[1], 7000))
print(json.dumps({"event": "ready"}), flush=True)
peer, (address, _) = server.accept()
with peer:
    n = 0
    while data := peer.recv(1 << 16): n += len(data)
    peer.sendall(str(n).encode())
print(json.dumps({"from": address, "bytes": n}), flush=True)
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=30) as peer:
    peer.sendall(b"x" * 1_000_000)
    peer.shutdown(socket.SHUT_WR)
    print(peer.recv(100).decode())
"""


def transfer(hosts: Hosts) -> dict[str, Any]:
    """Send a million bytes over TCP from the client's host to the server's."""
    serve = Command((sys.executable, "-c", SERVE, hosts.server_address), netns=hosts.server_ns)
    ask = Command((sys.executable, "-c", ASK, hosts.server_address), netns=hosts.client_ns)
    with start(serve) as server:
        server.event(30)
        assert run(ask, 60).stdout == "1000000\n"
        return server.finish(30)


def ip(namespace: str, *words: str) -> list[dict[str, Any]]:
    found = run(Command(("ip", "-json", "-details", *words), netns=namespace), 20).stdout
    return list(json.loads(found))


def qdiscs(namespace: str, device: str) -> list[dict[str, Any]]:
    argv = ("tc", "-json", "qdisc", "show", "dev", device)
    return list(json.loads(run(Command(argv, netns=namespace), 20).stdout))


def test_a_client_reaches_the_server_from_its_own_address(hosts: Hosts) -> None:
    assert transfer(hosts) == {"from": hosts.client_address, "bytes": 1_000_000}


def test_tcp_passes_without_offloads_too(registry: Registry) -> None:
    with Hosts(registry) as hosts:
        hosts.turn_off_offloads()
        assert transfer(hosts)["bytes"] == 1_000_000
        shown = run(Command(("ethtool", "-k", "client"), netns=hosts.wire_ns), 20).stdout
        assert "tcp-segmentation-offload: off" in shown


def test_hosts_see_nothing_but_their_own_interface(hosts: Hosts) -> None:
    for namespace in (hosts.client_ns, hosts.server_ns):
        assert {link["ifname"] for link in ip(namespace, "link")} == {"lo", "eth0"}


def test_nothing_talks_in_the_background(hosts: Hosts) -> None:
    for namespace in (hosts.client_ns, hosts.server_ns, hosts.wire_ns):
        families = {a["family"] for link in ip(namespace, "address") for a in link["addr_info"]}
        assert "inet6" not in families
    bridge = next(link for link in ip(hosts.wire_ns, "link") if link["ifname"] == "bridge")
    settings = bridge["linkinfo"]["info_data"]
    assert (settings["stp_state"], settings["mcast_snooping"]) == (0, 0)
    neighbours = ip(hosts.client_ns, "neigh")
    assert [(n["dst"], n["lladdr"], n["state"]) for n in neighbours] == [
        (hosts.server_address, hosts.server_mac, ["PERMANENT"])
    ]


def test_a_rate_limit_stands_on_every_port_in_bits_a_second(registry: Registry) -> None:
    with Hosts(registry, rate_bits_s=100_000_000) as hosts, hosts.tap() as tap:
        for port in ("client", "server", tap.name):
            assert [q["kind"] for q in qdiscs(hosts.wire_ns, port)] == ["htb"]
            shown = ("tc", "class", "show", "dev", port)
            assert "rate 100Mbit" in run(Command(shown, netns=hosts.wire_ns), 20).stdout
        assert transfer(hosts)["bytes"] == 1_000_000


def test_each_guest_has_an_address_of_its_own_that_goes_with_it(hosts: Hosts) -> None:
    def known() -> set[str]:
        return {n["dst"] for n in ip(hosts.client_ns, "neigh")}

    with hosts.tap() as one, hosts.tap() as other:
        assert len({one.address, other.address, hosts.server_address, hosts.client_address}) == 4
        assert (one.mac, one.name) != (other.mac, other.name)
        assert known() == {hosts.server_address, one.address, other.address}
        ports = {link["ifname"] for link in ip(hosts.wire_ns, "link", "show", "master", "bridge")}
        assert ports == {"client", "server", one.name, other.name}
    assert known() == {hosts.server_address}
    assert one.name not in {link["ifname"] for link in ip(hosts.wire_ns, "link")}


def test_the_bridges_own_address_does_not_change_as_guests_come(hosts: Hosts) -> None:
    def address() -> str:
        links = {link["ifname"]: link["address"] for link in ip(hosts.wire_ns, "link")}
        return str(links["bridge"])

    before = address()
    with hosts.tap():
        assert address() == before


def test_two_runs_at_once_do_not_meet(registry: Registry, tmp_path: Path) -> None:
    with (
        Registry(tmp_path / "another") as second,
        Hosts(registry) as one,
        Hosts(second) as other,
        Hosts(second) as third,
    ):
        assert transfer(one) == transfer(other) == transfer(third)
    assert traces.of_run(second.run_id) == []


def test_what_was_half_made_is_removed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tare.hosts._raise_port", lambda *_: (_ for _ in ()).throw(ZeroDivisionError)
    )
    with pytest.raises(ZeroDivisionError):
        Hosts(registry).__enter__()
    assert traces.of_run(registry.run_id) == []


def test_an_interface_runs_as_soon_as_it_is_there(hosts: Hosts) -> None:
    def state(ip: Any) -> object:
        return ip.get_links(ifname="eth0")[0].get_attr("IFLA_OPERSTATE")

    # Without waiting for it, one in five does not.
    for _ in range(30):
        with hosts.own_host() as host:
            assert netns.within(host.netns, state) == "UP"


def test_fast_dds_says_that_an_interface_does_not_run(hosts: Hosts) -> None:
    """It would pass over it, and be ready without any."""

    def lay(ip: Any) -> None:
        ip.link("add", ifname="loose", kind="veth", peer={"ifname": "end"})
        loose = ip.link_lookup(ifname="loose")[0]
        ip.addr("add", index=loose, address="10.78.0.1", prefixlen=24)
        ip.link("set", index=loose, state="up")

    netns.within(hosts.server_ns, lay)
    serve = (str(PROGRAMS / "echo/echo-fastdds"), "serve", "--domain", "12", "--interface")
    for name in ("loose", "10.78.0.1"):
        with pytest.raises(ProcessError, match="the interface loose does not run"):
            run(Command((*serve, name), netns=hosts.server_ns), 20)
