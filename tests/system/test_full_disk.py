"""A disk that is full: one clear error, and nothing is left or lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from needs import needs_root
from tare.command import Command
from tare.environments import Site
from tare.environments.container import Container
from tare.errors import TareError, TrialError
from tare.leftovers import Registry
from tare.process import start

pytestmark = [pytest.mark.system, needs_root]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    point = tmp_path / "small"
    point.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tare-test", str(point)]
    subprocess.run(mount, check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", str(point)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system to its last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return ballast


def test_what_cannot_be_written_down_is_not_made(small: Path) -> None:
    with Registry(small / "root") as registry:
        registry.add("file", str(small / "one"))
        ballast = fill(small)
        with pytest.raises(TareError, match="disk is full"):
            for number in range(200):  # the list's last page may still have room
                registry.add("file", str(small / f"{number:0>60}"))
        ballast.unlink()
        registry.add("file", str(small / "two"))
        lines = (registry.directory / "entries.ndjson").read_text().splitlines()
        assert '"name": "%s"' % (small / "two") in lines[-1]
        assert all(line.endswith("}") for line in lines)


def test_a_log_that_is_cut_short_spoils_no_trial(small: Path) -> None:
    code = "print('x' * 200_000); print('{\"n\": 1}')"
    with start(Command((sys.executable, "-c", code)), log_dir=small / "logs", name="it") as running:
        assert running.finish(30) == {"n": 1}
    assert (small / "logs" / "it.stdout").stat().st_size > 0


def test_a_bundle_that_does_not_fit_is_an_error_of_the_trial(small: Path, tidy_site: Site) -> None:
    fill(small)
    site = replace(tidy_site, scratch=small)
    with pytest.raises(TrialError, match="No space left"), Container().enter(site):
        pass
    assert [path.name for path in small.iterdir()] == ["ballast"]
