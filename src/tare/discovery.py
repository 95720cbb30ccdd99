"""What the files of a package offer, each under one name: a file more is one more of its kind."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any


def offered(package: str, name: str) -> Iterator[Any]:
    """Import every module of a package, and yield what those have that define `name`."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        loaded = importlib.import_module(f"{package}.{module.name}")
        if hasattr(loaded, name):
            yield getattr(loaded, name)
