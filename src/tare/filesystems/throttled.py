"""ext4 on a loop device that the kernel throttles, mounted so that every write is synchronous.

The throttle is the block layer's, by control groups of either version. The first counts what a
process itself submits: buffered writes are submitted by the kernel later and would escape; with
`-o sync` each is submitted within its call. What the journal writes is not throttled.

Of version 2 the controller `io` is handed on by the topmost group. Where it was not, it is from
then on, as where systemd bounds a service's disk: taking it back could free another run's disk.

Source: Documentation/admin-guide/cgroup-v1/blkio-controller.rst and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import bounds, process, rootless
from tare.command import Command, missing_packages
from tare.environments import Availability, Site
from tare.errors import TrialError, remedy_of
from tare.filesystems import Mounted, forget

_PACKAGES = {"mkfs.ext4": "e2fsprogs", "losetup": "mount"}
_IMAGE_BYTES = 4 << 30
"""Sparse: only what is written takes room."""
_OPERATIONS_S = 2000
_BYTES_S = 100 << 20
_TIMEOUT_S = 120.0


class Throttled:
    """A slow disk of known speed: so many operations and bytes a second, each way."""

    def availability(self) -> Availability:
        """Tell whether loop devices and the throttle are here."""
        if not rootless.is_root():
            return Availability(False, "a loop device needs root", "run as root")
        if names := missing_packages(_PACKAGES):
            return Availability(False, f"not installed: {names}", f"apt-get install {names}")
        if not Path("/dev/loop-control").exists():
            return Availability(False, "this kernel has no loop devices", "modprobe loop")
        if _place() is None:
            return Availability(
                False,
                "no control groups that throttle a disk are mounted",
                "mount them: of version 2 with the controller io, or of version 1 with blkio",
            )
        return Availability(True, f"{_OPERATIONS_S} operations and {_BYTES_S >> 20} MiB a second")

    @contextmanager
    def mounted(self, site: Site) -> Iterator[Mounted]:
        """Make, mount and throttle the device.

        Raises:
            TrialError: the kernel refused one of these.
        """
        place = _place()
        if place is None:
            raise TrialError("no control groups that throttle a disk are mounted any more")
        home = site.scratch / "throttled"
        point, image = home / "mount", home / "image"
        group = place.point / f"tare-{site.leftovers.run_id}"
        with ExitStack() as stack:
            stack.enter_context(site.leftovers.owing("directory", str(home)))
            point.mkdir(parents=True)
            with image.open("wb") as file:
                file.truncate(_IMAGE_BYTES)
            process.run(Command(("mkfs.ext4", "-q", "-m", "0", str(image))), _TIMEOUT_S)
            stack.enter_context(site.leftovers.owing("mount", str(point)))
            # The kernel lets go of the loop device with the mount.
            process.run(Command(("mount", "-o", "loop,sync", str(image), str(point))), _TIMEOUT_S)
            device = point.stat().st_dev
            number = f"{os.major(device)}:{os.minor(device)}"
            stack.enter_context(site.leftovers.owing("cgroup", str(group)))
            try:
                group.mkdir()
                for name, value in _settings(place.version, number):
                    (group / name).write_text(value)
            except OSError as error:
                what = f"the kernel throttles no disk for {group}: {error.strerror}"
                raise TrialError(what, remedy_of(error)) from error
            yield _Device(point, group)


def _place() -> bounds.Hierarchy | None:
    """Where a group can throttle a disk."""
    for one in bounds.hierarchies():
        if one.version == 1 and "blkio" in one.controllers:
            return one
        if one.version == 2 and "io" in (one.point / "cgroup.controllers").read_text().split():
            return one
    return None


def _settings(version: int, device: str) -> Iterator[tuple[str, str]]:
    """Name and content of the files that throttle a device, `MAJOR:MINOR`."""
    if version == 2:
        each = (f"{way}iops={_OPERATIONS_S} {way}bps={_BYTES_S}" for way in "rw")
        yield "../cgroup.subtree_control", "+io"
        yield "io.max", f"{device} {' '.join(each)}"
        return
    for way in ("read", "write"):
        yield f"blkio.throttle.{way}_iops_device", f"{device} {_OPERATIONS_S}\n"
        yield f"blkio.throttle.{way}_bps_device", f"{device} {_BYTES_S}\n"


@dataclass
class _Device:
    point: Path
    group: Path

    @property
    def chain(self) -> tuple[str, ...]:
        return ("sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.group / "cgroup.procs"))

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"operations a second": _OPERATIONS_S, "bytes a second": _BYTES_S, "mounted": "sync"}

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        forget(self.point.parent)  # the image too
        yield self.point
