"""A file system as the environment of MPI jobs: made for a visit, empty for each of its trials."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.environments import Availability, Site
from tare.environments.on_host import InsideHost
from tare.errors import TrialError
from tare.filesystems import Mounted, named
from tare.host import Host


class InsideFileSystem(InsideHost):
    """An entered file system: the protocol of every environment, and `mounted` for the workload."""

    def __init__(self, site: Site, mounted: Mounted) -> None:
        super().__init__(Host(site), "filesystem", {"file system": dict(mounted.facts)})
        self.mounted = mounted


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
        with filesystem.mounted(site) as mounted:
            yield InsideFileSystem(site, mounted)


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
