"""The server in a guest of QEMU.

On this machine it sits on the bridge by a tap and has an address of its own; on another it has that
machine's own address.

One boot is one session; each server is a fresh process in it. KVM is used where the guests' kernel
boots with it, else QEMU's translator (TCG), and every result names which.
"""

from __future__ import annotations

import itertools
import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tare import accounting, rootless, transports, units
from tare.accounting import Account, Role
from tare.command import missing_packages
from tare.environments import (
    Availability,
    Inside,
    Row,
    Site,
    for_root,
    nfs,
    scratch_disk,
)
from tare.environments.in_guest import InsideGuest, seen_by_host
from tare.environments.on_host import OnAnyHost
from tare.environments.scratch_disk import Device, Disk, device_of
from tare.environments.tree_in_guest import brought, shown
from tare.errors import TrialError, UnavailableError
from tare.guests import Hardware, Image, Kernel, Machine, Network, machine, probe
from tare.guests.agent import Agent
from tare.guests.image import NFS, PROGRAMS, loading
from tare.guests.machine import PROGRAM
from tare.guests.probe import Chosen
from tare.guests.virtiofs import Served
from tare.host import Host, require
from tare.hosts import PREFIX_LENGTH, Hosts, Tap
from tare.process import ProcessError
from tare.tools import TOOLS, named_in
from tare.trees.merged import laid_out

_PACKAGES = {
    PROGRAM: "qemu-system-x86",
    "busybox": "busybox-static",
    "qemu-ga": "qemu-guest-agent",
    "cpio": "cpio",
    "strip": "binutils",
}
_UNPACK_TOOLS = "cd / && cpio -idm </dev/vdb"
_UNPACK_TIMEOUT_S = 60.0
_LOOP = "/dev/loop0"
_LOSETUP_TIMEOUT_S = 60.0
_MOUNT_NFS = """
set -e
{load}
mkdir -p /mnt
mount -t nfs4 -o addr={server},clientaddr={address},vers=4.2 {server}:{export} /mnt
losetup {loop} /mnt/disk
"""
_GATEWAY = "10.0.2.2"
_GATEWAY_MAC = "52:55:0a:00:02:02"
"""The user network's own, of the 10.0.2.0/24 that it has by default."""
_ROUTE = f"""
ip route add {_GATEWAY} dev eth0 && arp -s {_GATEWAY} {_GATEWAY_MAC} &&
ip route add default via {_GATEWAY} dev eth0
"""
_Accel = Literal["auto", "kvm", "tcg"]


