"""How a process of root's comes into a tree, with its user's rights there."""

from __future__ import annotations

import sys
from pathlib import Path

from tare.command import Tool
from tare.tree import CAPABILITIES, User

_DROPPING = """
import ctypes, os, sys
prctl, root, program = ctypes.CDLL(None).prctl, *sys.argv[1:3]
try:
    os.chroot(root)
    os.chdir("/")
    if prctl(24, 18, 0, 0, 0) == 0:  # PR_CAPBSET_DROP, CAP_SYS_CHROOT
        os.execvpe(program, sys.argv[2:], os.environ)
except OSError as error:
    os.write(2, f"{program}: {error.strerror}\\n".encode())
os._exit(127)
"""
"""`chroot`, and no way to another root any more; source: linux/prctl.h, linux/capability.h."""


def entering(user: User, root: Path, tool: Tool) -> tuple[str, ...]:
    """Words that start a program with a user's rights and with a folder for its root.

    Whatever starts in a tree obeys it: its `/etc/ld.so.preload` names code that runs with the
    rights of that moment. So nothing starts there with more than a program of that user may keep.

    Args:
        user: whose rights.
        root: the folder.
        tool: how a program of the system is started in there.
    """
    bounding = ",".join(f"+{name}" for name in (*CAPABILITIES, "sys_chroot"))
    setpriv = ("setpriv", "--inh-caps=-all", f"--bounding-set=-all,{bounding}", "--no-new-privs")
    if user.uid == 0:
        within, *options = user.takes_on()
        dropping = (sys.executable, "-ISc", _DROPPING, str(root))
        return (*setpriv, "--", *dropping, *tool(within), *options)
    return (
        # By numbers with a sign, for which nobody looks into the tree's /etc.
        *setpriv, "--", "chroot", f"--userspec=+{user.uid}:+{user.gid}",
        f"--groups={','.join(f'+{group}' for group in user.groups)}", str(root),
        # Again, since the kernel forgets it when the user changes.
        *tool("setpriv"), "--pdeathsig", "KILL", "--",
    )  # fmt: skip


def fed(file: Path) -> tuple[str, ...]:
    """Words that start a program with a file for its input, which it could not open where it is."""
    return ("sh", "-c", 'exec "$@" <"$0"', str(file))
