"""A disk of a run's own, to be measured: a loop device on a file of the run, past the page cache.

A machine's real disks hold what somebody needs, and many cannot be opened at all; a loop device
with direct I/O passes every request on to the file system that its file is on. The file is filled,
since holes would be answered without a disk. It lies in the run's folder, or, where that is in
memory (Debian 13's /tmp), in /var/tmp.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from tare import mounts, process
from tare.command import Command
from tare.environments import Availability, Site, nfs
from tare.errors import TrialError

Device = Literal["raw", "loop", "nfs"]
"""What a workload may ask for: the disk itself, a loop device on it, one on a file over NFS."""

NO_NFS = Availability(
    False,
    "a device over NFS is mounted in guests only: the host may have no NFS client",
    "measure it with `environment: qemu`",
)
"""What an environment on the host's own kernel says of it."""

SIZE_BYTES = 256 << 20
_CHUNK = 1 << 20
_TIMEOUT_S = 30.0
_ON_DISK = Path("/var/tmp")  # noqa: S108 - names of a run's own, in which a stranger finds no file
_IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class Disk:
    """What an environment offers to be measured."""

    path: str
    """Of the device, inside."""
    described: str
    """What lies below it, and through whose page caches a buffered request goes."""

    def facts(self) -> dict[str, str]:
        """Return it as an environment's facts."""
        return {"disk": self.path, "disk_is": self.described}


def device_of(plot: Mapping[str, str]) -> Device | None:
    """The device that a plot asks for; None where its workload knows no disks."""
    found = plot.get("device")
    return None if found is None else cast("Device", found)


def folder_for(scratch: Path) -> Path:
    """Where what is to be a disk lies: with a run's other files, unless these are in memory."""
    return _ON_DISK if is_in_memory(scratch) and not is_in_memory(_ON_DISK) else scratch


def is_in_memory(folder: Path) -> bool:
    """Whether what lies in a folder is on no disk."""
    return mounts.kind_at(folder) in _IN_MEMORY


@contextmanager
def on_host(site: Site, device: Device | None) -> Iterator[Disk | None]:
    """Make what is asked for on the host itself; None where nothing is.

    Raises:
        TrialError: it cannot be had on the host.
    """
    if device is None:
        yield None
        return
    if device == "nfs":
        raise TrialError(NO_NFS.detail, NO_NFS.remedy)
    with raw(site) as below:
        if device == "raw":
            kind = mounts.kind_at(folder_for(site.scratch))
            yield Disk(
                str(below), f"a loop device with direct I/O, {SIZE_BYTES >> 20} MiB on {kind}"
            )
            return
        with _looped(site, below) as path:
            yield Disk(
                str(path), "a loop device on the raw device, through the raw device's page cache"
            )


@contextmanager
def over_nfs(site: Site) -> Iterator[None]:
    """Serve a folder with a file `disk`, as large as the scratch disk, over NFS.

    Raises:
        TrialError: there is no room for it, or no server.
    """
    folder = folder_for(site.scratch) / f"tare-exported-{secrets.token_hex(4)}"
    with site.leftovers.owing("directory", str(folder)):
        folder.mkdir()
        try:
            _fill(folder / "disk")
        except OSError as error:
            raise TrialError(f"cannot make a file for NFS in {folder}: {error.strerror}") from error
        with nfs.serving(site, folder):
            yield


@contextmanager
def raw(site: Site) -> Iterator[Path]:
    """Make the disk; yields its device on the host.

    Raises:
        TrialError: there is no room for it, or there are no loop devices.
    """
    image = folder_for(site.scratch) / f"tare-disk-{secrets.token_hex(4)}"
    with site.leftovers.owing("file", str(image)):
        try:
            _fill(image)
        except OSError as error:
            raise TrialError(f"cannot make a scratch disk {image}: {error.strerror}") from error
        with _looped(site, image, direct=True) as device:
            yield device


@contextmanager
def _looped(site: Site, below: Path, *, direct: bool = False) -> Iterator[Path]:
    """Make a loop device on a file or on another device; yields its path.

    Args:
        site: whose list it goes on.
        below: what it is on.
        direct: past the page cache of what it is on.
    """
    options = ("--direct-io=on",) if direct else ()
    with site.leftovers.owing("loop", str(below)):
        said = process.run(
            Command(("losetup", "--find", "--show", *options, str(below))), _TIMEOUT_S
        )
        yield Path(said.stdout.strip())


def _fill(image: Path) -> None:
    with image.open("xb") as file:
        for _ in range(SIZE_BYTES // _CHUNK):
            file.write(os.urandom(_CHUNK))
        file.flush()
        os.fsync(file.fileno())
