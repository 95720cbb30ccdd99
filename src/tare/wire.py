"""Two hosts joined by a wire of their own, as for migrations: nothing else travels on it.

    source namespace                         destination namespace
      wire0 10.78.0.1 ======= veth ======= wire0 10.78.0.2

Each direction is limited where it is sent (htb). Bytes are counted by the interfaces: outside of
whatever sends, with the headers of TCP, IP and Ethernet as the kernel lays them around what it
hands over at once, up to 64 KiB.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tare import netns
from tare.leftovers import Registry
from tare.stepwise import Stepwise

_INTERFACE = "wire0"
_PREFIX_LENGTH = 24
_BURST_S = 200e-6
"""A burst holds what the wire carries in this time: timers are up to so late."""
_LEAST_BURST = 16 << 10
_PROBE_PORT = 7500
_PROBE_S = 0.3
_COUNT = itertools.count()


@dataclass(frozen=True)
class Traffic:
    """Bytes that have crossed a wire so far."""

    forth: int
    """From the source to the destination."""
    back: int

    def since(self, earlier: Traffic) -> Traffic:
        """Return what has crossed between two looks."""
        return Traffic(self.forth - earlier.forth, self.back - earlier.back)


class Wire(Stepwise):
    """Two namespaces and their link; leaving removes them.

    Args:
        registry: the run's list of what it makes; it also makes the names unique.
        rate_bits_s: a limit on each direction, or None; `limit` changes it.
    """

    source_address = "10.78.0.1"
    destination_address = "10.78.0.2"

    def __init__(self, registry: Registry, rate_bits_s: int | None) -> None:
        prefix = f"tare-{registry.run_id}-{next(_COUNT)}"
        self.source_ns = f"{prefix}-source"
        self.destination_ns = f"{prefix}-destination"
        self.rate_bits_s: int | None = None
        self.burst_bytes: int | None = None
        """What the limiter lets through at once; None without one."""
        self._first_rate = rate_bits_s
        self._registry = registry

    def _build(self, stack: ExitStack) -> None:
        """Make namespaces and link.

        Raises:
            UnavailableError: this user or this kernel cannot make them.
        """
        for namespace in (self.source_ns, self.destination_ns):
            stack.enter_context(self._registry.owing("netns", namespace))
            netns.make(namespace)

        def lay(ip: Any) -> None:
            peer = {"ifname": _INTERFACE, "net_ns_fd": self.destination_ns}
            ip.link("add", ifname=_INTERFACE, kind="veth", peer=peer)

        netns.within(self.source_ns, lay)
        netns.within(self.source_ns, lambda ip: self._connect(ip, self.source_address))
        netns.within(self.destination_ns, lambda ip: self._connect(ip, self.destination_address))
        self.limit(self._first_rate)

    def limit(self, rate_bits_s: int | None) -> None:
        """Limit each direction to so many bits a second, or to nothing with None."""
        if rate_bits_s == self.rate_bits_s:
            return
        burst = 0 if rate_bits_s is None else max(_LEAST_BURST, int(rate_bits_s / 8 * _BURST_S))

        def shape(ip: Any) -> None:
            device = netns.index(ip, _INTERFACE)
            if self.rate_bits_s is not None:
                ip.tc("del", "htb", device, handle=0x10000)
            if rate_bits_s is not None:
                netns.limit(ip, device, rate_bits_s, burst=burst)

        for namespace in (self.source_ns, self.destination_ns):
            netns.within(namespace, shape)
        self.rate_bits_s, self.burst_bytes = rate_bits_s, burst or None

    def traffic(self) -> Traffic:
        """Look at the counters of the source's end."""

        def look(ip: Any) -> Traffic:
            (link,) = ip.get_links(netns.index(ip, _INTERFACE))
            counters = link.get_attr("IFLA_STATS64")
            return Traffic(counters["tx_bytes"], counters["rx_bytes"])

        return netns.within(self.source_ns, look)

    def measured_rate(self) -> float:
        """Send through it for a moment as fast as it goes; return bits a second that arrived."""

        def listening(_ip: Any) -> socket.socket:
            return socket.create_server((self.destination_address, _PROBE_PORT))

        def unconnected(_ip: Any) -> socket.socket:
            return socket.socket()

        with (
            netns.within(self.destination_ns, listening) as server,
            netns.within(self.source_ns, unconnected) as sender,
        ):
            sender.connect((self.destination_address, _PROBE_PORT))
            receiver, _ = server.accept()
            with receiver:
                return _blast(sender, receiver)

    def _connect(self, ip: Any, address: str) -> None:
        device = netns.index(ip, _INTERFACE)
        ip.addr("add", index=device, address=address, prefixlen=_PREFIX_LENGTH)
        ip.link("set", index=device, state="up")


def _blast(sender: socket.socket, receiver: socket.socket) -> float:
    end = time.monotonic() + _PROBE_S
    received = 0

    def send() -> None:
        block = bytes(1 << 18)
        while time.monotonic() < end:
            sender.sendall(block)
        sender.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send, name="tare-wire-probe")
    thread.start()
    block = bytearray(1 << 20)
    began = time.monotonic()
    while count := receiver.recv_into(block):
        received += count
    seconds = time.monotonic() - began
    thread.join()
    return received * 8 / seconds
