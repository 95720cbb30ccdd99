"""Guests for QEMU: the kernel and image they boot, the machine they run on, and talking to them.

`kernel` fetches Debian's cloud kernel; `image` packs it a RAM file system of the very programs that
the host runs; `probe` asks whether KVM boots it; `machine` runs QEMU; `agent` runs commands inside.
docs/design/guests.md says why it is done this way.
"""

from __future__ import annotations

from tare.guests.image import Image
from tare.guests.kernel import Kernel
from tare.guests.machine import Hardware, Machine, Network

__all__ = ["Hardware", "Image", "Kernel", "Machine", "Network"]
