import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare import experiment as experiments
from tare import plan as plans
from tare.cell import Cell
from tare.command import Command
from tare.errors import TareError, UsageError
from tare.experiment import Experiment
from tare.plan import Plan, Visit
from tare.process import run
from tare.record import Record, Resumption, Trial

PLAN = Plan(
    experiment=Experiment(title="t", factors={}, baseline={}),
    seed=1,
    cells=(Cell(id="a", levels={"environment": "native"}),),
    comparisons=(),
    blocks=((Visit(plot={"environment": "native"}, cells=("a",)),),) * 3,
    min_blocks=2,
    session={},
)


def trial(block: int, **change: object) -> Trial:
    values = {
        "block": block,
        "position": 0,
        "cell": "a",
        "session": "s",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 1.0,
        "status": "failed",
        "error": "nobody answered",
    }
    return Trial.model_validate(values | change)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.create(tmp_path / "r", "title: t\n", PLAN, {"cpu": {"model": "x"}, "more": 1})


def test_what_is_appended_is_read_back(record):
    with record.writing() as writer:
        writer.append(trial(0))
        writer.append(trial(1))
    assert [t.block for t in record.trials()] == [0, 1]
    assert record.plan == PLAN


def test_each_resumption_is_on_record_with_its_fingerprint(record):
    assert record.resumptions() == ()
    moments = [Resumption(resumed=f"2026-01-0{n}", fingerprint={"cpu": {"n": n}}) for n in (1, 2)]
    for moment in moments:
        with record.writing() as writer:
            writer.append(moment)
    assert list(record.resumptions()) == moments
    assert record.fingerprint.whole == {"cpu": {"model": "x"}, "more": 1}
    assert record.fingerprint.cpu.model == "x"


def test_a_torn_last_line_is_no_trial_and_the_next_one_stands_alone(record):
    with record.writing() as writer:
        writer.append(trial(0))
    path = record.folder / "trials.ndjson"
    path.write_bytes(path.read_bytes() + b'{"block": 1, "ce')
    assert [t.block for t in record.trials()] == [0]
    with record.writing() as writer:
        writer.append(trial(2))
    assert [t.block for t in record.trials()] == [0, 2]


@settings(max_examples=60)
@given(st.data())
def test_cutting_the_file_anywhere_loses_only_the_torn_trial(tmp_path_factory, data):
    record = Record.create(tmp_path_factory.mktemp("r") / "r", "title: t\n", PLAN, {})
    with record.writing() as writer:
        for block in range(3):
            writer.append(trial(block))
    path = record.folder / "trials.ndjson"
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    assert [t.block for t in record.trials()] == list(range(whole[:cut].count(b"\n")))


def test_a_damaged_whole_line_is_named(record):
    (record.folder / "trials.ndjson").write_bytes(b'{"block": "x"}\n')
    with pytest.raises(UsageError, match=r"trials.ndjson:1 is not a Trial"):
        record.trials()


def test_two_writers_at_once_are_refused(record):
    with (
        record.writing(),
        pytest.raises(TareError, match="another tare is writing"),
        record.writing(),
    ):
        pass


def test_samples_that_are_not_there_make_no_trial(record):
    with record.writing() as writer, pytest.raises(TareError, match="cannot record a trial"):
        writer.append(trial(0, status="ok", error=None, samples="none.parquet"))
    assert record.trials() == ()


