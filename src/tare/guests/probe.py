"""Whether KVM runs a guest here. An open `/dev/kvm` does not say: only a boot does.

There are hosts, themselves virtual machines, whose KVM runs small test guests and hangs an ordinary
kernel. So the guests' own kernel is booted under KVM up to its first process, in bounded time. The
verdict is kept for this boot of the host, this kernel and this QEMU.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tare import process
from tare.command import Command
from tare.guests.cache import workspace
from tare.guests.image import Image
from tare.guests.kernel import Kernel
from tare.guests.machine import PROGRAM, Accelerator, Hardware, command_line, version

__all__ = ["KVM", "Verdict", "accelerator", "boots"]

KVM = Path("/dev/kvm")
MARKER = b"tare: kernel "
"""What /init prints before it does anything else."""

_BOOT_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Verdict:
    """The accelerator that guests run with here, and why."""

    accelerator: Accelerator
    reason: str


def accelerator(
    kernel: Kernel, image: Image, cache: Path, timeout_s: float = _BOOT_TIMEOUT_S
) -> Verdict:
    """Return KVM if this kernel boots with it, else TCG; from the cache, if it has been tried."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return Verdict("tcg", _no_device())
    known = _remembered(kernel, cache)
    if known is not None:
        return known
    problem = boots(Hardware("kvm"), kernel, image, timeout_s)
    verdict = (
        Verdict("kvm", "the guests' kernel boots with it")
        if problem is None
        else Verdict("tcg", f"{KVM} opens, but Linux {kernel.release} does not boot: {problem}")
    )
    path = _memory(kernel, cache)
    with workspace(path.parent) as scratch:
        written = scratch / path.name
        written.write_text(json.dumps(asdict(verdict)))
        written.replace(path)
    return verdict


def _remembered(kernel: Kernel, cache: Path) -> Verdict | None:
    """Return the verdict of an earlier probe, if there was one since this machine started."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return Verdict("tcg", _no_device())
    try:
        found = json.loads(_memory(kernel, cache).read_bytes())
        chosen, reason = found["accelerator"], str(found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Verdict(chosen, reason) if chosen in ("kvm", "tcg") else None


def boots(hardware: Hardware, kernel: Kernel, image: Image, timeout_s: float) -> str | None:
    """Boot a guest up to its first process, and end it; return what went wrong, None if it came up.

    Args:
        hardware: with the accelerator to be tried.
        kernel: what it boots.
        image: its RAM file system.
        timeout_s: after this it is killed.
    """
    with tempfile.TemporaryDirectory(prefix="tare-probe-") as scratch:
        console = Path(scratch) / "console"
        argv = command_line(hardware, kernel, image, console=console, words=("tare.probe",))
        try:
            with process.start(Command(argv)) as qemu:
                qemu.finish(timeout_s)
            problem = "it ended without a word"
        except process.ProcessError as error:
            hung = f"it hung: nothing within {timeout_s:g} s"
            problem = hung if error.kind == "timeout" else str(error)
        said = console.read_bytes() if console.exists() else b""
    return None if MARKER in said else problem


def _memory(kernel: Kernel, cache: Path) -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    tried = "\n".join((boot, PROGRAM, version(), kernel.root.name))
    return cache / "guests" / "kvm" / f"{hashlib.sha256(tried.encode()).hexdigest()[:32]}.json"


def _no_device() -> str:
    if not KVM.exists():
        return f"there is no {KVM}"
    return f"this user may not open {KVM} (group kvm)"
