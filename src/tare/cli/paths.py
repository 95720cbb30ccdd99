"""Where things lie: the checkout, what was built in it, and what is kept between runs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from tare.errors import UnavailableError
from tare.homes import made

_INSTRUMENT = "echo/echo-null"
"""Every session is calibrated with it: without it nothing can be measured."""


def home() -> Path:
    """Where the experiments and the build are: the checkout, or what a wheel ships of it."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "shipped"
    return shipped if shipped.is_dir() else package.parents[1]


def experiment(name: Path) -> Path:
    """The file that is meant: one that is there, or one that ships, by its name alone."""
    if name.name != str(name) or name.suffix or name.exists():
        return name
    shipped = home() / "experiments" / f"{name}.yaml"
    return shipped if shipped.is_file() else name


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
    """What is kept between runs: guest images.

    Raises:
        UnavailableError: it cannot be kept.
    """
    from platformdirs import user_cache_path  # noqa: PLC0415 - so that --help is fast

    return made(user_cache_path("tare"), "where guest images are kept", "XDG_CACHE_HOME")


def result(stem: str) -> Path:
    """What a new result is called."""
    return Path("results") / f"{stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def near(path: Path) -> Path:
    """The path as seen from the working directory, where it lies below it."""
    cwd = Path.cwd()
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path
