"""Which QEMU the migration's testbed takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.errors import UnavailableError
from tare.guests.machine import PROGRAM, version
from tare.workloads.migration import hypervisor


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A build directory beside an installed QEMU 7.2."""

    def said(program: str = PROGRAM) -> str:
        return "7.2.22" if program == PROGRAM else version(program)

    monkeypatch.setattr(hypervisor, "version", said)
    return tmp_path


def unpack(programs: Path, said: str) -> Path:
    """Put a program that names itself where `make setup` unpacks the newer QEMU."""
    path = programs / "qemu-newer" / "root" / "usr" / "bin" / PROGRAM
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'QEMU emulator version {said} (Debian 1:{said})'\n")
    path.chmod(0o755)
    return path


def test_under_kvm_the_installed_one_runs_the_guests(programs: Path) -> None:
    unpack(programs, "10.0.2")
    assert hypervisor.choose("kvm", programs).program == PROGRAM


def test_under_tcg_one_that_loses_writes_gives_way_to_the_unpacked_one(programs: Path) -> None:
    newer = unpack(programs, "10.0.2")
    chosen = hypervisor.choose("tcg", programs)
    assert (chosen.program, chosen.version) == (str(newer), "10.0.2")


@pytest.mark.parametrize("unpacked", [None, "8.2.2"])
def test_under_tcg_no_guest_migrates_that_would_lose_what_it_writes(
    programs: Path, unpacked: str | None
) -> None:
    if unpacked is not None:
        unpack(programs, unpacked)
    with pytest.raises(UnavailableError, match=r"QEMU 7\.2\.22 loses what a guest writes") as found:
        hypervisor.choose("tcg", programs)
    assert f"setup/qemu-newer {programs / 'qemu-newer'}" in str(found.value.remedy)


@pytest.mark.parametrize("said", ["9.0.0", "10.0.2", "11.1"])
def test_an_installed_one_that_keeps_writes_needs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(hypervisor, "version", lambda: said)
    assert hypervisor.choose("tcg", tmp_path) == hypervisor.Hypervisor(PROGRAM, said)
