"""nvio's conformance scripts as modules: they stand beside the build, not in the package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent.parent / "nvio" / "conformance"


@contextmanager
def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a script anew; leaving forgets it and what it imports from beside it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module(name)
    for one in FOLDER.glob("*.py"):
        sys.modules.pop(one.stem, None)
