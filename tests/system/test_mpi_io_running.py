"""MPI jobs on real file systems, with and without nvio; nothing is left of either."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import reach

from needs import PROGRAMS, needs_root
from tare import filesystems, process
from tare.command import Command
from tare.environments import Site
from tare.errors import TrialError
from tare.record import Record
from tare.testing.site import levels_of
from tare.workloads import Measurement
from tare.workloads.mpi_io import WORKLOAD
from tare.workloads.mpi_io_rows import MpiSettings

pytestmark = [needs_root, pytest.mark.system]

SETTINGS = MpiSettings({"timeout": "4 min"})


def measured(site: Site, **chosen: str) -> Measurement:
    """One trial on a file system of its own."""
    levels = levels_of(WORKLOAD, **chosen)
    with WORKLOAD.enter(levels, site, SETTINGS) as bench:
        return bench.measure(levels)


def kind_or_skip(kind: str) -> str:
    found = filesystems.named(kind).availability()
    if not found.available:
        pytest.skip(f"no {kind} here: {found.detail}")
    return kind


@pytest.mark.parametrize("kind", filesystems.NAMES)
def test_both_arms_write_the_same_power_on_every_file_system(tidy_site: Site, kind: str) -> None:
    kind_or_skip(kind)
    arms = {
        cache: measured(tidy_site, filesystem=kind, vertices="200", cache=cache)
        for cache in ("plain", "nvio admit=always")
    }
    compared = [found.settings["result compared"] for found in arms.values()]
    assert compared == [False, True]  # the first had nothing to be compared with
    for found in arms.values():
        assert found.values["time"] > 0
        assert found.values["job"] > found.values["time"]
    assert arms["plain"].counters.keys() == {"calls"}
    assert arms["nvio admit=always"].counters["writes_cached"] > 0
    assert arms["nvio admit=always"].counters["written_back_bytes"] >= 200 * 200


@pytest.mark.parametrize("kind", filesystems.NAMES)
def test_a_trial_finds_nothing_of_the_one_before_on_the_same_file_system(
    tidy_site: Site, kind: str
) -> None:
    """Nor of one that failed after it had written."""
    levels = levels_of(WORKLOAD, filesystem=kind_or_skip(kind), program="grid", size="1 MiB")
    with WORKLOAD.enter(levels, tidy_site, SETTINGS) as bench:
        bench.measure(levels)
        with bench.inside.mounted.fresh() as folder:
            (folder / "left").mkdir()
            (folder / "left/behind").write_bytes(b"x")
        bench.measure(levels)
        with bench.inside.mounted.fresh() as folder:
            assert [path.name for path in folder.iterdir()] == ["data"]


def test_who_uses_a_throttled_disk_is_in_the_group_that_has_the_throttle(tidy_site: Site) -> None:
    kind_or_skip("throttled")
    with filesystems.named("throttled").mounted(tidy_site) as mounted:
        said = process.run(Command((*mounted.chain, "cat", "/proc/self/cgroup")), timeout_s=10)
        assert f"/tare-{tidy_site.leftovers.run_id}\n" in said.stdout
        group = next(Path("/sys/fs/cgroup").glob(f"**/tare-{tidy_site.leftovers.run_id}"))
        with mounted.fresh() as folder:
            disk = folder.stat().st_dev
        throttles = [*group.glob("io.max"), *group.glob("blkio.throttle.*_device")]
        bounded = "".join(path.read_text() for path in throttles)
        assert f"{os.major(disk)}:{os.minor(disk)} " in bounded


def test_cold_means_that_the_kernel_holds_nothing_of_the_input(tidy_site: Site) -> None:
    """Every byte that is read again comes from the device."""
    kind_or_skip("throttled")
    with filesystems.named("throttled").mounted(tidy_site) as mounted:
        with mounted.fresh() as folder:
            (folder / "data").write_bytes(b"x" * (1 << 20))
        counted = Path("/sys/block", f"loop{os.minor(folder.stat().st_dev)}", "stat")
        before = int(counted.read_text().split()[2])  # sectors read from it so far
        with mounted.fresh() as folder:
            (folder / "data").read_bytes()
        assert int(counted.read_text().split()[2]) - before >= (1 << 20) // 512


def test_every_order_and_both_ways_run_on_a_folder_of_the_users(
    tidy_site: Site, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for operation in ("write", "read"):
        for files in ("shared", "each"):
            found = measured(
                tidy_site, program="grid", filesystem=f"folder {there}", cache="nvio",
                operation=operation, order="strided", files=files, size="1 MiB", close="durable",
            )  # fmt: skip
            assert found.values["bandwidth"] > 0
    assert list(there.iterdir()) == []


def test_a_folder_that_is_full_is_said_so(tidy_site: Site, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(small))
    process.run(Command(mount), timeout_s=10)
    try:
        said = ""
        for _ in range(3):  # mpiexec.mpich loses the last words of one rank in a hundred
            with pytest.raises(TrialError) as failed:
                measured(
                    tidy_site, program="grid", filesystem=f"folder {small}", operation="write",
                    order="strided", size="1 MiB",
                )  # fmt: skip
            said += str(failed.value)
            if "its last words" in said:
                break
        assert "No space left on device" in said
    finally:
        # MPICH 4.2's launcher may end before ranks that it has killed are gone.
        away = ("umount", small)
        assert reach.await_that(lambda: subprocess.run(away, check=False).returncode == 0)


def test_a_folder_that_is_not_there_is_said_so(tidy_site: Site) -> None:
    with pytest.raises(TrialError, match="is no folder"):
        measured(tidy_site, filesystem="folder /there/is/none")


def test_a_cache_that_was_told_to_stay_away_is_no_measurement(tidy_site: Site) -> None:
    with pytest.raises(TrialError, match="served 0 of 4 ranks"):
        measured(tidy_site, filesystem="tmpfs", vertices="100", cache="nvio disable=1")


@pytest.mark.parametrize("program", ["mpi4py", "hdf5", "pnetcdf"])
def test_libraries_above_mpi_io_run_under_nvio(tidy_site: Site, program: str) -> None:
    for operation in ("write", "read"):  # what is read is checked by the program
        found = measured(
            tidy_site, program=program, filesystem="tmpfs", cache="nvio admit=always",
            operation=operation, piece="1 KiB", size="256 KiB", ranks="2",
        )  # fmt: skip
        assert found.counters["writes" if operation == "write" else "reads"] > 0


def test_the_light_experiment_ends_in_a_report(tmp_path: Path) -> None:
    """As it ships, on the slowest file system that is here; fewer blocks, so nothing is judged."""
    kinds = [kind for kind in filesystems.NAMES if filesystems.named(kind).availability().available]
    text = (PROGRAMS.parent / "experiments/mpi-io-light.yaml").read_text()
    text = text.replace("[glusterfs]", f"[{kinds[0]}]").replace("min: 6, max: 6", "min: 2, max: 2")
    (tmp_path / "light.yaml").write_text(text + "family: none\na_a: [{cache: plain}]\n")
    argv = (sys.executable, "-m", "tare", "run", str(tmp_path / "light.yaml"), "--json")
    said = json.loads(process.run(Command(argv, cwd=tmp_path), timeout_s=280).stdout)
    trials = Record(tmp_path / said["result"]).trials()
    assert [trial.error for trial in trials if trial.status == "failed"] == []
    compared = [trial.settings["result compared"] for trial in trials]
    assert compared == [False] + [True] * (len(trials) - 1)
    assert "Does nvio serve" in (tmp_path / said["report"]).read_text()