def test_a_full_disk_loses_nothing_that_was_recorded(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounts a small file system: needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    run(Command(("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount))), timeout_s=10)
    try:
        record = Record.create(mount / "r", "title: t\n", PLAN, {})
        with (
            record.writing() as writer,
            pytest.raises(TareError, match="No space left") as caught,
        ):
            for block in range(10_000):
                writer.append(trial(block, error="x" * 500))
        assert "--resume" in str(caught.value.remedy)
        found = record.trials()
        assert [t.block for t in found] == list(range(len(found)))
        assert found
    finally:
        run(Command(("umount", str(mount))), timeout_s=10)


def test_a_folder_that_is_no_result_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is not a result"):
        Record(tmp_path)


def test_a_plan_of_another_version_is_refused_in_words(record):
    path = record.folder / "plan.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 9'))
    with pytest.raises(UsageError, match="cannot be read"):
        _ = record.plan


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"seed": ', "[" * 100_000])
def test_a_damaged_plan_is_refused_in_words(record, text):
    (record.folder / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=r"experiment\.yaml|plan\.json"):
        _ = record.plan


def test_a_result_of_a_workload_that_is_not_there_is_listed_and_not_analysed(record):
    path = record.folder / "plan.json"
    path.write_text(path.read_text().replace('"request-reply"', '"hashing"'))
    there = Record(record.folder).plan
    assert there.cells[0].levels["environment"] == "native"
    with pytest.raises(UsageError, match="'hashing' is no workload of this version"):
        _ = there.workload


def test_a_plan_of_before_it_held_the_experiment_takes_it_from_the_file(tmp_path):
    text = "title: t\nfactors: {transport: [udp, tcp]}\nbaseline: {transport: udp}\n"
    asked = experiments.parse(text, "x.yaml")
    record = Record.create(tmp_path / "r", text, plans.make(asked, seed=1), {})
    path = record.folder / "plan.json"
    old = json.loads(path.read_text())
    del old["experiment"]
    path.write_text(json.dumps(old))
    assert Record(record.folder).experiment == asked
    assert Record(record.folder).plan == record.plan


@pytest.mark.parametrize("text", [None, "", '{"cpu": ', "[1]", "[" * 100_000])
def test_a_damaged_fingerprint_is_refused_in_words(record, text):
    path = record.folder / "environment.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=r"environment\.json"):
        _ = record.fingerprint


def test_a_folder_that_exists_is_not_written_into(record):
    with pytest.raises(TareError, match="it exists") as caught:
        Record.create(record.folder, "title: t\n", PLAN, {})
    assert f"--resume {record.folder}" in str(caught.value.remedy)


@pytest.mark.parametrize("name", ["experiment.yaml", "samples.csv", ".git"])
def test_a_folder_of_other_things_keeps_them(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(TareError, match="other things lie there") as caught:
        Record.create(tmp_path, "title: t\n", PLAN, {})
    assert caught.value.remedy == "name a new one: --out"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_an_empty_folder_is_filled_in_its_place(tmp_path):
    (tmp_path / "lost+found").mkdir()  # as a file system of its own has
    assert Record.create(tmp_path, "title: t\n", PLAN, {}).folder == tmp_path


@pytest.mark.parametrize(
    "written", [(), ("experiment.yaml",), ("experiment.yaml", "plan.json.part")]
)
def test_a_folder_whose_making_was_killed_is_made_again(tmp_path, written):
    folder = tmp_path / "r"
    (folder / "samples").mkdir(parents=True)
    for name in written:
        (folder / name).write_text("half")
    made = Record.create(folder, "title: t\n", PLAN, {})
    assert made.plan == PLAN
    assert made.experiment_path.read_text() == "title: t\n"


def test_two_that_want_a_name_at_once_have_one_each(tmp_path):
    with ThreadPoolExecutor() as pool:
        texts = [f"title: {number}\n" for number in range(4)]
        made = [
            *pool.map(lambda t: Record.create(tmp_path / "r", t, PLAN, {}, numbered=True), texts)
        ]
    assert [one.experiment_path.read_text() for one in made] == texts
    assert {path.name for path in tmp_path.iterdir()} == {"r", "r-2", "r-3", "r-4"}


def test_a_folder_that_cannot_be_made_whole_is_not_there(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounts a small file system: needs root")
    run(Command(("mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path))), timeout_s=10)
    try:
        with pytest.raises(TareError, match=r"cannot make the result folder .*/r: No space left"):
            Record.create(tmp_path / "r", "x" * 100_000, PLAN, {})
        assert list(tmp_path.iterdir()) == []
    finally:
        run(Command(("umount", str(tmp_path))), timeout_s=10)


def test_what_a_kill_left_of_a_folder_in_the_making_goes_with_the_next(tmp_path):
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tare import lines\n"
        "def fill(part, _):\n (part / 'half').touch()\n os.kill(os.getpid(), signal.SIGKILL)\n"
        "lines.make(Path(sys.argv[1]), fill)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, tmp_path / "r"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "r").exists()
    Record.create(tmp_path / "r", "title: t\n", PLAN, {})
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert not (tmp_path / "r" / "half").exists()


def test_a_folder_that_lost_its_plan_but_holds_samples_is_not_written_into(tmp_path):
    folder = tmp_path / "r"
    (folder / "samples").mkdir(parents=True)
    (folder / "samples" / "000-000.parquet").write_bytes(b"what somebody measured")
    with pytest.raises(TareError, match="it exists"):
        Record.create(folder, "title: t\n", PLAN, {})
    assert not (folder / "experiment.yaml").exists()


def test_an_experiment_given_for_a_result_is_told_apart(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("title: t\n")
    with pytest.raises(UsageError, match="is a file, not a result") as caught:
        Record(path)
    assert f"tare run {path}" in str(caught.value.remedy)
