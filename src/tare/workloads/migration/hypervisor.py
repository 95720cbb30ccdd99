"""Which QEMU the testbed's guests run on.

Before 9.0 QEMU loses writes of a guest that migrates under TCG. As it takes the dirty bits over it
leaves the translator's TLB as it is, so that a page whose entry is there already is written to
without being marked again, and arrives as it was before (upstream: "system/physmem: Fix migration
dirty bitmap coherency with TCG memory access"). KVM tracks writes by itself. docs/migration.md says
how often that happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tare.errors import UnavailableError
from tare.guests.machine import PROGRAM, Accelerator, version

_SOUND_UNDER_TCG = 9
"""The first major version that loses no write."""
_FIRMWARE = "/usr/share/seabios"
"""Debian's, which a QEMU that is only unpacked does not find by itself."""


@dataclass(frozen=True)
class Hypervisor:
    """A QEMU.

    Attributes:
        program: its name on PATH, or its path.
        version: as it says itself, "10.0.2".
        options: what it must be given wherever it lies.
    """

    program: str
    version: str
    options: tuple[str, ...] = ()

    def sound_under(self, accelerator: Accelerator) -> bool:
        """Whether a guest that migrates keeps what it writes."""
        major = self.version.split(".")[0]
        return accelerator == "kvm" or (major.isdecimal() and int(major) >= _SOUND_UNDER_TCG)


def choose(accelerator: Accelerator, programs: Path) -> Hypervisor:
    """Return the installed QEMU, or if it would lose writes the one that `make setup` unpacked.

    Args:
        accelerator: what the guests run with.
        programs: the build directory.

    Raises:
        UnavailableError: there is none that keeps what a migrating guest writes.
    """
    installed = Hypervisor(PROGRAM, version())
    if installed.sound_under(accelerator):
        return installed
    unpacked = programs / "qemu-newer" / "root" / "usr" / "bin" / PROGRAM
    if unpacked.exists():
        newer = Hypervisor(str(unpacked), version(str(unpacked)), ("-L", _FIRMWARE))
        if newer.sound_under(accelerator):
            return newer
    raise UnavailableError(
        f"QEMU {installed.version} loses what a guest writes while it migrates under TCG",
        f"run `setup/qemu-newer {programs / 'qemu-newer'}`, or install QEMU {_SOUND_UNDER_TCG}.0 or"
        " later",
    )
