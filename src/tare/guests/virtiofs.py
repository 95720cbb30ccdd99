"""A folder of the host, shared with a guest of QEMU by virtiofs.

virtiofsd has the rights of a user, not root's: whatever a guest asks for, even one that its own
root has lost, the host's kernel lets it see what that user may see. From Debian 13 on it is a
package of its own. Debian 12's is QEMU's: it changes its root and drops its capabilities before it
serves, and drops the groups of the user beyond the first too, so that a guest sees no file that
only one of these may read.

The guest keeps what it has read (`cache=always`): nobody else writes there while it runs, and with
`auto` each opening of a file drops its pages, so that every start of a program reads it again.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tare import process
from tare.command import Command
from tare.errors import TrialError
from tare.site import Site
from tare.tree import User

TAG = "tree"
"""By which the guest mounts it."""

_NEWER = Path("/usr/libexec/virtiofsd")
_OLDER = Path("/usr/lib/qemu/virtiofsd")
_NO_CAPABILITIES = "modcaps=-chown:-dac_override:-fowner:-fsetid:-mknod:-setfcap:-setgid:-setuid"
_FEWER_GROUPS = ", of the user's groups with the first alone"
_SOCKET = "socket"


@dataclass(frozen=True)
class Served:
    """A folder that waits for its guest.

    Attributes:
        pid: of who serves it.
        folder: an open descriptor of the folder that has the socket, for QEMU.
        by: through what files come into the guest, in words.
    """

    pid: int
    folder: int
    by: str

    def devices(self, memory_bytes: int) -> tuple[str, ...]:
        """QEMU's options, with the guest's memory, which both must see."""
        return (
            # By the descriptor: no path to a socket may be longer than 107 bytes.
            "-chardev", f"socket,id={TAG},path=/proc/self/fd/{self.folder}/{_SOCKET}",
            "-device", f"vhost-user-fs-pci,chardev={TAG},tag={TAG}",
            "-object", f"memory-backend-memfd,id=memory,size={memory_bytes},share=on",
            "-machine", "memory-backend=memory",
        )  # fmt: skip


@contextmanager
def served(site: Site, shared: Path, user: User, name: str) -> Iterator[Served]:
    """Serve a folder as long as the context lasts.

    Args:
        site: whose scratch folder and processors are used.
        shared: which, of this machine.
        user: whose rights it is served with.
        name: of the process's log, and of a folder of its own.

    Raises:
        TrialError: no virtiofsd is installed.
    """
    folder = site.scratch / name
    with ExitStack() as stack:
        stack.enter_context(site.leftovers.owing("directory", str(folder)))
        folder.mkdir(mode=0o700)
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(f"/proc/self/fd/{descriptor}/{_SOCKET}")
        listening.listen(1)
        words = (_newer if _NEWER.exists() else _older)(shared, listening.fileno(), user)
        command = Command(words, cpus=site.placement.vmm)
        running = process.start(
            command, log_dir=site.scratch / "logs", name=name, pass_fds=(listening.fileno(),)
        )
        all_groups = _NEWER.exists() or not {*user.groups} - {user.gid}
        by = "virtiofs over an overlay" + (_FEWER_GROUPS if not all_groups else "")
        yield Served(stack.enter_context(running).pid, descriptor, by)


def _newer(shared: Path, listening: int, user: User) -> tuple[str, ...]:
    return (
        *user.takes_on(),
        str(_NEWER), f"--fd={listening}", f"--shared-dir={shared}", "--sandbox=none",
        "--cache=always", "--posix-acl",
    )  # fmt: skip


def _older(shared: Path, listening: int, user: User) -> tuple[str, ...]:
    if not _OLDER.exists():
        raise TrialError("there is no virtiofsd for a guest's files", "apt-get install virtiofsd")
    options = [f"source={shared}", "sandbox=chroot", "cache=always", "xattr", "posix_acl"]
    if user.uid == 0:
        before = ("mknod", "sys_chroot")
    else:
        before = ("setpcap", "sys_chroot")
        options.append(_NO_CAPABILITIES)
    takes_on = replace(user, groups=()).takes_on(before)
    return (*takes_on, str(_OLDER), "-f", f"--fd={listening}", "-o", ",".join(options))
