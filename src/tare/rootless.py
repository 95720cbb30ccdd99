"""Rootless: who is not root measures as root of a user namespace of his own, which goes with Tare.

What the kernel then allows are namespaces, mounts and links of his own, in which environments are
made. What it refuses, `LACKS` says.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path

import platformdirs

from tare import homes, mounts
from tare.errors import UnavailableError

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
"""Source: linux/sched.h."""
LACKS = "no real-time priorities, control groups, loop devices, tracing, or rights of others"
_RUN, _OWN = Path("/run"), Path("/proc/self")
STARTED_AS = os.geteuid()
"""The user that this process began as."""


def is_on() -> bool:
    """Whether root here is a user elsewhere."""
    return os.geteuid() != STARTED_AS


def is_root() -> bool:
    """Whether this is root of the whole machine."""
    return os.geteuid() == 0 and not is_on()


def enter() -> None:
    """Become root of a new user namespace, with mounts of its own and a /run that can be written.

    Does nothing for root, nor where this machine lets no user have one. While the process has one
    thread: the kernel asks for that.

    Raises:
        UnavailableError: there is one, but nothing may be done in it, as AppArmor has it on Ubuntu;
            or there is no place for the list of what a run makes.
    """
    if os.geteuid() == 0:
        return
    user, group = os.geteuid(), os.getegid()
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER | _NEW_MOUNTS) != 0:
        return
    lists = platformdirs.user_state_path("tare") / "left"
    try:
        (_OWN / "setgroups").write_text("deny")  # else no group may be mapped: user_namespaces(7)
        (_OWN / "gid_map").write_text(f"0 {group} 1")
        (_OWN / "uid_map").write_text(f"0 {user} 1")
        _own_run(lists)
    except OSError as error:
        raise UnavailableError(
            f"user {user} may do nothing in a user namespace: {error}",
            "run as root, or allow it (kernel.apparmor_restrict_unprivileged_userns=0)",
        ) from error


def _own_run(lists: Path) -> None:
    """Show what is in /run in a folder of ours, where names of namespaces can be added.

    Args:
        lists: of what dead runs of this user left, to be shown as /run/tare.
    """
    homes.made(lists, "where a run says what it makes", "XDG_STATE_HOME")
    shown = {there.name: there for there in _RUN.iterdir() if there.name != "netns"}
    # By a descriptor: it may lie in the folder that is covered.
    shown["tare"] = _OWN / "fd" / str(os.open(lists, os.O_PATH | os.O_CLOEXEC))
    ours = Path(tempfile.gettempdir())  # which is covered until that is moved
    mounts.mount("none", Path("/"), flags=mounts.RECURSIVE | mounts.PRIVATE)
    mounts.mount("tare", ours, "tmpfs", options="mode=755")
    for name, there in shown.items():
        here = ours / name
        if there.is_symlink() and there.parent == _RUN:
            here.symlink_to(there.readlink())
        elif there.is_dir():
            here.mkdir()
            mounts.mount(there, here, flags=mounts.BIND | mounts.RECURSIVE)
    mounts.mount(ours, _RUN, flags=mounts.MOVE)
