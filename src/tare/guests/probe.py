"""Whether KVM runs a guest here. An open `/dev/kvm` does not say: only a boot does.

There are hosts, themselves virtual machines, whose KVM runs small test guests and hangs an ordinary
kernel. So the guests' own kernel is booted under KVM up to its first process, in bounded time. The
verdict is kept for this boot of the host, this kernel and this QEMU.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from tare.command import Command
from tare.errors import TrialError
from tare.guests.cache import workspace
from tare.guests.image import Image
from tare.guests.kernel import Kernel
from tare.guests.machine import PROGRAM, Accelerator, Hardware, command_line, version
from tare.host import Host

KVM = "/dev/kvm"
MARKER = "tare: kernel "
"""What /init prints before it does anything else."""

_BOOT_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Chosen:
    """The accelerator that guests run with here, and why."""

    accelerator: Accelerator
    reason: str


def accelerator(
    host: Host, kernel: Kernel, image: Image, cache: Path, timeout_s: float = _BOOT_TIMEOUT_S
) -> Chosen:
    """Return KVM if this kernel boots with it there, else TCG; from the cache, if it was tried."""
    if not host.may_open(KVM):
        return Chosen("tcg", f"there is no {KVM} that this user may open")
    path = _memory(host, kernel, cache)
    if (known := _remembered(path)) is not None:
        return known
    problem = boots(host, Hardware("kvm"), kernel, image, timeout_s)
    verdict = (
        Chosen("kvm", "the guests' kernel boots with it")
        if problem is None
        else Chosen("tcg", f"{KVM} opens, but Linux {kernel.release} does not boot: {problem}")
    )
    with workspace(path.parent) as scratch:
        written = scratch / path.name
        written.write_text(json.dumps(asdict(verdict)))
        written.replace(path)
    return verdict


def boots(
    host: Host, hardware: Hardware, kernel: Kernel, image: Image, timeout_s: float
) -> str | None:
    """Boot a guest up to its first process, and end it; return what went wrong, None if it came up.

    Args:
        host: where.
        hardware: with the accelerator to be tried.
        kernel: what it boots.
        image: its RAM file system.
        timeout_s: after this it is killed.
    """
    console = host.logs / f"probe-{secrets.token_hex(4)}.console"
    host.write(console, "")
    argv = command_line(
        hardware,
        host.bring(kernel.vmlinuz),
        host.bring(image.path),
        console=console,
        words=("tare.probe",),
    )
    try:
        with host.start(Command(argv)) as qemu:
            qemu.output(timeout_s)
        problem = "it ended without a word"
    except TrialError as error:
        problem = error.what
    return None if MARKER in host.read(console) else problem


def _remembered(path: Path) -> Chosen | None:
    """Return the verdict of an earlier probe, if there was one since that machine started."""
    try:
        found = json.loads(path.read_bytes())
        chosen, reason = found["accelerator"], str(found["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Chosen(chosen, reason) if chosen in ("kvm", "tcg") else None


def _memory(host: Host, kernel: Kernel, cache: Path) -> Path:
    boot = host.read(PurePosixPath("/proc/sys/kernel/random/boot_id")).strip()
    tried = "\n".join((boot, PROGRAM, version(host=host), kernel.root.name))
    return cache / "guests" / "kvm" / f"{hashlib.sha256(tried.encode()).hexdigest()[:32]}.json"
