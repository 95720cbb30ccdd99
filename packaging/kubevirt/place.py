"""The place of virt-handler's socket, in directories in which the launcher may write.

Root would follow a symlink that the launcher has put there, and change another pod's files. So
each directory is held by its descriptor, the sender binds in one that is root's alone, and what is
changed is a name in a directory that is held.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Place:
    """The place of one socket, and where the one is made that takes it.

    Args:
        shared: the directory that the launcher shares.
        socket: the socket in it, in a directory of it.

    Raises:
        OSError: a directory is a symlink, or is not there.
    """

    OWN = "pageshare.sock"
    """The name of the socket to be made, in the directory `own`."""

    def __init__(self, shared: Path, socket: Path) -> None:
        self._name = socket.name
        self._taken: tuple[int, int] | None = None
        self._nest = f".pageshare-{secrets.token_hex(8)}"
        with ExitStack() as undo:
            above = os.open(shared, _OPEN)
            try:
                self._within = os.open(socket.parent, _OPEN, dir_fd=above)
            finally:
                os.close(above)
            undo.callback(os.close, self._within)
            os.mkdir(self._nest, 0o700, dir_fd=self._within)
            undo.callback(self._clear)
            self._own = os.open(self._nest, _OPEN, dir_fd=self._within)
            undo.callback(os.close, self._own)
            found = os.fstat(self._own)
            if found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise PermissionError(f"{shared / socket.parent / self._nest} was replaced")
            self._undo = undo.pop_all()

    @property
    def own(self) -> str:
        """The directory in which to make the socket, for a process that is started from here."""
        return f"/proc/self/fd/{self._own}"

    @property
    def is_ours(self) -> bool:
        """Whether our socket is there."""
        return self._taken is not None and self._identity() == self._taken

    def take(self) -> None:
        """Put our socket into the place of the one that is there, at once, for the same user.

        Raises:
            OSError: no socket is there, or ours is not made yet.
        """
        before = os.lstat(self._name, dir_fd=self._within)
        if not stat.S_ISSOCK(before.st_mode):
            raise FileNotFoundError(f"{self._name} is no socket")
        os.chown(self.OWN, before.st_uid, before.st_gid, dir_fd=self._own, follow_symlinks=False)
        os.chmod(self.OWN, before.st_mode & 0o777, dir_fd=self._own)
        os.rename(self.OWN, self._name, src_dir_fd=self._own, dst_dir_fd=self._within)
        self._taken = self._identity()

    def leave(self) -> None:
        """Remove our socket, if it is there still."""
        if self.is_ours:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._within)
        with suppress(OSError):
            os.unlink(self.OWN, dir_fd=self._own)
        self._undo.close()
        self._own = self._within = -1  # the numbers may become another file's

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._name, dir_fd=self._within)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _clear(self) -> None:
        # An empty directory is all that this can remove, whatever has taken its name.
        with suppress(OSError):
            os.rmdir(self._nest, dir_fd=self._within)
