"""Network namespaces and the limit on a wire: what hosts.py and wire.py are made of."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tare import interrupts
from tare.command import owner_mark, spaces
from tare.errors import TareError, UnavailableError
from tare.pauses import pauses

_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x400454CA, 0x0002, 0x1000, 0x4000
"""Source: linux/if_tun.h."""
_IFF_RUNNING = 0x40
_RUNNING_TIMEOUT_S = 10.0

T = TypeVar("T")


def _pyroute2() -> Any:
    import pyroute2  # noqa: PLC0415 - most commands need no netlink, which is slow to import

    return pyroute2


def make(name: str) -> None:
    """Make a namespace with its loopback up and IPv6, with its background chatter, off.

    Raises:
        UnavailableError: this user or this kernel cannot make it.
    """

    def leave_ours() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no network namespace can be made")
        _pyroute2().netns.attach(name, "thread-self")

    def quieten(ip: Any) -> None:
        for scope in ("all", "default"):
            # Absent where the kernel has no IPv6: then there is nothing to turn off.
            switch = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            if switch.exists():
                switch.write_text("1")
        # Whose it is can then be told where the list that has it is gone.
        alias = f"{owner_mark()} {spaces()}"
        ip.link("set", index=index(ip, "lo"), state="up", ifalias=alias)

    _in_thread(name, leave_ours, quieten)


def enter(name: str) -> None:
    """Have this thread enter a namespace, by name or by path. It has to be there.

    Raises:
        FileNotFoundError: it is not.
    """
    # Without flags pyroute2 makes one that is not there, also where it goes while one looks.
    try:
        _pyroute2().netns.setns(name, flags=0)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "there is no such network namespace", name) from error


def owner(name: str) -> str:
    """The mark of whoever made a namespace, and in which `spaces` it is; empty if it has none.

    Raises:
        UnavailableError: it cannot be entered.
    """
    return str(within(name, lambda ip: ip.get_links(index(ip, "lo"))[0].get("ifalias") or ""))


def dwells_in(name: str) -> Callable[[int], bool]:
    """Tell of a process, by pid, whether it is in a namespace: no daemon overwrites that."""
    of_it = Path("/run/netns", name).stat()

    def dwells(pid: int) -> bool:
        try:
            return os.path.samestat(Path(f"/proc/{pid}/ns/net").stat(), of_it)
        except OSError:  # it has ended, or is another user's
            return False

    return dwells


def open_tap(namespace: str, name: str, *, vnet_header: bool = False) -> int:
    """Open a tap for whoever may not; its frames are read from the descriptor that is returned.

    One that is not there is made, and goes when it is closed.

    Args:
        namespace: that it is in.
        name: of the interface.
        vnet_header: whether frames stand behind a virtio_net_hdr, so that they may be whole.

    Raises:
        UnavailableError: it is open already, or cannot be made.
    """

    def opened(_: Any) -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            flags = _IFF_TAP | _IFF_NO_PI | (_IFF_VNET_HDR if vnet_header else 0)
            fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    return within(namespace, opened)


def limit(ip: Any, device: int, rate_bits_s: int, burst: int = 1024) -> None:
    """Limit what a device sends, by htb: tbf would let pass what fits its bucket, as 64 B do.

    Args:
        ip: netlink in the device's namespace.
        device: its index.
        rate_bits_s: the limit.
        burst: bytes that it lets through at once. A small one delays every packet by its time on
            the wire; timers are late by tens of microseconds, so that a fast wire needs what it
            carries in that time, or never reaches its rate.
    """
    bytes_per_second = rate_bits_s // 8
    ip.tc("add", "htb", device, handle=0x10000, default=1)
    rate = {"rate": bytes_per_second, "burst": burst, "cburst": burst}
    ip.tc("add-class", "htb", device, handle=0x10001, parent=0x10000, **rate)


def introduce(ip: Any, interface: str, address: str, mac: str) -> None:
    """Have a neighbour be known for good, so that nobody asks for it."""
    device = index(ip, interface)
    ip.neigh("replace", dst=address, lladdr=mac, ifindex=device, state="permanent")


def index(ip: Any, interface: str) -> int:
    """Return the number of an interface.

    Raises:
        TareError: there is none of that name.
    """
    found = ip.link_lookup(ifname=interface)
    if not found:
        raise TareError(f"there is no network interface {interface}")
    return int(found[0])


def await_running(ip: Any, device: int) -> None:
    """Return once the kernel counts a device that is up as running, by its index.

    It does so up to a second after both ends are up. Fast DDS passes over one that does not run.

    Raises:
        TareError: it does not come to run.
    """
    looks = pauses(_RUNNING_TIMEOUT_S, longest_s=0.002)
    if not any(ip.get_links(device)[0]["flags"] & _IFF_RUNNING for _ in looks):
        raise TareError(f"the network device {device} does not run, though it is up")


def within(namespace: str, work: Callable[[Any], T]) -> T:
    """Do netlink work inside a namespace.

    Raises:
        UnavailableError: the kernel refused it.
    """
    return _in_thread(namespace, lambda: enter(namespace), work)


def _in_thread(namespace: str, enter: Callable[[], None], work: Callable[[Any], T]) -> T:
    """In a thread that is in the namespace, and then ends.

    pyroute2's own way forks this process, locks and threads and all.
    """
    pyroute2 = _pyroute2()

    def in_it() -> T:
        enter()
        with pyroute2.IPRoute() as ip:
            return work(ip)

    # An interrupt ends the wait and not the thread, which a second one would leave at its work:
    # what it made then would be on nobody's list.
    with (
        interrupts.put_off(),
        ThreadPoolExecutor(max_workers=1, thread_name_prefix="tare-netns") as executor,
    ):
        try:
            return executor.submit(in_it).result()
        except (pyroute2.NetlinkError, OSError) as error:
            raise UnavailableError(
                f"the kernel refused to set up the network in {namespace}: {error}",
                "run as root on a kernel with veth, bridge, tun and htb; see `tare doctor`",
            ) from error
