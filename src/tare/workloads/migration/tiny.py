"""A guest that boots in seconds: a kernel, a shell and memory, for quick looks and for tests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tare.errors import UnavailableError
from tare.guests import Image
from tare.guests.image import Entry

BUSYBOX = Path("/bin/busybox")
_ALIKE_BYTES = 16 << 20
"""What every guest has."""
_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /dev /own
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs own /own
exec </dev/ttyS0 >/dev/ttyS0 2>&1
/bin/busybox dd if=/dev/urandom of=/own/data bs=1M count=16 2>/dev/null
echo "tare: ready"
while :; do /bin/busybox sleep 1000; done
"""


def pack(cache: Path) -> Image:
    """Return its RAM file system, from the cache if it is there.

    Raises:
        UnavailableError: busybox is not installed.
    """
    if not BUSYBOX.exists():
        raise UnavailableError(f"{BUSYBOX} is missing", "install the Debian package busybox-static")
    entries = (
        Entry("bin/busybox", BUSYBOX),
        Entry("init", content=_INIT.encode()),
        Entry("alike", content=_alike()),
    )
    return Image.pack(entries, cache)


def _alike() -> bytes:
    """Bytes that do not compress, the same each time."""
    return hashlib.shake_128(b"tare: alike in every guest").digest(_ALIKE_BYTES)
