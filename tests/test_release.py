"""A release, made in a clone of this checkout: what it refuses, and what it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from needs import HOME

VERSION = "0.2.0"


def git(where: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", where, "-c", "safe.directory=*", *words],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Of what is here, whether it is committed or not."""
    made = tmp_path / "clone"
    made.mkdir()
    files = git(HOME, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    held = "".join(f"{name}\n" for name in files if (HOME / name).exists())
    subprocess.run(
        f"tar -C {HOME} -cf - -T - | tar -C {made} -xf -",
        shell=True, input=held, text=True, check=True,
    )  # fmt: skip
    git(made, "init", "--quiet")
    git(made, "config", "user.name", "t")
    git(made, "config", "user.email", "t@localhost")
    git(made, "add", "--all")
    git(made, "commit", "--quiet", "--message", "all")
    return made


def release(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "packaging/release.py", *words], cwd=clone, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{clone}:{clone}/src"}, timeout=120, check=False,
    )  # fmt: skip


def test_a_release_is_a_commit_and_a_tag_with_its_version_everywhere(clone: Path) -> None:
    done = release(clone, VERSION, "--pending")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "log", "--format=%s", "-1") == f"Release {VERSION}\n"
    told = git(clone, "for-each-ref", "--format=%(contents)", f"refs/tags/v{VERSION}")
    assert told.startswith(f"Tare {VERSION}\n\nThe lab:")
    subprocess.run(
        ["cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"],
        cwd=clone, check=True, capture_output=True,
    )  # fmt: skip
    locks = ("Cargo.lock", "fuzz/pageshare/Cargo.lock")
    for name in ("pyproject.toml", "Cargo.toml", *locks, "src/tare/__init__.py"):
        assert f'version__ = "{VERSION}"' in (text := (clone / name).read_text()) or (
            f'version = "{VERSION}"' in text
        ), name
    for name in locks:
        assert '"pageshare-wire"\nversion = "0.2.0"' in (clone / name).read_text()
    assert ", unreleased" not in (clone / "CHANGELOG.md").read_text()
    assert "already" in release(clone, VERSION).stderr


def test_what_is_not_ready_is_not_released(clone: Path) -> None:
    for words, why in (
        (("0.2",), "three numbers"),
        (("0.9.9", "--pending"), "no part '## 0.9.9, unreleased'"),
    ):
        done = release(clone, *words)
        assert done.returncode == 1
        assert why in done.stderr
    (clone / "claims/E2.json").unlink(missing_ok=True)
    git(clone, "commit", "--quiet", "--all", "--allow-empty", "--message", "E2 is pending")
    assert "have no result of what is here: " in release(clone, VERSION).stderr
    (clone / "README.md").write_text("changed\n")
    assert "not everything is committed" in release(clone, VERSION, "--pending").stderr
    assert git(clone, "tag", "--list") == ""
