"""A file system as the environment of MPI jobs: made for a visit, empty for each of its trials."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.environments import Availability, Inside, Site
from tare.environments.native import InsideWithMore, Native
from tare.errors import TrialError
from tare.filesystems import Mounted, named

__all__ = ["InsideFileSystem", "OnFileSystem", "empty"]


class InsideFileSystem(InsideWithMore):
    """An entered file system: the protocol of every environment, and `mounted` for the workload."""

    def __init__(self, native: Inside, mounted: Mounted) -> None:
        super().__init__(native)
        self.mounted = mounted
        self.session = f"filesystem-{secrets.token_hex(4)}"
        self.facts = {**native.facts, "file system": dict(mounted.facts)}


@dataclass
class OnFileSystem:
    """The host, with a file system."""

    name: str
    """Canonical level of the factor `filesystem`."""

    def availability(self) -> Availability:
        """Tell whether the file system can be had here."""
        return named(self.name).availability()

    @contextmanager
    def enter(self, site: Site) -> Iterator[InsideFileSystem]:
        """Make the file system; leaving removes it with all its files.

        Raises:
            TrialError: it cannot be had.
        """
        filesystem = named(self.name)
        found = filesystem.availability()
        if not found.available:
            raise TrialError(f"no {self.name} here: {found.detail}", found.remedy)
        with Native().enter(site) as native, filesystem.mounted(site) as mounted:
            yield InsideFileSystem(native, mounted)


def empty(folder: Path) -> None:
    """Remove what a trial left.

    Raises:
        TrialError: it cannot be removed.
    """
    try:
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise TrialError(f"cannot empty {folder}: {error.strerror}") from error
