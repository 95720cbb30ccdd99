"""MPI jobs: what is asked of them, how they are started, and what is believed of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare import filesystems
from tare.errors import TrialError, UsageError
from tare.testing.site import levels_of
from tare.workloads.mpi_io import WORKLOAD, _agrees, _closing
from tare.workloads.mpi_io_job import Cache, Job, run
from tare.workloads.mpi_io_programs import PROGRAMS, Place
from tare.workloads.mpi_io_rows import MpiLevels, MpiSettings


def levels(**chosen: str) -> MpiLevels:
    """A cell's levels: the defaults but for these, without what does not apply."""
    return levels_of(WORKLOAD, **chosen)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain", "plain"),
        ("nvio", "nvio"),
        ("nvio  prefetch=whole  admit=always", "nvio admit=always prefetch=whole"),
    ],
)
def test_a_cache_is_written_in_one_way(written: str, shown: str) -> None:
    assert str(Cache.parse(written)) == shown
    assert str(Cache.parse(shown)) == shown


@pytest.mark.parametrize("written", ["", "nvio prefetch", "plain x=1", "cache", "nvio X=1", 3])
def test_what_is_no_cache_is_refused(written: object) -> None:
    with pytest.raises(UsageError, match="neither 'plain' nor 'nvio'"):
        Cache.parse(written)


@pytest.mark.parametrize("written", ["", "glusterfs2", "folder", "folder relative", "lustre"])
def test_what_is_no_file_system_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="not one of"):
        filesystems.level(written)


@pytest.mark.parametrize("written", ["0", "-1", "nan", "inf", "1e9", "often"])
def test_touches_are_a_number_above_zero(written: str) -> None:
    with pytest.raises(UsageError, match="not a number above 0"):
        MpiLevels.touches.parse(written)


def test_a_cell_has_the_levels_of_its_program_alone() -> None:
    assert {"pattern", "vertices", "mpi"} <= levels(program="walks").keys()
    assert "pattern" not in levels(program="grid")
    assert "mpi" not in levels(program="hdf5")  # it is there for one MPI only


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_an_estimate_and_a_subject_exist_for_every_program(program: str) -> None:
    asked = levels(program=program)
    assert WORKLOAD.seconds(asked, MpiSettings.defaults()) > 0
    assert WORKLOAD.subject(asked)


def test_both_arms_get_the_same_launcher_and_the_same_progress_settings() -> None:
    def command(cache: str) -> tuple[tuple[str, ...], dict[str, str]]:
        job = Job(("app",), "mpich", 4, Cache.parse(cache), Path("/build"), Path("/scratch"))
        return job.command().argv, dict(job.command().env)

    plain, cached = command("plain"), command("nvio prefetch=whole")
    assert cached[0][-len(plain[0]) :] == plain[0]
    assert cached[0][:2] == ("/build/nvio/nvio", "run")
    assert "prefetch=whole" in cached[0]
    assert plain[1] == cached[1] == {"LD_PRELOAD": "/build/nvio/libyield.so"}


def test_durable_means_a_sync_in_one_arm_and_a_setting_in_the_other() -> None:
    place = Place(Path("/build"), Path("/inputs"))
    plain, asked = _closing(levels(program="grid", close="durable"))
    assert plain.settings is None
    assert "sync" in PROGRAMS["grid"].argv(asked, place, Path("/f"))
    cached, asked = _closing(levels(program="grid", close="durable", cache="nvio"))
    assert cached.settings == (("close", "durable"),)
    assert "sync" not in PROGRAMS["grid"].argv(asked, place, Path("/f"))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A job's result, in a folder that knows no other."""
    (tmp_path / "inputs").mkdir()
    path = tmp_path / "power.wm"
    path.write_bytes(b"as plain wrote it")
    return path


def test_a_result_that_differs_between_arms_is_refused(written: Path, tmp_path: Path) -> None:
    assert not _agrees(written, levels(cache="plain"), tmp_path)  # there was no other
    assert _agrees(written, levels(cache="nvio"), tmp_path)
    written.write_bytes(b"as nvio wrote it.")
    with pytest.raises(TrialError, match=r"cache nvio, differs .* cache plain wrote: one of the"):
        _agrees(written, levels(cache="nvio"), tmp_path)
    written.unlink()
    with pytest.raises(TrialError, match="cannot be read back"):
        _agrees(written, levels(cache="nvio"), tmp_path)


def test_a_cache_that_comes_first_is_not_what_plain_mpi_io_is_held_to(
    written: Path, tmp_path: Path
) -> None:
    wrong, right = b"as nvio wrote it.", written.read_bytes()
    written.write_bytes(wrong)
    assert not _agrees(written, levels(cache="nvio"), tmp_path)
    written.write_bytes(right)
    with pytest.raises(TrialError, match=r"cache plain, differs .* cache nvio wrote: one of the"):
        _agrees(written, levels(cache="plain"), tmp_path)
    assert _agrees(written, levels(cache="plain"), tmp_path)
    written.write_bytes(wrong)
    with pytest.raises(TrialError, match="cache nvio, differs"):
        _agrees(written, levels(cache="nvio"), tmp_path)


def test_without_plain_mpi_io_arms_are_compared_with_each_other(
    written: Path, tmp_path: Path
) -> None:
    assert not _agrees(written, levels(cache="nvio write=async"), tmp_path)
    assert _agrees(written, levels(cache="nvio"), tmp_path)
    written.write_bytes(b"as nvio wrote it.")
    with pytest.raises(TrialError, match="cache nvio write=async wrote"):
        _agrees(written, levels(cache="nvio"), tmp_path)


def test_results_of_other_programs_are_not_compared(written: Path, tmp_path: Path) -> None:
    assert not _agrees(written, levels(power="2"), tmp_path)
    assert not _agrees(written, levels(power="3"), tmp_path)


def test_what_a_file_system_forgets_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/file").write_bytes(b"x" * 10_000)
    (tmp_path / "link").symlink_to("/nowhere")
    filesystems.forget(tmp_path)
    assert (tmp_path / "below/file").read_bytes() == b"x" * 10_000


@pytest.mark.parametrize("path", ["lustre", "/a/../b", "/a/..", "/a\x07b"])
def test_a_folder_that_no_list_could_name_is_no_file_system(path: str) -> None:
    assert filesystems.level("folder  /lustre/me") == "folder /lustre/me"
    with pytest.raises(UsageError, match="a plain path without"):
        filesystems.level(f"folder {path}")


def test_a_program_that_prints_no_record_fails_its_trial() -> None:
    for printed, says in (
        ("", "printed 0 records"),
        ("nothing here", "printed 0 records"),
        ('{"total": 1}\n{"total": 2}', "printed 2 records"),
        ("{broken", "that is no JSON: '{broken'"),
    ):
        with pytest.raises(TrialError, match=says):
            PROGRAMS["grid"].values(printed)


def test_plain_under_the_name_of_nvio_is_no_measurement(tmp_path: Path) -> None:
    """A wrapper that starts the program and no cache at all."""
    (tmp_path / "nvio").mkdir()
    wrapper = tmp_path / "nvio/nvio"
    wrapper.write_text("#!/usr/bin/python3\n")
    wrapper.chmod(0o755)
    with pytest.raises(TrialError, match="served 0 of 1 ranks"):
        run(Job(("app",), "openmpi", 1, Cache.parse("nvio"), tmp_path, tmp_path), timeout_s=60)
