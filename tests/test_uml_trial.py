"""User-Mode Linux is there only if it runs a program: what its trial boot says is believed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import needs_root
from tare.environments import uml

pytestmark = needs_root


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    uml._trouble.cache_clear()
    uml._kernel.cache_clear()
    yield
    uml._trouble.cache_clear()
    uml._kernel.cache_clear()


def _kernel_that_says(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int = 1
) -> None:
    """Put a stand-in in the kernel's place: it has a version, says words, and ends."""
    program = tmp_path / "linux.uml"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo 6.1.0 && exit\necho "{words}"\nexit {code}\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(uml, "_program", lambda: str(program))
    monkeypatch.setattr(uml, "_PACKAGES", {str(program): "user-mode-linux"})


def test_a_kernel_whose_first_program_ends_well_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000000"
    _kernel_that_says(said, tmp_path, monkeypatch, code=134)
    found = uml.Uml().availability()
    assert found.available
    assert found.detail == "User-Mode Linux 6.1.0"


def test_a_kernel_whose_first_program_is_killed_is_not_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b"
    _kernel_that_says(said, tmp_path, monkeypatch)
    monkeypatch.setattr(uml, "_has_amx", lambda: False)
    found = uml.Uml().availability()
    assert not found.available
    assert "exitcode=0x0000000b" in found.detail
    monkeypatch.setattr(uml, "_has_amx", lambda: True)
    uml._trouble.cache_clear()
    found = uml.Uml().availability()
    assert "AMX" in found.detail
    assert "setup/uml-newer" in (found.remedy or "")


def test_a_kernel_that_says_nothing_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _kernel_that_says("", tmp_path, monkeypatch, code=0)
    assert not uml.Uml().availability().available
