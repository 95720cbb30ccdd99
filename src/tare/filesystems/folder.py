"""A file system that is there already: a folder of the user's, such as one on Lustre."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.environments import Availability, Site
from tare.errors import TrialError
from tare.filesystems import Mounted, forget


@dataclass(frozen=True)
class Folder:
    """A folder of its own below a path, for each trial."""

    path: Path

    def availability(self) -> Availability:
        """Tell whether this user may write there."""
        if not self.path.is_dir():
            return Availability(False, f"{self.path} is no folder", "make it, or name another")
        if not os.access(self.path, os.W_OK | os.X_OK):
            return Availability(False, f"{self.path} cannot be written", "name another")
        return Availability(True, str(self.path))

    @contextmanager
    def mounted(self, site: Site) -> Iterator[Mounted]:
        """Make the folder; leaving removes it."""
        folder = self.path / f"tare-{site.leftovers.run_id}"
        with site.leftovers.owing("directory", str(folder)):
            try:
                folder.mkdir()
            except OSError as error:
                raise TrialError(f"cannot make {folder}: {error.strerror}") from error
            yield _InFolder(folder)


@dataclass
class _InFolder:
    folder: Path
    chain: tuple[str, ...] = ()

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"path": str(self.folder.parent), "device": self.folder.stat().st_dev}

    @contextmanager
    def fresh(self) -> Iterator[Path]:
        forget(self.folder)
        yield self.folder
