"""Paths below a folder that is, or will be, a program's root: links lead as they will then.

Who made what is there is a stranger, and somebody may change it meanwhile: nothing leads out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePath

_MOST_LINKS = 40
"""On the way to one path; as the kernel has it."""


def walked(root: Path, path: PurePath, see: Callable[[Path], object] = id) -> Path:
    """Follow a path; return where it ends, by a path below the root that has no links in it.

    Args:
        root: the folder.
        path: absolute or not: it begins there.
        see: is told of each folder, link and file on the way, by such a path, before it is looked
            at; it may make or replace it.

    Raises:
        ValueError: it goes round in links.
    """
    real, waiting, followed = root, list(path.parts), 0
    while waiting:
        name = waiting.pop(0)
        if name.startswith("/"):
            real = root
        elif name == "..":
            real = real if real == root else real.parent
        else:
            here = real / name
            see(here)
            if not here.is_symlink():
                real = here
                continue
            followed += 1
            if followed > _MOST_LINKS:
                raise ValueError(f"{path} goes round in links")
            waiting = [*here.readlink().parts, *waiting]
    return real


def opened(root: Path, path: PurePath, *, file: bool = False) -> int:
    """Open a folder, which is made where it is lacking, as all are that are on the way to it.

    Args:
        root, path: as `walked` takes them.
        file: whether it is a file instead.

    Returns:
        A descriptor. What is done by `/proc/self/fd/N` is done there, whatever has its path.

    Raises:
        OSError: it is none, or became a link meanwhile.
        ValueError: it goes round in links.
    """
    names = walked(root, path).relative_to(root).parts
    found = os.open(root, os.O_PATH | os.O_DIRECTORY)
    for number, name in enumerate(names, start=1):
        above = found
        try:
            found = _below(above, name, folder=not file or number < len(names))
        finally:
            os.close(above)
    return found


def _below(above: int, name: str, *, folder: bool) -> int:
    make = os.mkdir if folder else os.mknod
    try:
        make(name, 0o600, dir_fd=above)
        mode = 0o755 if folder else 0o644  # whatever is masked
    except FileExistsError:
        mode = 0
    kind = os.O_DIRECTORY if folder else 0
    found = os.open(name, os.O_PATH | os.O_NOFOLLOW | kind, dir_fd=above)
    if mode:
        Path(f"/proc/self/fd/{found}").chmod(mode)
    return found
