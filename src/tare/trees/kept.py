"""What a user's program wrote, brought back to the host: the paths that were asked for, no others.

It is copied with the user's rights, by a process that has the tree for its root: what the program
left there cannot lead anybody elsewhere, and nothing is overwritten that the user could not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tare import mounts, process
from tare.command import Command, Tool
from tare.errors import TrialError
from tare.tree import OWN, Tree
from tare.trees.allowed import allowed
from tare.trees.entering import entering, fed

_KEPT = f"{OWN}/kept"
"""Folder of a tree below which the folders of the host show that something is copied into."""

_TIMEOUT_S = 600.0
_REMEDY = "see that the program makes it, and that its user may write there"


def prepare(tree: Tree, own: Path) -> None:
    """Make what the folders are mounted on.

    Args:
        tree: which.
        own: its `OWN`, while it can be written to.
    """
    for number in range(len(tree.keep)):
        (own / Path(_KEPT).name / str(number)).mkdir(parents=True)


def bring_back(tree: Tree, root: Path, tool: Tool) -> None:
    """Copy what is to be kept of a tree to the same paths of the host.

    Args:
        tree: which.
        root: the folder that shows it.
        tool: how a program of the system is started in it.

    Raises:
        TrialError: it is not there, or the user may not write where it is to go.
    """
    for number, kept in enumerate(map(Path, tree.keep)):
        seen = f"{_KEPT}/{number}"
        if not allowed(tree.user, "-w", f"{kept.parent}/."):
            what = f"cannot bring {kept} back to the host: its user may not write to {kept.parent}"
            raise TrialError(what, _REMEDY)
        mounts.mount(kept.parent, root / seen[1:], flags=mounts.BIND)
        copy = (*tool("cp"), "--archive", "--no-target-directory", "--")
        words = (*copy, str(kept), f"{seen}/{kept.name}")
        _run(kept, entering(tree.user, root, tool), words)


def unpack(tree: Tree, root: Path, tool: Tool, archive: Path) -> None:
    """Put what a guest had in its memory into the tree, so that it can be brought back from there.

    Args:
        tree, root, tool: as `bring_back`.
        archive: that the guest wrote; it is unpacked with the user's rights, in the tree.
    """
    words = (*tool("tar"), "--extract", "--preserve-permissions", "--file=-")
    _run(archive, (*fed(archive), *entering(tree.user, root, tool)), words)


def _run(kept: Path, before: Sequence[str], words: Sequence[str]) -> None:
    try:
        process.run(Command((*before, *words)), _TIMEOUT_S)
    except process.ProcessError as error:
        raise TrialError(
            f"cannot bring {kept} back to the host: {error}",
            _REMEDY,
        ) from error
