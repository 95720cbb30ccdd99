"""What of the host a program needs, copied into a tree: it, its libraries, its inputs.

A program's libraries are those that its loader names (`ldd`), the loader among them; a script's
are its interpreter's. What a program only opens while it runs (a locale, a module of an
interpreter) is an input, which somebody has to declare.

Everything is looked for and read with the user's own rights.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tare import mounts, process
from tare.command import Command, Tool
from tare.errors import TrialError, UnavailableError
from tare.failures import ProcessError
from tare.guests.image import libraries_in
from tare.tree import Tree
from tare.trees.entering import fed
from tare.trees.walk import walked

_ALWAYS = (
    "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/passwd", "/etc/resolv.conf", "/etc/services",
)  # fmt: skip
"""Small files of the system that a C library looks into for any program."""

_LOCALE = "/usr/lib/locale/C.utf8"
"""That of every program's environment (`command.py`); some refuse to start without it."""

_TIMEOUT_S = 600.0
_CHANGED = 1
"""tar's exit code where something was another than it had been told, and nothing else."""
_LONGEST_LINE = 256
"""Of a script's first: as the kernel reads it."""


def copy_root(source: Path, root: Path) -> None:
    """Copy a root of the user's own into an empty folder, with its owners and modes."""
    _run(("cp", "--archive", "--no-target-directory", str(source), str(root)))


def copy(tree: Tree, root: Path, own: Path, tool: Tool, scratch: Path) -> None:
    """Copy what a tree has to hold beside its root, with its owners and modes.

    Args:
        tree: what it is.
        root: the folder that shows it.
        own: its `OWN`, which is read-only, with a folder `tree` and a link to itself.
        tool: how a program of the system is started in it.
        scratch: a folder of root's; what is written there goes again.

    Raises:
        TrialError: something is not there, may not be read by the user, or finds no room.
    """
    found: list[Path] = []
    if tree.root == Path("/"):
        found = [*_closure(tree), *(Path(path) for path in _ALWAYS if Path(path).exists())]
    inputs = [
        *tree.inputs,
        *([_LOCALE] if tree.root == Path("/") and Path(_LOCALE).is_dir() else []),
    ]
    single = _with_ways([*found, Path(tree.cwd), *map(Path, inputs)])
    # Of the inputs by their real paths, lest anything is unpacked through a link.
    whole = [Path(os.path.realpath(path)) for path in inputs]
    paths = [scratch / name for name in ("archive", "single", "whole")]
    for path, names in zip(paths, ([], single, whole), strict=True):
        path.write_bytes(b"".join(os.fsencode(name)[1:] + b"\0" for name in names))
        os.chown(path, tree.user.uid, -1)
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        # By descriptors: the user may not pass the folder.
        archive, *lists = (f"/proc/self/fd/{file.fileno()}" for file in files)
        words = (
            *tree.user.takes_on(),
            "tar", "--create", "--sparse", f"--file={archive}", "--directory=/", "--null",
            "--verbatim-files-from", "--no-recursion", f"--files-from={lists[0]}",
            "--recursion", f"--files-from={lists[1]}",
        )  # fmt: skip
        passed = [file.fileno() for file in files]
        packing = process.start(Command(words), log_dir=scratch, name="tar", pass_fds=passed)
        with packing as running:
            try:
                running.output(_TIMEOUT_S)
            except ProcessError as error:
                if error.code != _CHANGED or not _only_folders_changed(running.stderr()):
                    raise
    # From where links of an image's lead to nothing that can be written to, nor has it a say.
    point = own / "tree"
    mounts.mount(root, point, flags=mounts.BIND)
    _run(
        (*fed(paths[0]), "chroot", str(own), *tool("tar"), "--extract", "--preserve-permissions",
         "--same-owner", "--numeric-owner", "--file=-", f"--directory=/{point.name}")
    )  # fmt: skip
    _run(("umount", str(point)))
    for path in paths:
        path.unlink()


def _only_folders_changed(complaints: str) -> bool:
    """Whether tar saw nothing but folders change, as `/tmp` always does: they are there."""
    changed = re.compile(r"tar: (.*): file changed as we read it")
    found = [changed.fullmatch(line) for line in complaints.splitlines()]
    return all(match and Path("/", match[1]).is_dir() for match in found)


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
    path = shutil.which(name, path=tree.path)
    if path is None:
        raise TrialError(f"there is no program {name} to be copied", "name it by its path")
    return Path(tree.cwd, path)


def _interpreter(program: Path) -> list[str]:
    """The programs that a script's first line names; none where it is no script."""
    with program.open("rb") as file:
        line = file.read(_LONGEST_LINE).partition(b"\n")[0]
    if not line.startswith(b"#!"):
        return []
    # The kernel takes it for a program and one word; that, `env -S` splits.
    words = os.fsdecode(line[2:]).split(maxsplit=1)
    if len(words) > 1 and Path(words[0]).name == "env":
        said = words[1].removeprefix("-S").split()
        named = [word for word in said if not word.startswith("-") and "=" not in word]
        return [words[0], *named[:1]]
    return words[:1]


def _with_ways(paths: Iterable[Path]) -> list[Path]:
    """Every folder, link and file on the way to some paths, each by a path without links."""
    found: dict[Path, None] = {}
    for path in paths:
        walked(Path("/"), path, found.setdefault)
    return list(found)


def _run(words: Sequence[str]) -> None:
    process.run(Command(tuple(words)), _TIMEOUT_S)
