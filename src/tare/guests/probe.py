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
from tare.guests.image import Image
from tare.guests.kernel import Kernel
from tare.guests.machine import PROGRAM, Accelerator, Hardware, command_line, version

__all__ = ["KVM", "Verdict", "accelerator", "remembered"]

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
    known = remembered(kernel, cache)
    if known is not None:
        return known
    verdict = _boot(kernel, image, timeout_s)
    path = _memory(kernel, cache)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        json.dump(asdict(verdict), file)
    Path(file.name).replace(path)
    return verdict


def remembered(kernel: Kernel, cache: Path) -> Verdict | None:
    """Return the verdict of an earlier probe, if there was one since this machine started."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return Verdict("tcg", _no_device())
    try:
        found = json.loads(_memory(kernel, cache).read_bytes())
        chosen, reason = found["accelerator"], str(found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Verdict(chosen, reason) if chosen in ("kvm", "tcg") else None


def _boot(kernel: Kernel, image: Image, timeout_s: float) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="tare-kvm-") as scratch:
        console = Path(scratch) / "console"
        hardware = Hardware("kvm")
        argv = command_line(hardware, kernel, image, console=console, words=("tare.probe",))
        try:
            with process.start(Command(argv)) as qemu:
                qemu.finish(timeout_s)
            problem = "ended without a word"
        except process.ProcessError as error:
            hung = f"hung: nothing within {timeout_s:g} s"
            problem = hung if error.kind == "timeout" else f"failed: {error.what}"
        said = console.read_bytes() if console.exists() else b""
    if MARKER in said:
        return Verdict("kvm", "the guest's kernel boots with KVM")
    return Verdict("tcg", f"{KVM} opens, but a boot of Linux {kernel.release} with it {problem}")


def _memory(kernel: Kernel, cache: Path) -> Path:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    tried = "\n".join((boot, PROGRAM, version(), kernel.root.name))
    return cache / "guests" / "kvm" / f"{hashlib.sha256(tried.encode()).hexdigest()[:32]}.json"


def _no_device() -> str:
    if not KVM.exists():
        return f"there is no {KVM}"
    return f"this user may not open {KVM} (group kvm)"
