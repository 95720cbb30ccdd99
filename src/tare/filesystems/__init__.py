"""Slow file systems to measure parallel I/O on: one file a kind, one small protocol.

`fresh` mounts a file system anew, with nothing of its files cached: what is read is read cold, and
no trial finds what another left in a cache.

    with named("glusterfs").mounted(site) as mounted:
        with mounted.fresh() as folder: ...   # bring the input
        with mounted.fresh() as folder: ...   # measure
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from tare.environments import Availability, Site
from tare.errors import TrialError, UsageError
from tare.pauses import pauses

__all__ = ["NAMES", "FileSystem", "Mounted", "forget", "level", "named", "wait_until"]

NAMES = ("glusterfs", "throttled", "tmpfs")
"""Every file system of this version that Tare makes itself, the slowest first."""

FOLDER = "folder"
"""The kind that is there already: its level goes on with a path, as `folder /lustre/me`."""


class Mounted(Protocol):
    """A file system that is up."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the report must name: version, limits, what lies beneath."""
        ...

    @property
    def chain(self) -> tuple[str, ...]:
        """Words before a command line whose I/O this is to slow down; mostly none."""
        ...

    def fresh(self) -> AbstractContextManager[Path]:
        """Mount it with nothing cached; yields a folder to work in. Its files stay."""
        ...


class FileSystem(Protocol):
    """One kind of file system. Constructed without effects."""

    def availability(self) -> Availability:
        """Tell whether it runs here, and if not, why. Cheap."""
        ...

    def mounted(self, site: Site) -> AbstractContextManager[Mounted]:
        """Make it; leaving removes it with all its files."""
        ...


def level(written: object) -> str:
    """Read a level of the factor `filesystem`; return its one canonical text.

    Raises:
        UsageError: it names no file system.
    """
    text = " ".join(str(written).split())
    kind, _, path = text.partition(" ")
    # As a path has to be to stand on the list of what is to be undone.
    plain = path.startswith("/") and path.isprintable() and ".." not in Path(path).parts
    if text in NAMES or (kind == FOLDER and plain):
        return text
    raise UsageError(
        f"{text!r} is not one of {', '.join(NAMES)}, nor `{FOLDER} /path` on one that is there,"
        " a plain path without .."
    )


def named(written: str) -> FileSystem:
    """Return the file system that a canonical level names."""
    from tare.filesystems.folder import Folder  # noqa: PLC0415 - they import this module
    from tare.filesystems.glusterfs import GlusterFs  # noqa: PLC0415
    from tare.filesystems.throttled import Throttled  # noqa: PLC0415

    kind, _, path = written.partition(" ")
    if kind == FOLDER:
        return Folder(Path(path))
    if kind == "tmpfs":
        return Folder(Path("/dev/shm"))  # noqa: S108 - this is what /dev/shm is for
    return GlusterFs() if kind == "glusterfs" else Throttled()


def forget(folder: Path) -> None:
    """Write every file below a folder out, and have the kernel forget what it cached of them.

    Nobody else's files are touched, and no privilege is needed.
    """
    for path in folder.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def wait_until(ready: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Look again and again until something is so.

    Raises:
        TrialError: it was not so in time.
    """
    if not any(ready() for _ in pauses(timeout_s)):
        raise TrialError(f"{what} was not there within {timeout_s:g} s")
