"""Run one QEMU: its command line, its start with every thread in place, its certain end."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from tare import process
from tare.command import Command
from tare.errors import TrialError
from tare.failures import last_words
from tare.guests import console as consoles
from tare.guests.agent import Agent
from tare.guests.image import Image
from tare.guests.kernel import Kernel
from tare.guests.monitor import Monitor
from tare.guests.virtiofs import Served
from tare.host import Host
from tare.pauses import pauses
from tare.stepwise import Stepwise

PROGRAM = "qemu-system-x86_64"

Accelerator = Literal["kvm", "tcg"]

_ACCELERATORS: dict[Accelerator, str] = {"kvm": "kvm", "tcg": "tcg,thread=multi"}

_KERNEL_WORDS = (
    "console=ttyS0",
    "quiet",
    "panic=-1",  # at once; with -no-reboot QEMU ends, and we see it
    "no_timer_check",  # under emulation the check may find the timer late and give up on it
    "ipv6.disable=1",  # as in the hosts' namespaces: no background chatter
)
# Patience, not an estimate: on a busy machine a boot is slow, and a QEMU that ends is seen at once.
_BOOT_TIMEOUT_S = 180.0
_MONITOR_TIMEOUT_S = 10.0
_QUIT_TIMEOUT_S = 1.0
_END_PATIENCE_S = 0.5


@dataclass(frozen=True)
class Hardware:
    """What a guest is made of.

    Attributes:
        accelerator: KVM, or QEMU's own translator (TCG), one host thread a virtual processor.
        machine: QEMU's machine type.
        vcpus: number of virtual processors.
        memory_bytes: of the guest.
    """

    accelerator: Accelerator
    machine: str = "q35"
    vcpus: int = 1
    memory_bytes: int = 512 << 20


@dataclass(frozen=True)
class Network:
    """How a guest is attached, and what its NIC is given.

    Attributes:
        address: IPv4 address with prefix length, "10.77.0.3/24".
        netns: namespace in which QEMU runs; None is that of whoever starts it.
        tap: name of a tap there; None is QEMU's own user network.
        mac: of the guest's NIC; None leaves it to QEMU.
        neighbours: (address, MAC) of those whom the guest need not ask for.
    """

    address: str
    netns: str | None = None
    tap: str | None = None
    mac: str | None = None
    neighbours: tuple[tuple[str, str], ...] = ()

    def devices(self) -> tuple[str, ...]:
        """QEMU's options for it."""
        backend = f"tap,id=net,ifname={self.tap},script=no,downscript=no,vhost=off"
        nic = "virtio-net-pci,netdev=net,romfile=" + (f",mac={self.mac}" if self.mac else "")
        return ("-netdev", backend if self.tap else "user,id=net", "-device", nic)


