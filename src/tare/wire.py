"""Two hosts joined by a wire of their own, as for migrations: nothing else travels on it.

    source namespace                         destination namespace
      wire0 10.78.0.1 ======= veth ======= wire0 10.78.0.2

Each direction is limited where it is sent (htb). Bytes are counted by the interfaces: outside of
whatever sends, with the headers of TCP, IP and Ethernet as the kernel lays them around what it
hands over at once, up to 64 KiB.

Between ends that are far apart, two taps and a program stand in the veth's place (`relay.py`). All
else is as before: the names, the addresses, the limit and the counters, which count what is sent,
lost or not.
"""

from __future__ import annotations

import itertools
import socket
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import netns
from tare.leftovers import Registry
from tare.relay import Distance, Relay, room
from tare.stepwise import Stepwise

_INTERFACE = "wire0"
_PREFIX_LENGTH = 24
_BURST_S = 200e-6
"""A burst holds what the wire carries in this time: timers are up to so late."""
_LEAST_BURST = 16 << 10
_PROBE_PORT = 7500
_PROBE_S = 0.3
_ECHOES = 5
_ECHO_TIMEOUT_S = 20.0
_MAIN_TABLE, _SCOPE_LINK = 254, 253
"""Source: linux/rtnetlink.h."""
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
"""Source: asm-generic/socket.h."""
_SEGMENT = 1448
"""Data in a frame of Ethernet, behind IP and TCP with its timestamps."""
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
        programs: the build directory, for ends that are far apart; `become` moves them.
    """

    source_address = "10.78.0.1"
    destination_address = "10.78.0.2"

    def __init__(
        self, registry: Registry, rate_bits_s: int | None, programs: Path | None = None
    ) -> None:
        prefix = f"tare-{registry.run_id}-{next(_COUNT)}"
        self.source_ns = f"{prefix}-source"
        self.destination_ns = f"{prefix}-destination"
        self.rate_bits_s: int | None = None
        self.burst_bytes: int | None = None
        """What the limiter lets through at once; None without one."""
        self.distance: Distance | None = None
        """None where nothing lies between the ends."""
        self.room_bytes: int | None = None
        """What can be under way each way; None without a distance."""
        self._first_rate = rate_bits_s
        self._registry = registry
        self._programs = programs
        self._relay: Relay | None = None

    def _build(self, stack: ExitStack) -> None:
        """Make namespaces and link.

        Raises:
            UnavailableError: this user or this kernel cannot make them.
        """
        for namespace in (self.source_ns, self.destination_ns):
            stack.enter_context(self._registry.owing("netns", namespace))
            netns.make(namespace)
        self._link = stack.enter_context(ExitStack())
        self._lay()
        self.limit(self._first_rate)

    def limit(self, rate_bits_s: int | None) -> None:
        """Limit each direction to so many bits a second, or to nothing with None."""
        self.become(rate_bits_s, self.distance)

    def become(self, rate_bits_s: int | None, distance: Distance | None) -> None:
        """Be of this rate and length. A wire of another length is laid anew: what is on it is lost.

        So is one whose relay has ended.

        Args:
            rate_bits_s: a limit on each direction, or None.
            distance: between the ends; None joins them by a veth.

        Raises:
            UnavailableError: this user or this kernel cannot lay it.
            ProcessError: the relay's program is not built, or did not start.
        """
        room_bytes = None if distance is None else room(rate_bits_s, distance)
        ended = self._relay is not None and not self._relay.alive()
        if ended or (distance, room_bytes) != (self.distance, self.room_bytes):
            self._link.close()
            self.rate_bits_s = None
            self.distance, self.room_bytes = distance, room_bytes
            self._lay()
        self._shape(rate_bits_s)

    def _lay(self) -> None:
        ends = (self.source_ns, self.destination_ns)
        if self.distance is None or self.room_bytes is None:
            self._relay = None
            netns.within(self.source_ns, self._lay_veth)
            self._link.callback(netns.within, self.source_ns, _remove)
        else:
            assert self._programs is not None
            self._relay = self._link.enter_context(
                Relay(self._programs, ends, _INTERFACE, self.distance, self.room_bytes)
            )
        source = netns.within(ends[0], lambda ip: self._connect(ip, self.source_address))
        destination = netns.within(ends[1], lambda ip: self._connect(ip, self.destination_address))
        if self._relay is not None:
            # A question for the other's address would take a round trip, and could be lost.
            netns.within(
                ends[0],
                lambda ip: netns.introduce(ip, _INTERFACE, self.destination_address, destination),
            )
            netns.within(
                ends[1], lambda ip: netns.introduce(ip, _INTERFACE, self.source_address, source)
            )

    def _lay_veth(self, ip: Any) -> None:
        peer = {"ifname": _INTERFACE, "net_ns_fd": self.destination_ns}
        ip.link("add", ifname=_INTERFACE, kind="veth", peer=peer)

    def _shape(self, rate_bits_s: int | None) -> None:
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

    def relayed(self) -> dict[str, Any]:
        """What the relay did since it was last asked; empty without a distance."""
        return {} if self._relay is None else self._relay.report()

    def measured_rate(self) -> float:
        """Send through it for a moment as fast as it goes; return bits a second that arrived.

        By TCP, whose windows hold all that can be under way from the first moment on: what is
        measured is the wire, not how TCP finds out about it. Losses are TCP's to slow down for.
        """

        def listening(_ip: Any) -> socket.socket:
            return socket.create_server((self.destination_address, _PROBE_PORT))

        def unconnected(_ip: Any) -> socket.socket:
            return socket.socket()

        with (
            ExitStack() as stack,
            netns.within(self.destination_ns, listening) as server,
            netns.within(self.source_ns, unconnected) as sender,
        ):
            if self.room_bytes is not None:
                self._open_windows(stack, self.room_bytes)
                for end in (server, sender):
                    for buffer in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
                        end.setsockopt(socket.SOL_SOCKET, buffer, 2 * self.room_bytes)
            sender.connect((self.destination_address, _PROBE_PORT))
            receiver, _ = server.accept()
            # The first window fits TCP's header without its scale: the full one comes next.
            opening_ns = 0 if self.distance is None else 2 * self.distance.round_trip_ns
            with receiver:
                return _blast(sender, receiver, opening_ns / 1e9)

    def _open_windows(self, stack: ExitStack, room_bytes: int) -> None:
        """Have connections begin with a full window, until the stack is left."""
        full = room_bytes // _SEGMENT

        def set_window(segments: int) -> None:
            for namespace in (self.source_ns, self.destination_ns):
                netns.within(namespace, lambda ip: _set_window(ip, segments))

        stack.callback(set_window, 0)
        set_window(full)

    def measured_round_trip(self) -> int:
        """Nanoseconds for a small datagram there and back, the median of some."""

        def bound(address: str) -> Callable[[Any], socket.socket]:
            def bind(_ip: Any) -> socket.socket:
                made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                made.bind((address, _PROBE_PORT))
                made.settimeout(_ECHO_TIMEOUT_S)
                return made

            return bind

        with (
            netns.within(self.source_ns, bound(self.source_address)) as here,
            netns.within(self.destination_ns, bound(self.destination_address)) as there,
        ):
            return round(statistics.median(_echo(here, there) for _ in range(_ECHOES)))

    def _connect(self, ip: Any, address: str) -> str:
        """Give this end its address; return that of the link layer."""
        device = netns.index(ip, _INTERFACE)
        ip.addr("add", index=device, address=address, prefixlen=_PREFIX_LENGTH)
        ip.link("set", index=device, state="up")
        (link,) = ip.get_links(device)
        return str(link.get_attr("IFLA_ADDRESS"))


def _remove(ip: Any) -> None:
    ip.link("del", index=netns.index(ip, _INTERFACE))


def _set_window(ip: Any, segments: int) -> None:
    """Give the wire's route its initial windows; 0 leaves them to TCP."""
    device = netns.index(ip, _INTERFACE)
    (route,) = ip.get_routes(oif=device, table=_MAIN_TABLE)
    ip.route(
        "replace",
        dst=f"{route.get_attr('RTA_DST')}/{_PREFIX_LENGTH}",
        oif=device,
        scope=_SCOPE_LINK,
        prefsrc=route.get_attr("RTA_PREFSRC"),
        metrics={"initcwnd": segments, "initrwnd": segments},
    )


def _echo(here: socket.socket, there: socket.socket) -> int:
    began = time.monotonic_ns()
    here.sendto(b"?", there.getsockname())
    _, sender = there.recvfrom(1)
    there.sendto(b"!", sender)
    here.recv(1)
    return time.monotonic_ns() - began


def _blast(sender: socket.socket, receiver: socket.socket, opening_s: float) -> float:
    """Bits a second that arrive, from `opening_s` after the first byte on."""
    ended = threading.Event()

    def send() -> None:
        block = bytes(1 << 18)
        while not ended.is_set():
            sender.sendall(block)
        sender.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=send, name="tare-wire-probe")
    thread.start()
    block = bytearray(1 << 20)

    def receive(seconds: float) -> float:
        began = time.monotonic()
        received = 0
        while (passed := time.monotonic() - began) < seconds:
            received += receiver.recv_into(block)
        return received * 8 / passed

    receiver.recv_into(block)
    receive(opening_s)
    rate = receive(_PROBE_S)
    ended.set()
    while receiver.recv_into(block):
        pass
    thread.join()
    return rate
