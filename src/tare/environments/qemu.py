"""The server in a guest of QEMU, which sits on the bridge by a tap and has an address of its own.

One boot is one session; each server is a fresh process in it. KVM is used where the guests' kernel
boots with it, else QEMU's translator (TCG), and every result names which.
"""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast

from tare import units
from tare.accounting import Role
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
from tare.environments.scratch_disk import Device, Disk, device_of
from tare.environments.tools import TOOLS, named_in
from tare.errors import TrialError, UnavailableError
from tare.guests import Hardware, Image, Kernel, Machine, Network, machine, probe
from tare.guests.agent import Agent
from tare.guests.image import NFS, PROGRAMS
from tare.guests.probe import Verdict
from tare.hosts import PREFIX_LENGTH, Hosts, Tap
from tare.process import ProcessError

__all__ = ["ENVIRONMENT", "Programs", "Qemu", "role"]

_PACKAGES = {
    machine.PROGRAM: "qemu-system-x86",
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
for module in /{modules}/*.ko; do insmod "$module"; done
mkdir -p /mnt
mount -t nfs4 -o addr={server},clientaddr={address},vers=4.2 {server}:{export} /mnt
losetup {loop} /mnt/disk
"""
_Accel = Literal["auto", "kvm", "tcg"]


@dataclass(frozen=True)
class Qemu:
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
        return for_root(f"{detail}; {self._accelerators()}")

    @contextmanager
    def enter(self, site: Site) -> Iterator[Inside]:
        """Boot a guest on the bridge; the first time, fetch its kernel and pack its image."""
        try:
            kernel = Kernel.fetch(site.cache)
            image = Image.build(kernel, site.programs, site.cache)
            tools = Image.of_tools(TOOLS, site.cache)
            verdict = self._accelerator(kernel, image, site)
        except UnavailableError as error:
            # The experiment goes on without guests, and says so.
            raise TrialError(f"no guest can be made: {error.what}", error.remedy) from error
        hardware = Hardware(verdict.accelerator, self.machine, self.vcpus, self.memory_bytes)
        session = f"qemu-{site.leftovers.run_id}-{secrets.token_hex(2)}"
        with (
            scratch_disk.raw(site) if self.device in ("raw", "loop") else nullcontext() as disk,
            scratch_disk.over_nfs(site) if self.device == "nfs" else nullcontext(),
            site.hosts.tap() as tap,
            Machine(
                hardware,
                kernel,
                image,
                _network(tap, site.hosts),
                name=session,
                logs=site.scratch / "logs",
                tools=tools,
                disk=disk,
                vmm_cpus=site.placement.vmm,
                vcpu_cpus=site.placement.vcpus,
            ) as guest,
        ):
            facts = _facts(guest, kernel, verdict)
            if self.device is not None:
                server = site.hosts.server_address
                facts |= _disk(guest, self.device, tools is not None, tap.address, server).facts()
            yield InsideGuest(
                guest,
                lambda: seen_by_host(guest.pid, tap, role),
                tap.address,
                session,
                facts,
                Programs(guest.agent).resolved,
            )

    def _accelerators(self) -> str:
        if self.accel != "auto":
            return f"{self.accel.upper()} is asked for"
        if not os.access(probe.KVM, os.R_OK | os.W_OK):
            return "TCG: KVM cannot be used here"
        return "KVM if a guest boots with it (tried at the first start), else TCG"

    def _accelerator(self, kernel: Kernel, image: Image, site: Site) -> Verdict:
        if self.accel == "tcg":
            return Verdict("tcg", "asked for")
        verdict = probe.accelerator(kernel, image, site.cache)
        if self.accel == "kvm" and verdict.accelerator != "kvm":
            raise UnavailableError(
                f"KVM is asked for, and does not work here: {verdict.reason}",
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
            modules=NFS, server=server, address=address, export=nfs.EXPORT, loop=_LOOP
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


def _network(tap: Tap, hosts: Hosts) -> Network:
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


def _facts(guest: Machine, kernel: Kernel, verdict: Verdict) -> dict[str, Any]:
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
