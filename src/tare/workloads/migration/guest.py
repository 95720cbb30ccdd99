"""One QEMU of the testbed: a guest that boots, or a place that awaits a migration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare import process
from tare.command import Command
from tare.errors import TrialError
from tare.failures import last_words
from tare.guests import console as consoles
from tare.guests.machine import Accelerator, Hardware, command_line
from tare.guests.monitor import Event, Monitor
from tare.host import end_of
from tare.pauses import pauses
from tare.stepwise import Stepwise
from tare.workloads.migration import usage
from tare.workloads.migration.hypervisor import Hypervisor

_READY = "tare: ready"
_FAILED = "tare: failed"
_ASK_TIMEOUT_S = 60.0
"""A monitor shares QEMU's one lock with a guest that is emulated, on a machine that is busy."""
_QUIT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Blueprint:
    """What a guest is made of, the same for all of a testbed.

    Attributes:
        hypervisor: the QEMU that runs it, at the source and at the destination.
        kernel, initrd: what it boots.
        disk: whether its root file system is on a disk.
        accelerator: KVM, or QEMU's translator (TCG).
        memory_bytes: of the guest.
    """

    hypervisor: Hypervisor
    kernel: Path
    initrd: Path
    disk: bool
    accelerator: Accelerator
    memory_bytes: int


@dataclass(frozen=True)
class Nic:
    """A guest's NIC: the open tap that it is attached to, and its address of the link layer."""

    tap: int
    mac: str


class Guest(Stepwise):
    """A running QEMU; leaving ends it.

    Args:
        blueprint: what it is made of.
        name: of process and log files.
        netns: the host that it is on.
        logs: directory for the console and QEMU's own output.
        folder: that it works in, from which sockets are named: no path to one may be longer than
            107 bytes.
        role: `boot`, or `await` a migration: it does not run by itself then.
        prealloc: whether its memory is there before it is written to.
        disk: the layer that it writes to, if the blueprint has a disk.
        nic: None for a guest without network.
        words: of the kernel's command line.
        cpus: processors that it may use.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        name: str,
        netns: str,
        logs: Path,
        folder: Path,
        role: Literal["boot", "await"],
        prealloc: bool = False,
        disk: Path | None = None,
        nic: Nic | None = None,
        words: Sequence[str] = (),
        cpus: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.netns = netns
        self.words = tuple(words)
        self.console = logs / f"{name}.console"
        self._blueprint = blueprint
        self._role = role
        self._prealloc = prealloc
        self._disk = disk
        self._nic = nic
        self._logs = logs
        self._folder = folder
        self._cpus = tuple(cpus)

    @property
    def pid(self) -> int:
        """QEMU's process."""
        return self._qemu.pid

    def _build(self, stack: ExitStack) -> None:
        """Start QEMU; a guest that boots has only begun to.

        Raises:
            TrialError: it did not start; the message holds what QEMU said.
        """
        self._logs.mkdir(parents=True, exist_ok=True)
        self._qmp = stack.enter_context(Monitor(f"QEMU ({self.name})", greets=True))
        descriptors = [self._qmp.far.fileno()]
        if self._nic is not None:
            descriptors.append(self._nic.tap)
        command = Command(self._command_line(), netns=self.netns, cpus=self._cpus, cwd=self._folder)
        self._qemu = stack.enter_context(
            process.start(command, log_dir=self._logs, name=self.name, pass_fds=descriptors)
        )
        stack.callback(self._quit)
        try:
            self._qmp.connect(_ASK_TIMEOUT_S)
            self.vcpus = frozenset(int(c["thread-id"]) for c in self.ask("query-cpus-fast"))
        except TrialError as error:
            raise TrialError(f"{error.what}{self._last_words()}", error.remedy) from error

    def ask(self, command: str, **arguments: object) -> Any:
        """Run a monitor command and return its answer.

        Raises:
            TrialError: it was refused, or nobody answered.
        """
        return self._qmp.ask(command, _ASK_TIMEOUT_S, **arguments)

    def event(self, timeout_s: float) -> Event | None:
        """Return the monitor's next event; None if none comes in time."""
        return self._qmp.event(timeout_s)

    def forget_events(self) -> None:
        """Drop the events that have come."""
        while self._qmp.event(0.001) is not None:
            pass

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the guest says on its console that everything is up.

        Raises:
            TrialError: it did not in time, or it says that it failed.
        """
        for _ in pauses(timeout_s):
            if _READY in (said := end_of(self.console)):
                return
            if _FAILED in said or not self._qemu.alive():
                break
        shown = " | ".join(consoles.causes_and_tail(said))
        what = f"the guest {self.name} did not come up within {timeout_s:g} s"
        raise TrialError(f"{what}; its console ends: {shown}{self._last_words()}")

    def wait_state(self, *states: str, timeout_s: float) -> None:
        """Wait until QEMU is in one of these run states."""
        for _ in pauses(timeout_s):
            if (found := self.ask("query-status")["status"]) in states:
                return
        wanted = " or ".join(states)
        raise TrialError(f"QEMU ({self.name}) is {found} after {timeout_s:g} s, not {wanted}")

    def allow(self, capabilities: dict[str, bool], parameters: dict[str, object]) -> None:
        """Set migration capabilities and parameters, all of them anew."""
        listed = [{"capability": name, "state": state} for name, state in capabilities.items()]
        self.ask("migrate-set-capabilities", capabilities=listed)
        if parameters:
            self.ask("migrate-set-parameters", **parameters)

    def vcpu_ns(self) -> int:
        """Processor time that the guest's own threads have used."""
        return sum(usage.thread_ns(self.pid, tid) or 0 for tid in self.vcpus)

    def _command_line(self) -> tuple[str, ...]:
        made = self._blueprint
        memory: dict[str, object] = {
            "qom-type": "memory-backend-ram",
            "id": "pc.ram",
            "size": made.memory_bytes,
            "prealloc": self._prealloc,
        }
        devices = [
            "-name", f"{self.name},debug-threads=on",
            "-object", json.dumps(memory),
            "-chardev", f"socket,id=qmp,fd={self._qmp.far.fileno()}",
            "-mon", "chardev=qmp,mode=control",
            "-device", "virtio-rng-pci",
        ]  # fmt: skip
        if self._disk is not None:
            file = {"driver": "file", "filename": str(self._disk)}
            devices += [
                "-blockdev",
                json.dumps({"driver": "qcow2", "node-name": "disk", "file": file}),
            ]
            devices += ["-device", "virtio-blk-pci,drive=disk"]
        if self._nic is not None:
            devices += ["-netdev", f"tap,id=net,fd={self._nic.tap},vhost=off"]
            devices += ["-device", f"virtio-net-pci,netdev=net,mac={self._nic.mac},romfile="]
        if self._role == "await":
            devices += ["-S", "-incoming", "defer"]
        _, *options = command_line(
            Hardware(made.accelerator, "q35,memory-backend=pc.ram", memory_bytes=made.memory_bytes),
            made.kernel,
            made.initrd,
            console=self.console,
            words=(*(["root=/dev/vda", "rw"] if made.disk else []), *self.words),
            devices=devices,
        )
        return (made.hypervisor.program, *made.hypervisor.options, *options)

    def _last_words(self) -> str:
        return last_words(self._qemu.stderr())

    def _quit(self) -> None:
        with suppress(TrialError):  # it may have ended by itself
            self._qmp.ask("quit", _QUIT_TIMEOUT_S)
