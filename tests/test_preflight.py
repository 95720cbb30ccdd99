"""What of a plan cannot run here is said before the first trial, and the rest goes on."""

import json
import os
import re
import shutil
import tempfile
from types import SimpleNamespace

import pytest

from needs import PROGRAMS
from tare import command, cuts, experiment, mounts, operations, packages, plan, preflight
from tare.errors import UnavailableError
from tare.experiment import Experiment
from tare.workloads.command import requirements
from tare.workloads.migration import arms


def laid_out(workload, **factors):
    asked = Experiment.model_validate(
        {
            "title": "?",
            "workload": workload,
            "factors": factors,
            "baseline": {name: levels[0] for name, levels in list(factors.items())[:1]},
            "blocks": {"min": 12, "max": 12},
            "session": {"requests": "2000", "warmup": "200", "timeout": "1 s"},
        }
    )
    return plan.make(asked, seed=1)


def absent(made, *, connect=False):
    return preflight.absent(made, PROGRAMS, connect=connect)


def test_a_workload_with_places_of_its_own_is_asked_whether_they_are_here(monkeypatch):
    monkeypatch.setattr(command, "PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="not installed: qemu-system-x86"):
        absent(laid_out("migration", arm=list(arms.BY_NAME)[:2]))


def test_what_only_some_options_make_impossible_is_named_by_them(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out("disk", operation=["read", "write"], device=["raw", "nfs"])
    found = absent(made)
    assert [one.what for one in found] == ["nfs"]
    assert "mounted in guests only" in found[0].why
    left = cuts.without(made, found)
    assert {cell.levels["device"] for cell in left.cells} == {"raw"}
    assert left.cuts == (f"without nfs: {found[0].why}",)


def test_processors_that_this_machine_has_not_are_left_out(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    asked = laid_out("request-reply", environment=["native"], placement=["same-core", "client=7"])
    found = absent(asked)
    assert [one.what for one in found] == ["client=7"]
    assert found[0].why == "the placement 'client=7' names processor 7; this machine offers 0"
    with pytest.raises(UnavailableError, match="names processor 7"):
        absent(laid_out("request-reply", environment=["native"], placement=["client=7"]))


def test_what_is_missing_is_named_once_though_both_arms_of_a_pair_want_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out("disk", device=["raw", "nfs"], operation=["read"])
    wanting = [visit for visit in made.blocks[0] if visit.plot["device"] == "nfs"]
    assert len(wanting) == 2
    (found,) = absent(made)
    assert found.what == "nfs"
    assert {cell for visit in wanting for cell in visit.cells} == found.cells


def test_what_can_be_had_nowhere_is_refused_with_the_reason_of_each():
    asked = laid_out("disk", environment=["ssh root@192.0.2.1", "ssh root@192.0.2.2/qemu"])
    with pytest.raises(UnavailableError) as error:
        absent(asked)
    assert "192.0.2.1" in error.value.what
    assert "192.0.2.2" in error.value.what


def test_what_an_environment_cannot_do_is_left_out_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out(
        "disk", environment=["native", "container"], operation=["buffered", "read", "write"]
    )
    (found,) = absent(made)
    assert found.what == "container/buffered"
    assert "may not drop the page cache in a container. Take `operation: read`" in found.why
    left = preflight.possible(made, PROGRAMS, connect=False)
    assert not any("container/buffered" in c.id for c in left.cells)
    assert left.cuts == (f"without container/buffered: {found.why}",)


def test_where_only_what_cannot_be_done_is_asked_nothing_begins(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out("disk", environment=["native", "container"])
    with pytest.raises(UnavailableError, match="nothing is left to compare here: without cont"):
        preflight.possible(made, PROGRAMS, connect=False)


def test_operations_are_not_counted_where_perf_is_missing_and_that_is_said(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out("request-reply", transport=["udp", "tcp"])
    made = made.model_copy(update={"causes": 3})
    assert preflight.possible(made, PROGRAMS, connect=False).causes == 3
    monkeypatch.setattr(operations, "PATH", "/nowhere")
    left = preflight.possible(made, PROGRAMS, connect=False)
    assert left.causes == 0
    assert left.cuts == (
        "operations are not counted: not installed: linux-perf; apt-get install linux-perf",
    )


def test_a_machine_that_does_not_let_us_in_is_left_out_with_the_reason(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = "ssh root@127.0.0.1:1"
    asked = laid_out("request-reply", environment=["native", nobody], transport=["udp", "tcp"])
    assert absent(asked) == []
    (found,) = absent(asked, connect=True)
    assert found.what == nobody
    assert found.why == (
        "connecting to root@127.0.0.1:1 failed: Connection refused; see whether"
        " `ssh -p 1 root@127.0.0.1` gets there"
    )


@pytest.mark.parametrize(
    ("workload", "factors", "said"),
    [
        (
            "cpu",
            {"environment": ["qemu"], "memory": ["1 GiB", "900000 GiB"]},
            "a guest of 900000 GiB",
        ),
        ("mpi-io", {"cache": ["plain", "nvio prefech=whole"]}, "there is no setting .prefech"),
        ("mpi-io", {"cache": ["plain", "nvio prefetch=whoe"]}, ".whoe. is no value for prefetch"),
        (
            "migration",
            {"arm": ["plain", "xbzrle"], "memory": ["1 GiB", "900000 GiB"]},
            "4 guests of",
        ),
        (
            "cpu",
            {"environment": ["ssh a@192.0.2.1"], "mode": ["alone", "concurrent"]},
            "no host of ours",
        ),
        (
            "network",
            {"environment": ["ssh a@192.0.2.1"], "link": ["unlimited", "10 Mbit/s"]},
            "cannot be limited",
        ),
        (
            "network",
            {"environment": ["ssh a@192.0.2.1/qemu"], "to": ["remote", "host"]},
            "has that machine's address for itself",
        ),
        (
            "request-reply",
            {"environment": ["ssh a@192.0.2.1"], "interference": ["none", "host network 1 Mbit/s"]},
            "disturbs no other machine",
        ),
    ],
)
def test_what_only_trials_found_out_is_found_out_before(monkeypatch, workload, factors, said):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = laid_out(workload, **factors)
    (why,) = {one.why for one in absent(made)}
    assert re.search(said, why), why
    assert len(cuts.without(made, []).cells) > sum(len(one.cells) for one in absent(made))


def test_programs_that_a_cell_runs_are_looked_for_and_no_others(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked = laid_out("request-reply", interference=["none", "host cpu 50 %", "host disk 1"])
    monkeypatch.setattr(packages, "missing_packages", lambda names: " ".join(set(names.values())))
    found = {one.why for one in absent(asked)}
    assert found == {
        "not installed: stress-ng; apt-get install stress-ng",
        "not installed: fio; apt-get install fio",
    }


def test_a_run_without_room_for_its_samples_does_not_begin(tmp_path):
    made = laid_out("request-reply", transport=["udp", "tcp"])
    preflight.refuse_without_room(made, tmp_path / "results" / "new")
    large = made.model_copy(update={"session": made.session.but(requests=str(1 << 31))})
    with pytest.raises(UnavailableError, match=r"the samples of 12 blocks take up to .* GB left"):
        preflight.refuse_without_room(large, tmp_path / "results" / "new")


def test_a_disk_needs_room_where_it_lies(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "kind_at", lambda at: "ext4" if at.name == "tmp" else "tmpfs")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    looked = []

    def usage(path):
        looked.append(str(path))
        return SimpleNamespace(free=1 if str(path) == "/var/tmp" else 1 << 40)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    made = plan.make(
        experiment.load(PROGRAMS.parent / "experiments/kvm-overhead/disk.yaml"), seed=1
    )
    with pytest.raises(UnavailableError, match=r"the disks of a trial take up to .*; /var/tmp has"):
        preflight.refuse_without_room(made, tmp_path / "new")
    assert str(tmp_path) in looked


def test_every_package_that_a_part_names_is_one_that_setup_installs():
    lists = (PROGRAMS.parent / "setup" / "apt").glob("*.txt")
    installed = {
        line.split()[0] for path in lists for line in path.read_text().splitlines() if line
    }
    named = {package for of in packages.PROGRAMS.values() for package in of.values()}
    assert {*named, "linux-perf"} <= installed


def asked_for(**fields):
    return plan.make(experiment.parse(json.dumps({"title": "?", **fields}), "x.yaml"), seed=1)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cwd": "/nowhere"}, "there is no folder /nowhere"),
        ({"stdin": "absent-{size}"}, "there is no file /tmp/absent-1"),
        ({"env": "PATH=/nowhere"}, "there is no program gzip on PATH"),
        ({"shell": "fish-not-here"}, "there is no program fish-not-here on /usr/local"),
    ],
)
def test_what_a_command_names_and_is_not_here_is_told_before_it_runs(changed, why):
    fields = {
        "workload": "command",
        "factors": {"command": "gzip -{size}", "size": ["1"]},
        "baseline": {},
    }
    assert absent(asked_for(**fields, session={"cwd": "/tmp"})) == []
    with pytest.raises(UnavailableError, match=why):
        absent(asked_for(**fields, session={"cwd": "/tmp", **changed}))


def test_a_pipe_is_no_input_that_can_be_read_anew(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    fields = {"workload": "command", "factors": {"command": "cat"}, "baseline": {}}
    with pytest.raises(UnavailableError, match="pipe is a pipe, and an input is read anew"):
        absent(asked_for(**fields, session={"cwd": str(tmp_path), "stdin": "pipe"}))


def test_a_command_that_is_not_here_leaves_the_others(tmp_path):
    factors = {"command": {"here": "true", "not": "./absent"}}
    fields = {"workload": "command", "factors": factors, "baseline": {"command": "here"}}
    made = asked_for(**fields, session={"cwd": str(tmp_path)})
    (found,) = absent(made)
    assert found.why.startswith(f"there is no program {tmp_path}/absent")
    (tmp_path / "absent").touch(mode=0o644)
    (found,) = absent(made)
    assert found.why.startswith(f"{tmp_path}/absent may not be executed. Run `chmod +x`")
    (tmp_path / "absent").unlink()
    # What is run before may make it.
    assert absent(asked_for(**fields, session={"cwd": str(tmp_path), "prepare": "make"})) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"session": {"as": "nobody-here"}}, "there is no user nobody-here on this machine"),
        ({"client": "absent-client"}, "there is no program absent-client"),
        ({"server": "absent-server"}, "there is no program absent-server"),
    ],
)
def test_a_service_that_cannot_run_is_told_before_it_runs(monkeypatch, changed, why):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    fields = {"workload": "service", "server": "sleep 9", "client": "true", "baseline": {}}
    factors = {"environment": ["native"]}
    assert absent(asked_for(**fields, factors=factors)) == []
    with pytest.raises(UnavailableError, match=why):
        absent(asked_for(**{**fields, **changed}, factors=factors))


def test_only_root_gives_a_server_other_rights(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert "only root may run a server as root" in str(requirements.rights("root"))
