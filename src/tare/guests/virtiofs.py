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
from tare.failures import last_words
from tare.site import Site
from tare.tree import User

TAG = "tree"
"""By which the guest mounts it."""

_NEWER = Path("/usr/libexec/virtiofsd")
_OLDER = Path("/usr/lib/qemu/virtiofsd")
_NO_CAPABILITIES = "modcaps=-chown:-dac_override:-fowner:-fsetid:-mknod:-setfcap:-setgid:-setuid"
_FEWER_GROUPS = ", of the user's groups with the first alone"
_SOCKET = "socket"
_AT_MNT = (
    "unshare", "--mount", "--propagation", "private",
    "sh", "-c", 'mount --rbind "$1" /mnt && shift && exec "$@"', "sh",
)  # fmt: skip
"""The folder at a path that any user may walk, in mounts of the server's own."""


@dataclass(frozen=True)
class Served:
    """A folder that waits for its guest.

    Attributes:
        running: who serves it.
        folder: an open descriptor of the folder that has the socket, for QEMU.
        by: through what files come into the guest, in words.
    """

    running: process.Running
    folder: int
    by: str

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Add to an error that who serves it has ended; QEMU's own end would end it too.

        The guest's monitor, or its agent, tells only that it is not there.
        """
        try:
            yield
        except TrialError as error:
            if self.running.alive():
                raise
            last = last_words(self.running.stderr())
            what = f"{error.what}; the server of the guest's files ended{last}"
            raise TrialError(what, error.remedy) from error

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
        words = (_newer if _NEWER.exists() else _older)(listening.fileno(), user)
        command = Command((*_AT_MNT, str(shared), *words), cpus=site.placement.vmm)
        passed = (listening.fileno(),)
        running = process.start(command, log_dir=site.scratch / "logs", name=name, pass_fds=passed)
        all_groups = _NEWER.exists() or not {*user.groups} - {user.gid}
        by = "virtiofs over an overlay" + (_FEWER_GROUPS if not all_groups else "")
        stack.enter_context(running)
        yield Served(running, descriptor, by)


def _newer(listening: int, user: User) -> tuple[str, ...]:
    return (
        *user.takes_on(),
        str(_NEWER), f"--fd={listening}", "--shared-dir=/mnt", "--sandbox=none",
        "--cache=always", "--posix-acl",
        # Root's programs have not this one; it refuses to go without what it would keep.
        *(("--modcaps=-mknod",) if user.uid == 0 else ()),
    )  # fmt: skip


def _older(listening: int, user: User) -> tuple[str, ...]:
    if not _OLDER.exists():
        raise TrialError("there is no virtiofsd for a guest's files", "apt-get install virtiofsd")
    options = ["source=/mnt", "sandbox=chroot", "cache=always", "xattr", "posix_acl"]
    if user.uid == 0:
        before = ("mknod", "sys_chroot")
    else:
        before = ("setpcap", "sys_chroot")
        options.append(_NO_CAPABILITIES)
    takes_on = replace(user, groups=()).takes_on(before)
    return (*takes_on, str(_OLDER), "-f", f"--fd={listening}", "-o", ",".join(options))
