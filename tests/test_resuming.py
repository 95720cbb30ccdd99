"""A run goes on where it began, and is refused, in words, where it cannot be shown to be there."""

import os
import shutil
from pathlib import Path

import pytest

from tare import experiment, machine
from tare import plan as planning
from tare.cli.plan import refuse_if_changed, refuse_other_variables
from tare.command import PATH
from tare.errors import UsageError
from tare.experiment import Experiment
from tare.plan import Plan
from tare.record import Record

BEGAN = {
    "cpu": {"affinity": [0, 1], "governor": None},
    "kernel": {"clock_source": "tsc", "same_page_merging": "0"},
    "packages": {"mpich": "4.0"},
    "programs": {"nvio/nvio": "00"},
    "tare": {"commit": "a"},
}


def begun(folder, workload="mpi-io"):
    asked = Experiment(title="t", workload=workload, factors={}, baseline={})
    plan = Plan(
        experiment=asked, seed=1, cells=(), comparisons=(), blocks=(), min_blocks=2, session={}
    )
    return Record.create(folder, "title: t\n", plan, BEGAN)


@pytest.fixture
def record(tmp_path):
    return begun(tmp_path / "r")


def refusal(record, **changed):
    with pytest.raises(UsageError) as caught:
        refuse_if_changed(record, {**BEGAN, **changed})
    return caught.value.what


def test_what_cannot_change_a_figure_may_differ(record):
    kernel = {**BEGAN["kernel"], "same_page_merging": "1"}
    refuse_if_changed(record, {**BEGAN, "kernel": kernel, "tare": {"commit": "b"}})


@pytest.mark.parametrize("workload", ["request-reply", "cpu", "migration"])
def test_a_program_that_the_workload_cannot_run_may_be_another(record, workload, tmp_path):
    changed = {**BEGAN, "programs": {"nvio/nvio": "11"}}
    refuse_if_changed(begun(tmp_path / "other", workload), changed)
    refusal(record, programs=changed["programs"])


def test_what_calibrates_every_session_may_not_be_another(record):
    for instrument in ("echo/echo-null", "probe/probe"):
        assert instrument in refusal(record, programs={**BEGAN["programs"], instrument: "11"})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cpu": {"affinity": [2, 3], "governor": None}}, "cpu.affinity"),
        ({"kernel": {"clock_source": "hpet", "same_page_merging": "0"}}, "kernel.clock_source"),
        ({"packages": {"mpich": "4.1"}}, "packages.mpich"),
        ({"programs": {"nvio/nvio": "11"}}, "programs.nvio/nvio"),
        ({"programs": {}}, "programs.nvio/nvio"),
    ],
)
def test_another_machine_and_another_build_are_refused_by_name(record, changed, named):
    assert f"since it began, {named} changed;" in refusal(record, **changed)


def test_what_an_older_record_does_not_tell_is_not_said_to_have_changed(record):
    said = refusal(record, programs={"nvio/nvio": "00", "walks/walks-mpich": "22"})
    assert "its record does not tell programs.walks/walks-mpich;" in said
    assert "changed" not in said


APPS = """\
title: t
workload: command
factors:
  command: {old: "taskset -c 0 ./old/{build}/app new/2/app", new: "./new/app --of=data --to made"}
  build: [1, 2]
  threads: [1, 2]
exclude: [{build: 2}]
baseline: {command: old}
family: none
blocks: {min: 2}
session: {cwd: FOLDER, prepare: "echo {threads}", stdin: words, keep: made}
"""


def test_a_run_goes_on_with_the_builds_that_it_began_with_and_no_others(tmp_path):
    apps = [tmp_path / name / "app" for name in ("old/1", "old/2", "new", "new/2")]
    for app in apps:
        app.parent.mkdir(parents=True, exist_ok=True)
        app.touch(mode=0o755)
    named = [tmp_path / "data", tmp_path / "words"]
    for file in (*named, tmp_path / "made"):
        file.touch()
    text = APPS.replace("FOLDER", str(tmp_path))
    plan = planning.make(experiment.parse(text, "x.yaml"), 1)
    taskset = Path(shutil.which("taskset", path=PATH))
    ours = [apps[0], apps[2], apps[3]]
    assert plan.called == sorted([taskset, *ours, *named])

    def now():
        return machine.with_programs(BEGAN, plan.called)

    assert now()["programs"].keys() == {"nvio/nvio", *map(str, plan.called)}
    record = Record.create(tmp_path / "r", text, plan, now())
    refuse_if_changed(record, now())
    apps[1].write_text("no cell runs it")
    (tmp_path / "made").write_text("the run brought it here")
    refuse_if_changed(record, now())
    for app in ours:
        app.write_text("another build")
        with pytest.raises(UsageError, match=rf"since it began, programs\.{app} changed;"):
            refuse_if_changed(record, now())
        app.write_text("")
    began = named[0].stat().st_mtime_ns
    named[0].write_text("a secret")
    assert not any("secret" in str(told) for told in now()["programs"].values())
    with pytest.raises(UsageError, match=rf"since it began, programs\.{named[0]} changed;"):
        refuse_if_changed(record, now())
    named[0].write_text("")
    os.utime(named[0], ns=(began, began))
    refuse_if_changed(record, now())
    apps[2].unlink()
    with pytest.raises(UsageError, match=rf"since it began, programs\.{apps[2]} changed;"):
        refuse_if_changed(record, now())