@dataclass(frozen=True)
class Qemu(OnAnyHost):
    """A guest of QEMU.

    Attributes:
        accel: "auto" is KVM where the boot probe passes, else TCG.
        machine: QEMU's machine type.
        vcpus: number of virtual processors.
        memory_bytes: of the guest.
        device: a disk to be measured, if one is asked for.
    """

    accel: _Accel = "auto"
    machine: str = "q35"
    vcpus: int = 1
    memory_bytes: int = 512 << 20
    device: Device | None = None
    name = "qemu"
    row = Row(
        "QEMU guest",
        "in the QEMU guest",
        own_kernel=True,
        setup_s=3.5,
        session_s=0.5,
        request_s=500e-6,
    )
    needs = (PROGRAM, "qemu-system-x86")

    def with_options(self, plot: Mapping[str, str]) -> Qemu:
        """The guest that a plot asks for."""
        return Qemu(
            accel=cast("_Accel", plot.get("accelerator", self.accel)),
            machine=plot.get("machine", self.machine),
            vcpus=int(plot.get("vcpus", self.vcpus)),
            memory_bytes=units.size(plot.get("memory", f"{self.memory_bytes} B")),
            device=device_of(plot),
        )

    def availability(self) -> Availability:
        """Tell whether QEMU and what a guest is made of are here. It boots nothing."""
        if names := missing_packages(_PACKAGES):
            return Availability(False, f"not installed: {names}", f"apt-get install {names}")
        if platform.machine() != "x86_64":
            return Availability(False, f"guests are x86-64; this machine is {platform.machine()}")
        try:
            detail = f"QEMU {machine.version()}"
        except ProcessError as error:
            return Availability(False, str(error), error.remedy)
        if rootless.is_on() and not os.access("/dev/net/tun", os.W_OK):
            return Availability(False, "/dev/net/tun is not for this user", "run as root")
        return for_root(f"{detail}; {self._accelerators()}", also_rootless=True)

    @contextmanager
    def on(self, site: Site, host: Host) -> Iterator[Inside]:
        """Boot a guest there; the first time, fetch its kernel and pack its image."""
        require(host, *self.needs, "guest")
        try:
            kernel = Kernel.fetch(site.cache)
            image = Image.build(kernel, site.programs, site.cache)
            tools = Image.of_tools(TOOLS, site.cache)
            verdict = self._accelerator(host, kernel, image, site)
        except UnavailableError as error:
            # The experiment goes on without guests, and says so.
            raise TrialError(f"no guest can be made: {error.what}", error.remedy) from error
        session = f"qemu-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        on_bridge = nullcontext() if host.far else site.hosts.tap()
        with (
            scratch_disk.raw(site) if self.device in ("raw", "loop") else nullcontext() as disk,
            scratch_disk.over_nfs(site) if self.device == "nfs" else nullcontext(),
            on_bridge as tap,
            laid_out(site) as merged,
            brought(site, merged, session, self.memory_bytes) if merged else nullcontext() as files,
        ):
            archive, bring_tools = host.bring_later(tools.path) if tools else (None, _nothing)
            with Machine(
                host,
                Hardware(verdict.accelerator, self.machine, self.vcpus, self.memory_bytes),
                kernel,
                image,
                _by_tap(tap, site.hosts) if tap else _by_port(host),
                name=session,
                tools=archive,
                disk=disk,
                tree=files,
                vmm_cpus=site.placement.vmm,
                vcpu_cpus=site.placement.vcpus,
            ) as guest:
                facts = _facts(guest, kernel, verdict)
                programs = Programs(guest.agent, bring_tools)
                if tap is None:
                    _find_a_way_out(guest)
                    programs = _ByPort(guest, bring_tools)
                    facts |= {
                        **host.facts,
                        "kernel": kernel.release,
                        "host_kernel": host.facts["kernel"],
                        "machine_type": guest.machine_type,
                        "network": "QEMU's user network (slirp), which passes single ports on",
                    }
                elif self.device is not None:
                    server = site.hosts.server_address
                    has_tools = tools is not None
                    facts |= _disk(guest, self.device, has_tools, tap.address, server).facts()
                disk_of_files = "/dev/vdc" if tools else "/dev/vdb"
                with (
                    shown(guest.agent, merged, files, disk_of_files)
                    if merged and files
                    else nullcontext("") as by
                ):
                    yield InsideGuest(
                        guest,
                        lambda: _on_host(guest, tap, files),
                        tap.address if tap else host.address,
                        session,
                        facts | (merged.facts(by) if merged else {}),
                        programs.resolved,
                        host.kernel_account,
                        merged,
                    )

    def _accelerators(self) -> str:
        if self.accel != "auto":
            return f"{self.accel.upper()} is asked for"
        if not os.access(probe.KVM, os.R_OK | os.W_OK):
            return "TCG: KVM cannot be used here"
        return "KVM if a guest boots with it (tried at the first start), else TCG"

    def _accelerator(self, host: Host, kernel: Kernel, image: Image, site: Site) -> Chosen:
        if self.accel == "tcg":
            return Chosen("tcg", "asked for")
        verdict = probe.accelerator(host, kernel, image, site.cache)
        if self.accel == "kvm" and verdict.accelerator != "kvm":
            raise TrialError(
                f"KVM is asked for, and does not work on {host.name}: {verdict.reason}",
                "leave the choice to Tare (auto), which then takes TCG and says so",
            )
        return verdict


ENVIRONMENT = Qemu()


