"""ext4 on a loop device that the kernel throttles, mounted so that every write is synchronous.

The throttle is the block layer's (cgroup v1, blkio), which counts what a process itself submits.
Buffered writes are submitted by the kernel later and would escape; with `-o sync` each is submitted
within its call. What the journal writes is not throttled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare import process, rootless
from tare.command import Command, missing_packages
from tare.environments import Availability, Site
from tare.filesystems import Mounted, forget

_CONTROLLER = Path("/sys/fs/cgroup/blkio")
_PACKAGES = {"cgexec": "cgroup-tools", "mkfs.ext4": "e2fsprogs", "losetup": "mount"}
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
        if not (_CONTROLLER / "cgroup.procs").exists():
            return Availability(
                False,
                "the blkio controller of cgroup v1 is not mounted",
                f"mount it, {_CONTROLLER}",
            )
        return Availability(True, f"{_OPERATIONS_S} operations and {_BYTES_S >> 20} MiB a second")

    @contextmanager
    def mounted(self, site: Site) -> Iterator[Mounted]:
        """Make, mount and throttle the device.

        Raises:
            TrialError: the kernel refused one of these.
        """
        home = site.scratch / "throttled"
        point, image = home / "mount", home / "image"
        group = _CONTROLLER / f"tare-{site.leftovers.run_id}"
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
            group.mkdir()
            for way in ("read", "write"):
                (group / f"blkio.throttle.{way}_iops_device").write_text(
                    f"{number} {_OPERATIONS_S}\n"
                )
                (group / f"blkio.throttle.{way}_bps_device").write_text(f"{number} {_BYTES_S}\n")
            yield _Device(point, group.name)


@dataclass
class _Device:
    point: Path
    group: str

    @property
    def chain(self) -> tuple[str, ...]:
        return ("cgexec", "-g", f"blkio:{self.group}")

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"operations a second": _OPERATIONS_S, "bytes a second": _BYTES_S, "mounted": "sync"}

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        forget(self.point.parent)  # the image too
        yield self.point
