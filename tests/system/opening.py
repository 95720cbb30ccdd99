"""What a user without rights needs of places that are closed to him, such as /root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from needs import HOME
from tare import mounts


def open_to_users() -> None:
    """Show the checkout and this Python in empty folders that others may enter.

    For a process that has mounts of its own.
    """
    needed = [HOME, Path(sys.prefix), Path(sys.base_prefix)]
    opened = [os.open(path, os.O_PATH) for path in needed]
    for path, there in zip(needed, opened, strict=True):
        above = [folder for folder in reversed(path.parents) if folder.exists()]
        if closed := [folder for folder in above if not folder.stat().st_mode & 1]:
            mounts.mount("none", closed[0], "tmpfs", options="mode=755")
        if not path.exists():
            path.mkdir(parents=True)
            mounts.mount(f"/proc/self/fd/{there}", path, flags=mounts.BIND | mounts.RECURSIVE)
