"""Two hosts and the wire between them, on one machine: network namespaces around a bridge.

    client namespace            wire namespace                 server namespace
      eth0 10.77.0.1 ===veth=== client  bridge  server ===veth=== eth0 10.77.0.2
                                        guest0 (tap) ------------ a guest's NIC, 10.77.0.3

Every environment reaches the client through this bridge. A process on the host and a container
live in the server namespace and share its address; each guest has a tap on the bridge and an
address of its own, so that nobody needs to be detached while a guest is up, and no two answer for
one address.

Nothing is learned in a measurement: addresses of the link layer are fixed, neighbours permanent,
IPv6 (with its background chatter), multicast snooping and spanning tree off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tare import netns
from tare.errors import TrialError
from tare.leftovers import Registry
from tare.process import Command, run
from tare.stepwise import Stepwise

PREFIX_LENGTH = 24
_BRIDGE = "bridge"
_BRIDGE_MAC = "02:00:0a:4d:00:00"
_INTERFACE = "eth0"
_COMMAND_TIMEOUT_S = 10.0
_COUNT = itertools.count()


@dataclass(frozen=True)
class Tap:
    """A guest's socket on the bridge. QEMU must run in the wire namespace to open it."""

    netns: str
    name: str
    """Of the tap device, in the wire namespace."""
    mac: str
    """For the guest's own NIC; the hosts' neighbour tables count on it."""
    address: str
    """IPv4 address for the guest's NIC, with the prefix length `PREFIX_LENGTH`."""


@dataclass(frozen=True)
class OwnHost:
    """A host on the bridge that one environment has for itself."""

    netns: str
    address: str


