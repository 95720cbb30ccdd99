"""A user's tree in a guest: how its files come there, and how what is kept comes back.

User-Mode Linux sees the host's files by hostfs, QEMU's guests by virtiofs. Copied files come as an
archive, which is a file of hostfs or a disk, and which in the end takes what is to be kept.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from tare.environments import Site
from tare.errors import TrialError
from tare.guests import virtiofs
from tare.guests.agent import Agent
from tare.guests.image import VIRTIOFS, loading
from tare.guests.virtiofs import TAG, Served
from tare.trees import kept
from tare.trees.merged import Merged

TREE = "/tree"
"""Where a guest has it; programs take it for their root."""

_BY_ARCHIVE = "an archive in the guest's memory"
_MEMORY = f"mount -t tmpfs -o nosuid,nodev,mode=755,size=90% tmpfs {TREE}"
_VIRTIOFS = f"""
{loading(VIRTIOFS)}
mount -t virtiofs {TAG} {TREE}
"""
_HOSTFS = "/archive"
_MOUNT_HOSTFS = "LIBMOUNT_FORCE_MOUNT2=always mount -t hostfs"
"""From 2.39 on mount takes the kernel's new calls, by which hostfs (6.12) has other options."""
_TIMEOUT_S = 600.0


@contextmanager
def shown_by_hostfs(agent: Agent, merged: Merged) -> Iterator[str]:
    """Have a tree in a User-Mode Linux; yields by what its files come there, in words."""
    if merged.tree.files == "shared":
        _mount(agent, f"{_MOUNT_HOSTFS} -o {shlex.quote(str(merged.root))} none {TREE}")
        yield f"hostfs over {merged.by}"
        _write_out(agent, merged)
        return
    archive = merged.root.parent / "files.tar"
    merged.archive().rename(archive)
    seen = f"mkdir {_HOSTFS}; {_MOUNT_HOSTFS} -o {shlex.quote(str(archive.parent))} none {_HOSTFS}"
    where = f"{_HOSTFS}/{archive.name}"
    _mount(agent, f"{seen}; {_MEMORY}; tar -xpf {where} -C {TREE}")
    yield _BY_ARCHIVE
    _return(agent, merged, where, archive)


@contextmanager
def brought(site: Site, merged: Merged, session: str, memory_bytes: int) -> Iterator[Served | Path]:
    """Have a tree where a guest of QEMU can be given it: served, or in an archive for a disk.

    Args:
        site: whose tree it is.
        merged: the tree.
        session: names what serves it.
        memory_bytes: of the guest; as much as it can give back.
    """
    if merged.tree.files == "shared":
        with virtiofs.served(site, merged.root, merged.tree.user, f"{session}-files") as served:
            yield served
        return
    archive = merged.archive()
    if merged.tree.keep:
        os.truncate(archive, max(archive.stat().st_size, memory_bytes))
    yield archive


@contextmanager
def shown(agent: Agent, merged: Merged, source: Served | Path, disk: str) -> Iterator[str]:
    """Have a tree in a guest of QEMU; yields by what its files come there, in words.

    Args:
        agent: of the guest.
        merged: the tree.
        source: as `brought` yields it.
        disk: that holds the archive.
    """
    if isinstance(source, Served):
        _mount(agent, _VIRTIOFS)
        yield source.by
        _write_out(agent, merged)
        return
    _mount(agent, f"{_MEMORY}; tar -xf {disk} -C {TREE}")
    yield _BY_ARCHIVE
    _return(agent, merged, disk, source)


def _mount(agent: Agent, mounting: str) -> None:
    """Have the tree there, and in it what tells of the guest's kernel."""
    script = resources.files("tare").joinpath("guests", "tree.sh").read_text(encoding="utf-8")
    _do(agent, f"set -e\nmkdir {TREE}\n{mounting}\n{script}", "the guest cannot see the file tree")


def _write_out(agent: Agent, merged: Merged) -> None:
    """See that the host has what the guest's kernel holds back, if it is asked for."""
    if merged.tree.keep:
        _do(agent, "sync", "the guest cannot write out its files")


def _return(agent: Agent, merged: Merged, where: str, archive: Path) -> None:
    """Have what is to be kept put into the archive, and from there into the tree on the host."""
    if not merged.tree.keep:
        return
    names = " ".join(shlex.quote(f".{path}") for path in merged.tree.keep)
    _do(agent, f"tar -cf {where} -C {TREE} {names} && sync", "the guest cannot give back its files")
    returned = archive.rename(merged.scratch / "returned.tar")
    if returned.is_symlink() or not returned.is_file():
        raise TrialError("the guest's files were taken away on the host", "see who did")
    kept.unpack(merged.tree, merged.root, merged.tool, returned)


def _do(agent: Agent, script: str, failure: str) -> None:
    done = agent.run(["/bin/sh", "-c", script], _TIMEOUT_S)
    if done.code != 0:
        raise TrialError(f"{failure}: {done.stderr.strip()}")
