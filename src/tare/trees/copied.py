"""What of the host a program needs, copied into a tree: it, its libraries, its inputs.

A program's libraries are those that its loader names (`ldd`), the loader among them; a script's
are its interpreter's. What a program only opens while it runs (a locale, a module of an
interpreter) is an input, which somebody has to declare.

Everything is looked for and read with the user's own rights.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tare import process
from tare.command import PATH, Command
from tare.errors import TrialError, UnavailableError
from tare.guests.image import libraries_in
from tare.tree import Tree

_ALWAYS = (
    "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/passwd", "/etc/resolv.conf", "/etc/services",
)  # fmt: skip
"""Small files of the system that a C library looks into for any program."""

_LOCALE = "/usr/lib/locale/C.utf8"
"""That of every program's environment (`command.py`); some refuse to start without it."""

_FOLDERS = {"dev": 0o755, "proc": 0o755, "run": 0o755, "sys": 0o755, "tmp": 0o1777}
_TIMEOUT_S = 600.0
_MOST_LINKS = 40
"""On the way to one path; as the kernel has it."""
_LONGEST_LINE = 256
"""Of a script's first: as the kernel reads it."""


def copy(tree: Tree, root: Path, archive: Path) -> None:
    """Copy what a tree has to hold into a folder, with its owners and modes.

    Args:
        tree: what it is.
        root: the folder, which is empty.
        archive: a path in a folder that is the user's; what is there goes again.

    Raises:
        TrialError: something is not there, may not be read by the user, or finds no room.
    """
    for name, mode in _FOLDERS.items():
        (root / name).mkdir()
        (root / name).chmod(mode)
    if tree.root != Path("/"):
        _run(("cp", "--archive", "--no-target-directory", str(tree.root), str(root)))
        found: list[Path] = []
    else:
        found = [*_closure(tree), *(Path(path) for path in _ALWAYS if Path(path).exists())]
    inputs = [
        *tree.inputs,
        *([_LOCALE] if tree.root == Path("/") and Path(_LOCALE).is_dir() else []),
    ]
    single = _with_ways([*found, Path(tree.cwd), *map(Path, inputs)])
    lists = archive.with_suffix(".single"), archive.with_suffix(".whole")
    # Of the inputs by their real paths, lest anything is unpacked through a link.
    whole = [Path(os.path.realpath(path)) for path in inputs]
    for path, names in zip(lists, (single, whole), strict=True):
        path.write_bytes(b"".join(os.fsencode(name)[1:] + b"\0" for name in names))
        path.chmod(0o644)
    _run(
        (
            *tree.user.takes_on(),
            "tar", "--create", "--sparse", f"--file={archive}", "--directory=/", "--null",
            "--verbatim-files-from", "--no-recursion", f"--files-from={lists[0]}",
            "--recursion", f"--files-from={lists[1]}",
        )
    )  # fmt: skip
    _run(
        ("tar", "--extract", "--preserve-permissions", "--same-owner", "--numeric-owner",
         f"--file={archive}", f"--directory={root}")
    )  # fmt: skip
    for path in (archive, *lists):
        path.unlink()


def _closure(tree: Tree) -> list[Path]:
    """Every program, and what starts it."""
    waiting = [_found(tree, name) for name in tree.programs]
    found: dict[Path, None] = {}
    while waiting:
        program = waiting.pop()
        if program in found:
            continue
        found[program] = None
        if interpreted := _interpreter(program):
            waiting += [_found(tree, name) for name in interpreted]
            continue
        words = (*tree.user.takes_on(), "ldd", str(program))
        # Exit code 1: it is static, which is fine.
        listing = process.run(Command(words), _TIMEOUT_S, accept=(0, 1)).stdout
        try:
            found |= dict.fromkeys(libraries_in(listing))
        except UnavailableError as error:
            raise TrialError(error.what, error.remedy) from error
    return list(found)


def _found(tree: Tree, name: str) -> Path:
    path = shutil.which(name, path=PATH)
    if path is None:
        raise TrialError(f"there is no program {name} to be copied", "name it by its path")
    return Path(tree.cwd, path)


def _interpreter(program: Path) -> list[str]:
    """The programs that a script's first line names; none where it is no script."""
    with program.open("rb") as file:
        line = file.read(_LONGEST_LINE).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return []
    words = shlex.split(os.fsdecode(line[2:]))
    by_name = words[:1] != [] and Path(words[0]).name == "env"
    return words[:2] if by_name and len(words) > 1 else words[:1]


def _with_ways(paths: Iterable[Path]) -> list[Path]:
    """Every folder, link and file on the way to some paths, each by a path without links."""
    found: dict[Path, None] = {}
    for path in paths:
        real, waiting, followed = Path("/"), list(path.parts[1:]), 0
        while waiting:
            name = waiting.pop(0)
            if name == "..":
                real = real.parent
                continue
            here = real / name
            found[here] = None
            if here.is_symlink() and followed < _MOST_LINKS:
                followed += 1
                target = here.readlink()
                real = Path("/") if target.is_absolute() else real
                waiting = [*target.parts[target.is_absolute() :], *waiting]
            else:
                real = here
    return list(found)


def _run(words: Sequence[str]) -> None:
    process.run(Command(tuple(words)), _TIMEOUT_S)