def command_line(
    hardware: Hardware,
    kernel: PurePath,
    image: PurePath,
    *,
    console: PurePath,
    words: Sequence[str] = (),
    devices: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return QEMU's arguments for a guest that boots `image`, without anything it does not name.

    Args:
        hardware: what it is made of.
        kernel: what it boots.
        image: its RAM file system.
        console: file that its serial console is written to.
        words: further words of the kernel's command line.
        devices: further options, such as network, monitor and disks.
    """
    return (
        PROGRAM,
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-machine", hardware.machine,
        "-accel", _ACCELERATORS[hardware.accelerator],
        "-cpu", "max",
        "-smp", str(hardware.vcpus),
        "-m", f"{hardware.memory_bytes >> 20}M",
        "-kernel", str(kernel),
        "-initrd", str(image),
        "-append", " ".join((*_KERNEL_WORDS, *words)),
        "-chardev", f"file,id=console,path={_escaped(console)}",
        "-serial", "chardev:console",
        *devices,
    )  # fmt: skip


class Machine(Stepwise):
    """A running QEMU. Entering boots the guest until its agent answers; leaving ends it.

    Args:
        host: that it runs on.
        hardware: what it is made of.
        kernel: what it boots.
        image: its RAM file system.
        network: how it is attached.
        name: of the process, and of its log files.
        tools: an archive that the guest finds as its second disk, or None. The first disk is one of
            QEMU's that takes no time, to tell what a virtio request costs.
        disk: a block device of the host that the guest finds as its last disk, or None.
        tree: a folder that the guest can mount by virtiofs, or an archive that it finds as its last
            disk, or None.
        vmm_cpus: host processors of QEMU's own threads; empty leaves the choice to the kernel.
        vcpu_cpus: of its virtual processors' threads.
    """

    def __init__(
        self,
        host: Host,
        hardware: Hardware,
        kernel: Kernel,
        image: Image,
        network: Network,
        *,
        name: str,
        tools: PurePath | None = None,
        disk: Path | None = None,
        tree: Served | Path | None = None,
        vmm_cpus: Sequence[int] = (),
        vcpu_cpus: Sequence[int] = (),
    ) -> None:
        self.host = host
        self.hardware = hardware
        self.name = name
        self.vcpu_threads: frozenset[int] = frozenset()
        self.machine_type = hardware.machine
        self._boot = (kernel, image, network, tools)
        self._disk = disk
        self._tree = tree
        self._cpus = (tuple(vmm_cpus), tuple(vcpu_cpus))

    @property
    def console(self) -> PurePath:
        """The file there that holds what the guest wrote to its serial console."""
        return self.host.logs / f"{self.name}.console"

    @property
    def pid(self) -> int:
        """QEMU's process."""
        return self._qemu.pid

    def _build(self, stack: ExitStack) -> None:
        """Start QEMU, put its threads in their places, boot.

        Raises:
            TrialError: it did not start, or the guest did not come up; the message holds the
                console's last lines.
        """
        self.host.write(self.console, "")
        qmp = stack.enter_context(Monitor("QEMU's monitor", greets=True))
        channel = stack.enter_context(Monitor("the guest agent", greets=False))
        self._qmp = qmp
        self.agent = Agent(channel)
        command = Command(self._command_line(qmp, channel), netns=self._boot[2].netns)
        passed = [qmp.far.fileno(), channel.far.fileno()]
        if isinstance(self._tree, Served):
            passed.append(self._tree.folder)
        self._qemu = stack.enter_context(self.host.start(command, name=self.name, pass_fds=passed))
        stack.callback(self._quit)
        if isinstance(self._tree, Served):
            stack.enter_context(self._tree.explained())
        with self.explained("while it was started"):
            qmp.connect(_MONITOR_TIMEOUT_S)
            channel.connect(_MONITOR_TIMEOUT_S)
            self._place()
            self.machine_type = str(
                qmp.ask("qom-get", _MONITOR_TIMEOUT_S, path="/machine", property="type")
            ).removesuffix("-machine")
            qmp.ask("cont", _MONITOR_TIMEOUT_S)
        with self.explained("while it booted"):
            self.agent.wait(_BOOT_TIMEOUT_S)

    def tell(self, line: str) -> str:
        """Give a command of QEMU's monitor for humans; return what it says."""
        return str(
            self._qmp.ask("human-monitor-command", _MONITOR_TIMEOUT_S, command_line=line)
        ).strip()

    def explained(self, phase: str) -> AbstractContextManager[None]:
        """Add to an error what is known of the guest: whether QEMU runs, its last words."""
        read = self.host.read
        return consoles.explained(self.name, phase, self._state, lambda: read(self.console))

    def _state(self) -> str:
        """Whether QEMU runs, and what it said; one that has just hung up has a moment to end."""
        lives = all(self._qemu.alive() for _ in pauses(_END_PATIENCE_S))
        state = "QEMU still runs" if lives else "QEMU has ended"
        return state + last_words(self._qemu.stderr())

    def _command_line(self, qmp: Monitor, channel: Monitor) -> tuple[str, ...]:
        kernel, image, network, tools = self._boot
        neighbours = [f"tare.neighbour={address},{mac}" for address, mac in network.neighbours]
        devices = [
            "-name", f"{self.name},debug-threads=on",
            "-S",  # until its threads are in their places
            "-chardev", self.host.line(qmp.far, "qmp"),
            "-mon", "chardev=qmp,mode=control",
            *network.devices(),
            "-device", "virtio-serial-pci",
            "-chardev", self.host.line(channel.far, "agent"),
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            "-blockdev", "null-co,node-name=null,size=1073741824,read-zeroes=off",
            "-device", "virtio-blk-pci,drive=null",
        ]  # fmt: skip
        if tools is not None:
            devices += _archive("tools", tools)
        if self._disk is not None:
            below = {
                "driver": "host_device",
                "node-name": "scratch",
                "filename": str(self._disk),
                "cache": {"direct": True},
            }
            devices += ["-blockdev", json.dumps(below), "-device", "virtio-blk-pci,drive=scratch"]
        if isinstance(self._tree, Served):
            devices += self._tree.devices(self.hardware.memory_bytes)
        elif self._tree is not None:
            devices += _archive("tree", self._tree, read_only=False)
        return command_line(
            self.hardware,
            self.host.bring(kernel.vmlinuz),
            self.host.bring(image.path),
            console=self.console,
            words=(f"tare.address={network.address}", *neighbours),
            devices=devices,
        )

    def _place(self) -> None:
        """Bind every thread; those that QEMU starts later inherit from its main thread."""
        answer = self._qmp.ask("query-cpus-fast", _MONITOR_TIMEOUT_S)
        self.vcpu_threads = frozenset(int(cpu["thread-id"]) for cpu in answer)
        vmm, vcpus = self._cpus
        for thread in self.host.account(self.pid, "vmm").threads:
            if cpus := vcpus if thread.tid in self.vcpu_threads else vmm:
                self.host.bind(thread.tid, cpus)

    def _quit(self) -> None:
        with suppress(TrialError):
            self._qmp.ask("quit", _QUIT_TIMEOUT_S)


def _archive(name: str, path: PurePath, *, read_only: bool = True) -> tuple[str, ...]:
    """QEMU's options for a disk that holds an archive."""
    file = {"driver": "file", "filename": str(path)}
    disk = {"driver": "raw", "node-name": name, "read-only": read_only, "file": file}
    return ("-blockdev", json.dumps(disk), "-device", f"virtio-blk-pci,drive={name}")


def version(program: str = PROGRAM, host: Host | None = None) -> str:
    """Return QEMU's version, such as "7.2.22".

    Args:
        program: its name on PATH, or its path.
        host: where it is; None is here.

    Raises:
        TrialError: it is not there.
    """
    asked = Command((program, "--version"))
    said = host.run(asked, 20) if host else process.run(asked, 10).stdout
    match = re.search(r"version (\S+)", said)
    return match[1] if match else said.strip()


def _escaped(path: PurePath) -> str:
    """Return a path as a value in one of QEMU's option lists, where a comma ends the value."""
    return str(path).replace(",", ",,")
