"""Mounts of this machine: what is mounted, and mounting something."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

# Source: linux/mount.h.
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS = 1, 2, 4, 8
REMOUNT, BIND, MOVE, RECURSIVE, PRIVATE = 32, 4096, 8192, 16384, 1 << 18

_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Mount:
    """One mount of this namespace.

    Attributes:
        point: where it is.
        kind: of file system.
        executable: whether programs on it may be started.
        root: what of that file system is shown there, as a path in it.
        options: of that file system, wherever it is mounted.
    """

    point: Path
    kind: str
    executable: bool
    root: Path
    options: str


def listed() -> list[Mount]:
    """Every mount of this namespace, later ones behind those that they may hide.

    Source: proc(5), /proc/PID/mountinfo: fields 4 to 6, and the first and third behind the dash.
    """
    found = []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        root, point, of_mount = before.split(b" ")[3:6]
        kind, _, options = after.split(b" ")[:3]
        found.append(
            Mount(
                point=Path(_unescaped(point)),
                kind=kind.decode(),
                executable=b"noexec" not in of_mount.split(b","),
                root=Path(_unescaped(root)),
                options=os.fsdecode(options),
            )
        )
    return found


def within(folder: Path) -> list[Path]:
    """Every mount point in a folder: deleting through one would delete what it shows."""
    real = folder.resolve()
    return [one.point for one in listed() if one.point.is_relative_to(real)]


def kind_at(path: Path) -> str:
    """The kind of file system that a path lies on; "unknown" where its mount is out of sight."""
    real = path.resolve()
    kind, depth = "unknown", 0
    for one in listed():
        # The longest on its way; of equal ones the last, which hides the others.
        if real.is_relative_to(one.point) and len(one.point.parts) >= depth:
            kind, depth = one.kind, len(one.point.parts)
    return kind


def mount(
    source: str | Path, point: Path, kind: str | None = None, flags: int = 0, options: str = ""
) -> None:
    """Have something mounted, as the manual has it in section 2.

    Raises:
        OSError: the kernel refuses it.
    """
    done = _LIBC.mount(
        os.fsencode(source),
        os.fsencode(point),
        None if kind is None else kind.encode(),
        ctypes.c_ulong(flags),
        os.fsencode(options),
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(point))


def _unescaped(text: bytes) -> str:
    for character in b" \t\n\\":
        text = text.replace(b"\\%03o" % character, bytes([character]))
    return os.fsdecode(text)
