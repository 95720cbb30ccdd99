"""Directories of the cache, which several runs may fill at once and any run may die filling."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare import mounts

_ABANDONED_S = 3600


@contextmanager
def workspace(directory: Path) -> Iterator[Path]:
    """Make a scratch directory beside the entries, from which a finished one is renamed into place.

    What a run that was killed left of its own is removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob(".new-*"):
        try:
            abandoned = time.time() - old.stat().st_mtime > _ABANDONED_S
        except FileNotFoundError:
            continue
        if abandoned and not mounts.within(old):
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=directory) as scratch:
        yield Path(scratch)
