"""Where things lie: the checkout, what was built in it, and what is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from tare.errors import UnavailableError

_INSTRUMENT = "echo/echo-null"
"""Every session is calibrated with it: without it nothing can be measured."""


def home() -> Path:
    """The checkout: where the experiments and the build are."""
    return Path(__file__).resolve().parents[3]


def build() -> Path:
    """Where the native programs are built."""
    return home() / "build"


def programs() -> Path:
    """Where the native programs were built.

    Raises:
        UnavailableError: they were not.
    """
    if not os.access(build() / _INSTRUMENT, os.X_OK):
        raise UnavailableError(
            f"the native programs are not built: {build() / _INSTRUMENT} is missing",
            "run `make build`",
        )
    return build()


def cache() -> Path:
    """What is kept between runs: guest images."""
    from platformdirs import user_cache_path  # noqa: PLC0415 - so that --help is fast

    return user_cache_path("tare", ensure_exists=True)


def near(path: Path) -> Path:
    """The path as seen from the working directory, where it lies below it."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path
