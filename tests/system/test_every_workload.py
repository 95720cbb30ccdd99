"""Every workload once in every environment, for real: it measures what it says, nothing stays."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest

from needs import PROGRAMS, needs_root
from tare import environments, mounts, workloads
from tare.environments import Inside, Site
from tare.errors import TrialError
from tare.testing.far_machine import far_machine
from tare.testing.site import levels_of
from tare.workloads import Measurement
from tare.workloads.cpu import CPU
from tare.workloads.memory import MEMORY
from tare.workloads.stressors import Class, Stressing

pytestmark = [pytest.mark.system, needs_root]

ENVIRONMENTS = (*environments.by_name(), "ssh/container")
CACHE = platformdirs.user_cache_path("tare")
ASKED = {
    "cpu": {"class": "integer"},
    "memory": {"class": "stream"},
    "disk": {"device": "raw", "operation": "randread"},
    "network": {"to": "remote", "mode": "concurrent"},
    "overhead": {},
}


def has_disk(name: str) -> bool:
    """Whether an environment, where it is here, has a device to be measured."""
    return "disk" not in environments.by_name()[name.partition("/")[0]].availability().cannot


@contextmanager
def entered(
    name: str, site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch, **plot: str
) -> Iterator[tuple[str, Inside]]:
    """An environment that is here, entered; yields its level too."""
    with ExitStack() as stack:
        level = name
        if name.startswith("ssh"):
            hosts = site.hosts
            far = stack.enter_context(
                far_machine(
                    folder, PROGRAMS, hosts.client_ns, hosts.server_ns, hosts.server_address
                )
            )
            monkeypatch.setenv("HOME", str(far.home))
            monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
            machine, of, namespace = str(far.destination).partition(" from ")
            level = f"ssh {machine}{name.removeprefix('ssh')}{of}{namespace}"
        environment = environments.for_plot({"environment": level, **plot})
        here = environment.availability()
        if not here.available:
            pytest.skip(f"{name}: {here.detail}")
        yield level, stack.enter_context(environment.enter(site))


def trial(workload: str, level: str, site: Site, inside: Inside, **asked: str) -> Measurement:
    found = workloads.by_name()[workload]
    levels = levels_of(found, environment=level, **{**ASKED[workload], **asked})
    settings = found.settings.defaults()
    if "seconds" not in settings:
        return found.bench(site, inside, settings).measure(levels)
    for seconds in ("1", "4", "16"):  # beside other tests one may be too short
        try:
            return found.bench(site, inside, settings.but(seconds=seconds)).measure(levels)
        except TrialError as error:
            if "lengthen `seconds`" not in f"{error.what} {error.remedy}":
                raise
            last = error
    raise last


def shortened(workload: Stressing) -> Mapping[str, Class]:
    """Its classes, each with its first and its last method alone: stress-ng's and sysbench's.

    What the others print does not depend on where they run.
    """
    return {
        name: replace(kind, methods=dict([*kind.methods.items()][:: len(kind.methods) - 1]))
        for name, kind in workload.classes.items()
    }


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_workload_measures_what_it_declares(
    name: str, tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = replace(tidy_site, cache=CACHE)
    plot = {"device": "raw"} if has_disk(name) else {}
    if name != "native":
        for stressing in (CPU, MEMORY):
            short = Stressing(stressing.name, shortened(stressing))
            monkeypatch.setattr(stressing, "levels", short.levels)
    with entered(name, site, tmp_path, monkeypatch, **plot) as (level, inside):
        for workload in ASKED:
            if workload == "disk" and not has_disk(name):
                asked = environments.for_plot({"environment": level, "device": "raw"})
                assert "device" in asked.availability().detail
                with pytest.raises(TrialError, match="no block device"):
                    trial(workload, level, site, inside)
                continue
            measured = trial(workload, level, site, inside)
            declared = workloads.by_name()[workload].statistics
            assert measured.values, workload
            assert set(measured.values) <= set(declared), workload
            assert all(math.isfinite(v) and v > 0 for v in measured.values.values()), workload


def test_hdparm_reads_a_loop_device_on_the_host(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with entered("native", tidy_site, tmp_path, monkeypatch, device="loop") as (level, inside):
        assert "page cache" in inside.facts["disk_is"]
        asked = {"device": "loop", "operation": "buffered"}
        assert trial("disk", level, tidy_site, inside, **asked).values["rate"] > 0


def test_a_disk_is_none_in_memory_though_the_runs_folder_is(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Debian 13 has /tmp.
    mounts.mount("tmpfs", tidy_site.scratch, "tmpfs")
    try:
        assert mounts.kind_at(tidy_site.scratch / "not yet there") == "tmpfs"
        with entered("native", tidy_site, tmp_path, monkeypatch, device="raw") as (_, inside):
            assert inside.facts["disk_is"].endswith(f" on {mounts.kind_at(Path('/var/tmp'))}")
    finally:
        subprocess.run(("umount", "--lazy", tidy_site.scratch), check=True)
    assert not list(Path("/var/tmp").glob("tare-disk-*"))


def test_hdparm_that_may_not_drop_the_page_cache_is_refused(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        entered("container", tidy_site, tmp_path, monkeypatch, device="raw") as (level, inside),
        pytest.raises(TrialError, match="could not drop the page cache"),
    ):
        trial("disk", level, tidy_site, inside, operation="buffered")


def test_a_guest_reads_a_file_over_nfs(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = replace(tidy_site, cache=CACHE)
    with entered("qemu", site, tmp_path, monkeypatch, device="nfs") as (level, inside):
        assert "NFS" in inside.facts["disk_is"]
        assert trial("disk", level, site, inside, device="nfs").values["rate"] > 0


def test_the_papers_own_way_to_send_in_a_guest_and_on_the_host_one_after_the_other(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = replace(tidy_site, cache=CACHE)
    with entered("qemu", site, tmp_path, monkeypatch) as (level, inside):
        asked = {"tool": "dd-nc", "mode": "alone", "to": "localhost"}
        values = trial("network", level, site, inside, **asked).values
    assert {"host", "guest"} <= set(values)
    assert "jain" not in values


@pytest.mark.parametrize(("name", "workloads"), [("container", (CPU, MEMORY)), ("qemu", (CPU,))])
def test_host_and_environment_compute_or_move_memory_at_once(
    name: str,
    workloads: tuple[Stressing, ...],
    tidy_site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = replace(tidy_site, cache=CACHE)
    for stressing in (CPU, MEMORY):
        short = Stressing(stressing.name, shortened(stressing))
        monkeypatch.setattr(stressing, "levels", short.levels)
    with entered(name, site, tmp_path, monkeypatch) as (level, inside):
        for workload in workloads:
            measured = trial(workload.name, level, site, inside, mode="concurrent")
            values = measured.values
            assert set(values) <= set(workload.statistics)
            assert all(math.isfinite(v) and v > 0 for v in values.values())
            methods = measured.settings["overlap"]
            assert len(methods) == 2
            for method, overlap in methods.items():
                assert {method, f"host-{method}"} <= set(values)
                assert overlap["runs of the host"] >= 1
                assert overlap["runs of the guest"] >= 1
            assert values["sum"] == pytest.approx(values["score"] + values["host-score"])
            assert 0.5 <= values["jain"] <= 1


def test_a_tool_that_another_machine_lacks_is_brought_there_and_goes_again(
    tidy_site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with entered("ssh", tidy_site, tmp_path, monkeypatch) as (_, inside):
        programs = inside.host._programs  # type: ignore[attr-defined]
        asked = programs._connection.run
        # As if it were not found there.
        programs._connection.run = lambda argv, *rest, **named: asked(
            ["false"] if "command -v" in " ".join(argv) and "hdparm" in argv else argv,
            *rest,
            **named,
        )
        assert "hdparm v" in inside.run(("hdparm", "-V"), 60)
        found = inside.run(("sh", "-c", "readlink -f $(which hdparm)"), 60)
        assert str(tmp_path) in found
        programs._connection.run = asked
    assert not list((tmp_path / "temporary").iterdir())
