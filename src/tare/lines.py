"""Files of JSON lines, each synced before the next begins; one torn by a crash does not exist.

Also files and folders that are there whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tare.errors import TareError, UsageError


class Recorded(BaseModel):
    """One line; a subclass names the file that holds its kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: ClassVar[str]

    @property
    def key(self) -> object:
        """Identity: of two rows with one, the later counts."""
        raise NotImplementedError


R = TypeVar("R", bound=Recorded)


def read(folder: Path, kind: type[R]) -> tuple[R, ...]:
    """Every whole line of a kind's file, in order; of those with one key, the last.

    Raises:
        UsageError: a whole line is not of that kind.
    """
    path, found = folder / kind.file, dict[object, R]()
    if not path.exists():
        return ()
    # What follows the last newline was torn by a crash in mid-write: that row does not exist.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = kind.model_validate_json(line)
        except ValidationError as error:
            raise UsageError(
                f"{path}:{number} is not a {kind.__name__}: {error.errors()[0]['msg']}",
                "restore the file, or remove that line to measure it again",
            ) from error
        found[row.key] = row
    return tuple(found.values())


class Appended:
    """One file, open for appending."""

    def __init__(self, path: Path) -> None:
        # Unbuffered: what a full disk refused must not wait in memory for another try.
        self._file = path.open("ab", buffering=0)
        self._folder = path.parent
        # What a crash left behind the last newline goes, so that the next line stands alone.
        data = path.read_bytes()
        if (whole := data.rfind(b"\n") + 1) < len(data):
            os.truncate(path, whole)

    def append(self, row: Recorded, *before: Path) -> None:
        """Add a row, once some files and folders are on disk.

        Raises:
            TareError: the disk is full; the file stays as it was before.
        """
        end = self._file.seek(0, os.SEEK_END)
        line = row.model_dump_json().encode() + b"\n"
        try:
            for path in before:
                sync(path)
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), end)
            raise TareError(
                f"cannot record a trial below {self._folder}: {error.strerror}",
                "make room, then resume with `tare run --resume FOLDER`: nothing is lost",
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(text, encoding="utf-8")
    sync(part)
    part.rename(path)
    sync(path.parent)


def put(path: Path, content: bytes, *, follow: bool = True) -> None:
    """Write a file that a user named, whole or not at all; whose it is, and who may read it, stays.

    A device, a pipe or a link stays what it is, and is written to: of root's /dev/null a file
    would be made instead.

    Args:
        follow: whether so; else a file takes its place, as where a result's author may have put it.

    Raises:
        OSError: it cannot be written.
    """
    if not follow and path.is_symlink():
        path.unlink()
    if follow and path.exists() and (path.is_symlink() or not path.is_file()):
        path.write_bytes(content)
        return
    # Of this writer alone: another may write the same file now.
    part = path.parent / f".tare.{uuid.uuid4().hex}"
    was = path.stat() if path.exists() else None
    # Never through a link that somebody has put there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    made = os.open(part, flags, 0o600 if was else 0o666)
    try:
        with os.fdopen(made, "wb") as file:
            if was:
                os.fchmod(file.fileno(), was.st_mode & 0o777)
                # Nobody but root gives a file away, and a user namespace knows no other owners.
                with suppress(OSError):
                    os.fchown(file.fileno(), was.st_uid, was.st_gid)
            file.write(content)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def make(folder: Path, fill: Callable[[Path, Path], object], *, numbered: bool = False) -> Path:
    """Make a folder whole or not at all, and return it.

    Args:
        folder: new. One that is there, perhaps a mount, is filled in its place.
        fill: writes into the first folder that it is given, which becomes the second.
        numbered: whether NAME-2 and so on is made where there is one of that name.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir() and not numbered:
        fill(folder, folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(".tare.part")
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(parent, fcntl.LOCK_EX)
        stem, numbers = folder.name, count(2)
        while numbered and os.path.lexists(folder):
            folder = folder.with_name(f"{stem}-{next(numbers)}")
        shutil.rmtree(part, ignore_errors=True)  # what a kill left: nobody else is at work here
        part.mkdir()
        try:
            fill(part, folder)
            part.rename(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        os.fsync(parent)
    finally:
        os.close(parent)
    return folder
