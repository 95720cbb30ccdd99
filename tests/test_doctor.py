"""What this machine can do: for every "no" a reason, and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare import command, doctor, environments, operations
from tare.environments import CAPABILITIES
from tare.errors import UnavailableError


def test_every_environment_that_is_here_answers_for_every_capability(tmp_path: Path) -> None:
    found = [f for f in doctor.examine(tmp_path) if f.name.startswith("environment ")]
    assert [f.name.split()[1] for f in found] == [*environments.by_name()]
    for finding in found:
        if finding.available:
            assert finding.can | set(finding.cannot) == set(CAPABILITIES), finding.name
            assert not finding.can & set(finding.cannot), finding.name
            assert all(len(reason) > 20 for reason in finding.cannot.values())


def test_a_workload_without_its_programs_names_their_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATH", str(tmp_path))
    found = {f.name: f for f in doctor.examine(tmp_path)}
    assert not found["workload cpu"].available
    assert found["workload cpu"].detail == "not installed: stress-ng sysbench"
    assert found["workload cpu"].remedy == "apt-get install stress-ng sysbench"


def test_a_file_of_a_programs_name_in_this_folder_is_not_that_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATH", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fio").touch()
    assert command.missing_packages({"fio": "fio", "iperf3": "iperf3"}) == "fio iperf3"
    assert command.missing_packages({str(tmp_path / "fio"): "fio", "a": "b", "c": "b"}) == "b"


def test_a_machine_that_cannot_unmount_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="not installed: mount"):
        doctor.require_root()


def test_it_speaks_of_all_that_an_experiment_can_ask_for(tmp_path: Path) -> None:
    named = {f.name.split()[-1] for f in doctor.examine(tmp_path)}
    assert {"migration", "mpi-io", "glusterfs", "throttled", "pageshare", "nvio"} <= named
    unbuilt = next(f for f in doctor.examine(tmp_path) if f.name == "program nvio")
    assert (unbuilt.available, unbuilt.remedy) == (False, "build it in a checkout: `make build`")


def test_what_counts_operations_is_looked_for_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finding() -> doctor.Finding:
        return next(f for f in doctor.examine(tmp_path) if f.name == "operations counted")

    assert finding().available
    monkeypatch.setattr(operations, "PATH", str(tmp_path))
    assert (finding().detail, finding().remedy) == (
        "not installed: linux-perf",
        "apt-get install linux-perf",
    )