class Hosts(Stepwise):
    """Two hosts on one machine; entering makes them, leaving removes them.

    Args:
        registry: the run's list of what it makes; it also makes the names unique.
        rate_bits_s: a limit on each direction of the wire, set where the bridge hands a packet to a
            port; None sets none.
    """

    client_address = "10.77.0.1"
    server_address = "10.77.0.2"
    client_mac = "02:00:0a:4d:00:01"
    server_mac = "02:00:0a:4d:00:02"
    client_interface = _INTERFACE
    server_interface = _INTERFACE

    def __init__(self, registry: Registry, *, rate_bits_s: int | None = None) -> None:
        prefix = f"tare-{registry.run_id}-{next(_COUNT)}"
        self.client_ns = f"{prefix}-client"
        self.server_ns = f"{prefix}-server"
        self.wire_ns = f"{prefix}-wire"
        self._registry = registry
        self._rate_bits_s = rate_bits_s
        self._offloads = True
        self._taps = itertools.count(3)

    def _build(self, stack: ExitStack) -> None:
        """Make the namespaces, the bridge and both links.

        Raises:
            UnavailableError: this user or this kernel cannot make them.
        """
        for namespace in (self.wire_ns, self.client_ns, self.server_ns):
            stack.enter_context(self._registry.owing("netns", namespace))
            netns.make(namespace)
        self._within_wire(_make_bridge)
        self._plug("client", self.client_ns, self.client_mac, self.client_address)
        self._plug("server", self.server_ns, self.server_mac, self.server_address)
        self._introduce(self.client_ns, self.server_address, self.server_mac)
        self._introduce(self.server_ns, self.client_address, self.client_mac)

    def turn_off_offloads(self) -> None:
        """Turn those of checksums and segmentation off on every port, and on those to come.

        With them, no TCP reaches a user-space network stack (gVisor, User-Mode Linux).
        """
        self._offloads = False
        for namespace in (self.client_ns, self.server_ns):
            self._turn_off_offloads(namespace, _INTERFACE)
        for port in ("client", "server"):
            self._turn_off_offloads(self.wire_ns, port)

    @contextmanager
    def client_elsewhere(self, namespace: str, address: str) -> Iterator[None]:
        """Have the client live where a machine beyond this one can be reached from.

        Args:
            namespace: by name or by path.
            address: the client's there, by which it is reached.

        Raises:
            TrialError: a limit is set, and that network is not ours to slow down.
        """
        if self._rate_bits_s is not None:
            raise TrialError(
                "the link to another machine cannot be limited", "leave `link` unlimited there"
            )
        usual = self.client_ns, self.client_address
        self.client_ns, self.client_address = namespace, address
        try:
            yield
        finally:
            self.client_ns, self.client_address = usual

    @contextmanager
    def tap(self) -> Iterator[Tap]:
        """Attach a tap for a guest to the bridge, with an address that nobody else has."""
        number = next(self._taps)
        tap = Tap(
            netns=self.wire_ns,
            name=f"guest{number - 3}",
            mac=_mac(number),
            address=f"10.77.0.{number}",
        )
        self._within_wire(lambda ip: ip.link("add", ifname=tap.name, kind="tuntap", mode="tap"))
        try:
            self._within_wire(lambda ip: _raise_port(ip, tap.name))
            self._shape(self.wire_ns, tap.name)
            for namespace in (self.client_ns, self.server_ns):
                self._introduce(namespace, tap.address, tap.mac)
            yield tap
        finally:
            self._unplug(tap.name, tap.address)

    @contextmanager
    def own_host(self) -> Iterator[OwnHost]:
        """Make one more host on the bridge, for whoever takes its interface away from it."""
        number = next(self._taps)
        host = OwnHost(
            netns=f"{self.wire_ns.removesuffix('wire')}{number}",
            address=f"10.77.0.{number}",
        )
        port, mac = f"host{number}", _mac(number)
        with self._registry.owing("netns", host.netns):
            netns.make(host.netns)
            self._plug(port, host.netns, mac, host.address)
            for namespace in (self.client_ns, self.server_ns):
                self._introduce(namespace, host.address, mac)
            try:
                yield host
            finally:
                self._unplug(port, host.address)

    def _plug(self, port: str, namespace: str, mac: str, address: str) -> None:
        """Lay a veth from a port of the bridge into a host."""

        def lay(ip: Any) -> None:
            peer = {"ifname": _INTERFACE, "address": mac, "net_ns_fd": namespace}
            ip.link("add", ifname=port, kind="veth", peer=peer)
            _raise_port(ip, port)

        def connect(ip: Any) -> None:
            index = netns.index(ip, _INTERFACE)
            ip.addr("add", index=index, address=address, prefixlen=PREFIX_LENGTH)
            ip.link("set", index=index, state="up")
            # DDS discovery and whoever else sends multicast needs a route for it.
            ip.route("add", dst="224.0.0.0/4", oif=index)
            netns.await_running(ip, index)

        self._within_wire(lay)
        netns.within(namespace, connect)
        self._shape(self.wire_ns, port)
        if not self._offloads:
            self._turn_off_offloads(namespace, _INTERFACE)

    def _unplug(self, port: str, address: str) -> None:
        """Take a port away from the bridge, and what the others know of who was there."""
        self._within_wire(lambda ip: ip.link("del", index=netns.index(ip, port)))
        for namespace in (self.client_ns, self.server_ns):
            netns.within(namespace, lambda ip: _forget(ip, address))

    def _within_wire(self, work: Callable[[Any], object]) -> None:
        netns.within(self.wire_ns, work)

    def _shape(self, namespace: str, port: str) -> None:
        if (rate := self._rate_bits_s) is not None:
            netns.within(namespace, lambda ip: netns.limit(ip, netns.index(ip, port), rate))
        if not self._offloads:
            self._turn_off_offloads(namespace, port)

    def _turn_off_offloads(self, namespace: str, interface: str) -> None:
        features = [word for feature in ("tx", "tso", "gso", "gro") for word in (feature, "off")]
        switch = Command(("ethtool", "-K", interface, *features), netns=namespace)
        run(switch, _COMMAND_TIMEOUT_S)

    def _introduce(self, namespace: str, address: str, mac: str) -> None:
        netns.within(namespace, lambda ip: netns.introduce(ip, _INTERFACE, address, mac))


def _mac(number: int) -> str:
    return f"02:00:0a:4d:{number >> 8:02x}:{number & 255:02x}"


def _make_bridge(ip: Any) -> None:
    ip.link(
        "add",
        ifname=_BRIDGE,
        kind="bridge",
        address=_BRIDGE_MAC,  # else it is that of some port, and changes as guests come and go
        br_stp_state=0,
        br_forward_delay=0,
        br_mcast_snooping=0,
    )
    ip.link("set", index=netns.index(ip, _BRIDGE), state="up")


def _raise_port(ip: Any, port: str) -> None:
    ip.link("set", index=netns.index(ip, port), master=netns.index(ip, _BRIDGE), state="up")


def _forget(ip: Any, address: str) -> None:
    ip.neigh("del", dst=address, ifindex=netns.index(ip, _INTERFACE))