@pytest.mark.parametrize(
    ("line", "session", "called"),
    [
        ("./app | cat", "cwd: FOLDER, shell: /bin/sh -e", ["/bin/sh"]),
        ("./app", "cwd: FOLDER, image: /an/image", ["FOLDER/app"]),
        ("cat", "cwd: FOLDER, image: /an/image", []),
        ("FOLDER/app", "cwd: /, image: /an/image", []),
    ],
)
def test_what_a_shell_starts_and_what_an_image_has_is_not_told(tmp_path, line, session, called):
    (tmp_path / "app").touch(mode=0o755)
    text = (
        f"{{title: t, workload: command, factors: {{command: '{line}'}}, baseline: {{}}, session:"
        f" {{{session}}}}}"
    ).replace("FOLDER", str(tmp_path))
    plan = planning.make(experiment.parse(text, "x.yaml"), 1)
    assert plan.called == [Path(path.replace("FOLDER", str(tmp_path))) for path in called]


def test_of_a_service_the_server_and_the_client_are_told(tmp_path):
    for name in ("serve", "ask"):
        (tmp_path / name).touch(mode=0o755)
    text = (
        "{title: t, workload: service, server: './serve {port}', client: './ask {address}',"
        f" factors: {{}}, baseline: {{}}, session: {{cwd: {tmp_path}}}}}"
    )
    plan = planning.make(experiment.parse(text, "x.yaml"), 1)
    assert plan.called == [tmp_path / "ask", tmp_path / "serve"]


COMMAND = """\
title: t
workload: command
factors: {command: "true"}
baseline: {}
blocks: {min: 2}
session: {cwd: /, env: "MODE=fast API_TOKEN"}
"""


def begun_with(folder, monkeypatch, token):
    monkeypatch.setenv("API_TOKEN", token)
    asked = experiment.parse(COMMAND, "x.yaml")
    return Record.create(folder, COMMAND, planning.make(asked, 1), BEGAN)


def test_a_run_goes_on_with_the_secrets_that_it_began_with_and_no_others(tmp_path, monkeypatch):
    record = begun_with(tmp_path / "r", monkeypatch, "of the beginning")
    refuse_other_variables(record)
    monkeypatch.setenv("API_TOKEN", "another")
    with pytest.raises(UsageError, match=r"resumed: the variable API_TOKEN is not what it was"):
        refuse_other_variables(record)
    monkeypatch.delenv("API_TOKEN")
    with pytest.raises(UsageError, match=r"API_TOKEN, which is to be passed on, is not set"):
        refuse_other_variables(record)


def test_of_a_secret_a_result_keeps_a_digest_that_is_like_no_other_results(tmp_path, monkeypatch):
    token = "a value that is looked for"
    one, other = (begun_with(tmp_path / name, monkeypatch, token) for name in "ab")
    assert one.digests.scrypt.keys() == {"API_TOKEN"}
    assert {*one.digests.scrypt.values()}.isdisjoint(other.digests.scrypt.values())
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and token in p.read_text()]


def test_an_older_result_goes_on_with_any_secret_and_not_without(tmp_path, monkeypatch):
    record = begun_with(tmp_path / "r", monkeypatch, "of the beginning")
    (record.folder / "variables.json").unlink()
    monkeypatch.setenv("API_TOKEN", "another")
    refuse_other_variables(record)
    monkeypatch.delenv("API_TOKEN")
    with pytest.raises(UsageError, match="is not set"):
        refuse_other_variables(record)


def test_what_a_kill_leaves_of_a_result_with_secrets_is_made_again(tmp_path, monkeypatch):
    record = begun_with(tmp_path / "r", monkeypatch, "a")
    (record.folder / "plan.json").unlink()
    refuse_other_variables(begun_with(record.folder, monkeypatch, "b"))