class Programs:
    """What is in a guest's image, and the tools, unpacked from its second disk when one is named.

    Most guests never need them, and they are larger than all the rest.

    Args:
        agent: the guest's.
        before: called once, before they are unpacked.
    """

    def __init__(self, agent: Agent, before: Callable[[], None] = lambda: None) -> None:
        self._agent = agent
        self._before = before
        self._has_tools = False

    def resolved(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Find argv[0]: a path below the build directory, or by its bare name a tool."""
        if not self._has_tools and named_in(argv):
            self._before()
            unpacked = self._agent.run(["/bin/sh", "-c", _UNPACK_TOOLS], _UNPACK_TIMEOUT_S)
            if unpacked.code != 0:
                raise TrialError(f"cannot unpack the tools in the guest: {unpacked.stderr.strip()}")
            self._has_tools = True
        return (str(PROGRAMS / argv[0]) if "/" in argv[0] else argv[0], *argv[1:])


def _on_host(guest: Machine, tap: Tap | None, files: Served | Path | None) -> Account:
    """Snapshot a guest on its host, with who serves its files."""
    account = seen_by_host(guest.host, guest.pid, role, tap)
    serving = [guest.host.account(files.running.pid, "vmm")] if isinstance(files, Served) else []
    return accounting.combined(account, *serving)


def _disk(
    guest: Machine,
    device: Device,
    has_tools: bool,
    address: str,
    server: str,
) -> Disk:
    """Set up the device that is asked for in a guest that has the scratch disk as its last."""
    path = "/dev/vdc" if has_tools else "/dev/vdb"
    if device == "raw":
        return Disk(path, "virtio-blk on the host's scratch disk, past the host's page cache")
    script = f"losetup {_LOOP} {path}"
    described = f"a loop device on {path}, through the guest's page cache of that"
    if device == "nfs":
        script = _MOUNT_NFS.format(
            load=loading(NFS), server=server, address=address, export=nfs.EXPORT, loop=_LOOP
        )
        described = (
            "a loop device on a file over NFS 4 from the host, through the page caches of the guest"
            " and, at the server, of the host"
        )
    done = guest.agent.run(["/bin/sh", "-c", script], _LOSETUP_TIMEOUT_S)
    if done.code != 0:
        raise TrialError(f"cannot set up the {device} device: {done.stderr.strip()}")
    return Disk(_LOOP, described)


def role(thread: str) -> Role:
    """Tell a thread's role by the name that QEMU gives it: "CPU 0/TCG", "CPU 1/KVM"."""
    return "vcpu" if thread.startswith("CPU ") else "vmm"


class _ByPort(Programs):
    """Of a guest whose ports its host passes on: with the first program of ours they are opened.

    Not before, since two guests of one machine would want the same.
    """

    def __init__(self, guest: Machine, before: Callable[[], None]) -> None:
        super().__init__(guest.agent, before)
        self._guest = guest
        self._open = False

    def resolved(self, argv: Sequence[str]) -> tuple[str, ...]:
        """See that what is started can be reached, and find argv[0].

        Raises:
            TrialError: it cannot.
        """
        host = self._guest.host
        if by_kernel := transports.answered_by_kernel(argv[0]):
            raise TrialError(
                f"{by_kernel.words} is answered by {host.name} itself, not by the guest on it",
                "take a transport with ports, such as udp",
            )
        if argv[0].startswith("echo/") and not self._open:
            for kind, port in itertools.product(("udp", "tcp"), transports.ports()):
                forward = f"{kind}:{host.address}:{port}-{host.address}:{port}"
                if said := self._guest.tell(f"hostfwd_add net {forward}"):
                    raise TrialError(f"QEMU on {host.name} does not pass {forward} on: {said}")
            self._open = True
        return super().resolved(argv)


def _nothing() -> None:
    pass


def _by_port(host: Host) -> Network:
    """The host's own address, by QEMU's user network.

    No bridge, tap or route of ours is made on a machine that is not ours, and no privileges are
    needed there. What comes to one of the transports' ports is handed on to the guest; whatever
    else (ICMP too) the machine answers by itself. That is part of what is measured.
    """
    if host.address.startswith("127."):
        raise TrialError(
            f"{host.name} is reached over a loopback, which a guest has for itself",
            "name the machine by its address on a network",
        )
    return Network(f"{host.address}/32")


def _find_a_way_out(guest: Machine) -> None:
    done = guest.agent.run(["/bin/sh", "-c", _ROUTE], _LOSETUP_TIMEOUT_S)
    if done.code != 0:
        raise TrialError(f"the guest has no way out: {done.stderr.strip()}")


def _by_tap(tap: Tap, hosts: Hosts) -> Network:
    return Network(
        netns=tap.netns,
        tap=tap.name,
        mac=tap.mac,
        address=f"{tap.address}/{PREFIX_LENGTH}",
        neighbours=(
            (hosts.client_address, hosts.client_mac),
            (hosts.server_address, hosts.server_mac),
        ),
    )


def _facts(guest: Machine, kernel: Kernel, verdict: Chosen) -> dict[str, Any]:
    clock = guest.agent.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return {
        "accelerator": verdict.accelerator,
        "accelerator_reason": verdict.reason,
        "qemu": machine.version(),
        "machine": guest.machine_type,
        "vcpus": guest.hardware.vcpus,
        "memory_bytes": guest.hardware.memory_bytes,
        "kernel": kernel.release,
        "kernel_package": kernel.version,
        "clocksource": clock.decode(errors="replace").strip(),
        "network": "virtio-net on a tap, without vhost",
        "null_disk": "/dev/vda",
    }
