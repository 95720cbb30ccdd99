"""Folders that a user keeps for Tare."""

from __future__ import annotations

import errno
from pathlib import Path

from tare.errors import UnavailableError


def made(folder: Path, purpose: str, variable: str) -> Path:
    """Make such a folder, if it is not there, and return it.

    Args:
        folder: as platformdirs has it; relative where the user has no home.
        purpose: what is done there: "where guest images are kept".
        variable: by which the user can name another one for all programs.

    Raises:
        UnavailableError: it cannot be made.
    """
    try:
        if not folder.is_absolute():
            raise FileNotFoundError(errno.ENOENT, "you have no home")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"cannot make {folder}, {purpose}: {error.strerror}",
            f"make it writable, or name another folder: {variable}=FOLDER",
        ) from error
    return folder
