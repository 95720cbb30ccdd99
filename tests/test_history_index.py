"""What is kept of a folder's results is as new as they are, whatever happens to either."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

import histories
from tare.errors import TareError, UsageError
from tare.history import index as indexing
from tare.history import query, samples, summary
from tare.history.index import Index
from tare.history.query import Filter

EVERY = Filter()


def told(index):
    return {one.folder: one.why for one in query.skipped(index)}


def values(index, cell="container"):
    (series,) = query.cell_history(index, cell, None, EVERY)
    return {point.folder: point.value for point in series.points}


def test_only_what_is_new_or_has_changed_is_read(tmp_path):
    histories.runs(tmp_path, [1.0] * 3)
    assert histories.refreshed(tmp_path)[1] == 3
    assert histories.refreshed(tmp_path)[1] == 0
    histories.run(tmp_path, 3)
    assert histories.refreshed(tmp_path)[1] == 1
    trials = tmp_path / "run-01" / "trials.ndjson"
    lines = trials.read_text().splitlines(keepends=True)
    trials.write_text("".join(line for line in lines if '"block":0' in line))
    index, read = histories.refreshed(tmp_path)
    assert read == 1
    (series,) = query.cell_history(index, "native", None, EVERY)
    assert [point.sessions for point in series.points] == [2, 1, 2, 2]
    assert histories.refreshed(tmp_path, anew=True)[1] == 4


def test_a_result_that_is_gone_is_forgotten_and_one_that_moved_is_where_it_is(tmp_path):
    histories.runs(tmp_path, [1.0] * 3)
    before = values(histories.refreshed(tmp_path)[0])
    shutil.rmtree(tmp_path / "run-00")
    (tmp_path / "archive/2026").mkdir(parents=True)
    (tmp_path / "run-01").rename(tmp_path / "archive/2026/run-01")
    assert values(histories.refreshed(tmp_path)[0]) == {
        "archive/2026/run-01": before["run-01"],
        "run-02": before["run-02"],
    }


@pytest.mark.parametrize("link", [".history", ".history/v3", "lock", "runs.making", "none.making"])
def test_no_link_beside_the_results_leads_to_a_file_that_is_written(tmp_path, link):
    """The results may be a stranger's."""
    folder, mine = tmp_path / "results", tmp_path / "mine"
    histories.run(folder, 0)
    home = Index(folder).home
    path = folder / link if link.startswith(".") else home / link
    path.parent.mkdir(parents=True, exist_ok=True)
    mine.mkdir()
    (mine / "a.file").write_text("mine")
    path.symlink_to(mine if link.startswith(".") else mine / "a.file")
    with pytest.raises(UsageError, match="is a link"):
        histories.refreshed(folder)
    assert [one.name for one in mine.iterdir()] == ["a.file"]
    assert (mine / "a.file").read_text() == "mine"


def test_no_run_has_the_values_of_one_that_is_gone(tmp_path):
    """Of which a part that others share still holds what was read."""
    histories.runs(tmp_path, [1.0, 2.0, 4.0])
    before = values(histories.refreshed(tmp_path)[0])
    shutil.rmtree(tmp_path / "run-02")
    assert len(values(histories.refreshed(tmp_path)[0])) == 2
    histories.run(tmp_path, 3, 8.0)
    after = values(histories.refreshed(tmp_path)[0])
    assert list(after) == ["run-00", "run-01", "run-03"]
    assert after["run-03"] > 1.5 * before["run-02"]
    os.utime(tmp_path / "run-03/plan.json")
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "container", None, EVERY)
    assert len(series.points) == 3


def test_a_folder_is_read_by_its_name_whatever_is_in_it(tmp_path):
    """To DuckDB brackets are a pattern, and x=5 a column."""
    folder = tmp_path / "*[v1]?" / "entry=1"
    histories.runs(folder, [1.0] * 2)
    histories.run(tmp_path / "x[v1]y" / "entry=1", 0, 3.0)
    histories.refreshed(tmp_path / "x[v1]y" / "entry=1")
    odd = folder / "sent_ns=2 run-[1]"
    (folder / "run-01").rename(odd)
    index = histories.refreshed(folder)[0]
    found = values(index)
    assert len(found) == 2
    (series,) = query.cell_history(index, "container", None, EVERY)
    (level,) = samples.distributions(folder, series, lambda _done, _of: None)
    assert (level.sessions, level.left_out) == (4, ())
    assert histories.refreshed(folder)[1] == 0


def test_many_small_parts_become_one_and_tell_the_same(tmp_path, monkeypatch):
    histories.runs(tmp_path, [1.0] * 4)
    before = values(histories.refreshed(tmp_path)[0])
    monkeypatch.setattr(indexing, "_COMMIT_S", 0.0)
    monkeypatch.setattr(indexing, "_MANY_PARTS", 2)
    index = histories.refreshed(tmp_path, anew=True)[0]
    assert len(set(pq.read_table(index.runs)["part"].to_pylist())) == 1
    assert values(index) == before
    # The parts that it was made of go with the next refresh: somebody may be reading them.
    histories.run(tmp_path, 4)
    index = histories.refreshed(tmp_path)[0]
    assert len(list(index.home.glob("*.parquet"))) == 4  # the runs, none, the merged, the new one
    assert before.items() < values(index).items()


_KILLED = """
import os, signal, sys
from pathlib import Path
from tare.history import index
index._COMMIT_S = 0.0
def tell(done, of):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
index.Index(Path(sys.argv[1])).refresh(tell, anew="anew" in sys.argv)
"""


def kill_a_refresh(folder, *how):
    done = subprocess.run([sys.executable, "-c", _KILLED, folder, *how], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL


def test_a_refresh_that_is_killed_loses_nothing_that_it_had_read(tmp_path):
    histories.runs(tmp_path, [1.0] * 6)
    kill_a_refresh(tmp_path)
    left = Index(tmp_path).home / "half.making"
    left.write_bytes(b"torn")
    index, read = histories.refreshed(tmp_path)
    assert read == 3
    assert len(values(index)) == 6
    assert not left.exists()


def test_a_rebuild_that_is_killed_leaves_what_can_be_asked(tmp_path):
    histories.runs(tmp_path, [1.0] * 6)
    before = values(histories.refreshed(tmp_path)[0])
    kill_a_refresh(tmp_path, "anew")
    assert values(Index(tmp_path)).items() <= before.items()
    assert values(histories.refreshed(tmp_path)[0]) == before


def test_while_another_refreshes_what_there_is_can_be_asked(tmp_path):
    histories.runs(tmp_path, [1.0] * 2)
    index, _ = histories.refreshed(tmp_path)
    histories.run(tmp_path, 2)
    with (index.home / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not index.refresh(lambda _done, _of: None)
        assert len(values(index)) == 2
    assert len(values(histories.refreshed(tmp_path)[0])) == 3


def test_refreshes_at_once_read_each_result_into_one_history(tmp_path):
    histories.runs(tmp_path, [1.0] * 6)
    argv = [sys.executable, "-m", "tare", "history", tmp_path, "--cell", "native", "--json"]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in "ab"]
    said = [one.communicate(timeout=120) for one in both]
    assert {one.returncode for one in both} == {0}, said
    assert len(values(histories.refreshed(tmp_path)[0])) == 6


def test_what_is_broken_or_foreign_is_told_and_costs_nothing_else(tmp_path):
    histories.runs(tmp_path, [1.0] * 9)
    whole = values(histories.refreshed(tmp_path)[0])
    (tmp_path / "run-00/environment.json").unlink()
    (tmp_path / "run-01/plan.json").write_text("{")
    (tmp_path / "run-02/plan.json").unlink()
    (tmp_path / "run-03/trials.ndjson").write_text("")
    with (tmp_path / "run-04/trials.ndjson").open("a") as trials:
        trials.write("no trial\n")
    plan = tmp_path / "run-05/plan.json"
    plan.write_text(plan.read_text().replace("request-reply", "of-tomorrow"))
    (tmp_path / "run-06/environment.json").write_bytes(b"\xff\xfe")
    sample = next((tmp_path / "run-07/samples").iterdir())
    sample.rename(tmp_path / "run-07/lost")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/plan.txt").write_text("not a result")
    (tmp_path / ".cache/x").mkdir(parents=True)
    (tmp_path / ".cache/x/plan.json").write_text("{}")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/experiment.yaml").write_text("title: mine\n")
    (tmp_path / "run-08").rename(tmp_path / "project/run-08")
    no_text = os.fsdecode(bytes(tmp_path) + b"/caf\xe9")
    shutil.copytree(tmp_path / "project/run-08", no_text)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to("circle")
    index, _ = histories.refreshed(tmp_path)
    why = told(index)
    for folder, words in {
        "run-00": "environment.json cannot be read",
        "run-01": "plan.json cannot be read",
        "run-02": "it has no plan.json",
        "run-03": "holds no trial yet",
        "run-04": "is not a Trial",
        "run-05": "'of-tomorrow' is no workload of this version",
        "run-06": "is no fingerprint",
        "run-07": "1 of 6 sessions are left out: cannot use the samples",
        r"caf\xe9": "is not a result",
        "circle": "is not a result",
    }.items():
        assert words in why.pop(folder), folder
    assert not why
    left = values(index, "container").items() | values(index, "native").items()
    assert {folder for folder, _ in left} == {"run-07", "project/run-08"}
    assert values(index)["project/run-08"] == whole["run-08"]


def test_what_is_mended_comes_back(tmp_path):
    histories.runs(tmp_path, [1.0] * 2)
    environment = tmp_path / "run-00/environment.json"
    text = environment.read_text()
    environment.unlink()
    assert set(values(histories.refreshed(tmp_path)[0])) == {"run-01"}
    environment.write_text(text)
    index, read = histories.refreshed(tmp_path)
    assert read == 1
    assert set(values(index)) == {"run-00", "run-01"}
    assert not told(index)


def test_what_could_not_be_read_is_tried_again_though_no_file_of_it_has_changed(
    tmp_path, monkeypatch
):
    """A disk that failed for a moment, or a right that was given since."""
    histories.runs(tmp_path, [1.0] * 2)
    with monkeypatch.context() as failing:
        failing.setattr(summary, "_read", lambda record: record.folder.joinpath("x").read_text())
        histories.refreshed(tmp_path)
    index, read = histories.refreshed(tmp_path)
    assert read == 2
    assert set(values(index)) == {"run-00", "run-01"}


def test_what_can_never_be_read_is_not_written_down_each_time(tmp_path):
    histories.runs(tmp_path, [1.0] * 2)
    (tmp_path / "run-00" / "plan.json").write_text("{")
    index, _ = histories.refreshed(tmp_path)
    made = index.runs.stat().st_ino
    _, read = histories.refreshed(tmp_path)
    assert read == 1  # tried again
    assert index.runs.stat().st_ino == made


def test_a_run_whose_course_cannot_be_read_keeps_its_values(tmp_path):
    record = histories.run(tmp_path, 0)
    (record.folder / "course.ndjson").write_text('{"of": "a later version"}\n')
    index, _ = histories.refreshed(tmp_path)
    assert set(values(index)) == {"run-00"}
    assert "how far it got cannot be told" in told(index)["run-00"]


def test_a_copy_counts_once_and_the_one_with_more_trials_is_it(tmp_path):
    histories.runs(tmp_path, [1.0] * 2)
    shutil.copytree(tmp_path / "run-00", tmp_path / "copy")
    trials = tmp_path / "copy" / "trials.ndjson"
    trials.write_text("".join(trials.read_text().splitlines(keepends=True)[:-1]))
    index, _ = histories.refreshed(tmp_path)
    assert set(values(index)) == {"run-00", "run-01"}
    assert told(index) == {"copy": "a copy of run-00, which counts once"}
    assert query.overview(index, EVERY)[0].runs == 2


def test_a_clock_that_went_back_or_ahead_is_told(tmp_path):
    histories.run(tmp_path, 0)
    histories.run(tmp_path, 30_000)  # days
    trials = tmp_path / "run-00" / "trials.ndjson"
    lines = [json.loads(line) for line in trials.read_text().splitlines()]
    lines[-1]["started"] = "1970-01-01T00:00:03.000+00:00"
    trials.write_text("".join(json.dumps(line) + "\n" for line in lines))
    why = told(histories.refreshed(tmp_path)[0])
    assert "its clock went backwards" in why["run-00"]
    assert "it is of the future (2108" in why["run-30000"]


def test_a_run_that_has_not_ended_is_told(tmp_path):
    histories.run(tmp_path, 0)
    trials = tmp_path / "run-00" / "trials.ndjson"
    whole = trials.read_text()
    trials.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert told(histories.refreshed(tmp_path)[0]) == {
        "run-00": "the run has not ended: 1 of at least 2 blocks are on record"
    }
    trials.write_text(whole)
    assert not told(histories.refreshed(tmp_path)[0])


def test_a_trial_that_was_tried_again_is_no_clock_that_went_back(tmp_path):
    record = histories.run(tmp_path, 0)
    trials = record.folder / "trials.ndjson"
    first = json.loads(trials.read_text().splitlines()[0])
    with trials.open("a") as file:
        file.write(json.dumps({**first, "started": "2026-01-01T05:00:00.000+00:00"}) + "\n")
    index, _ = histories.refreshed(tmp_path)
    assert not told(index)
    (series,) = query.cell_history(index, "native", None, EVERY)
    assert f"{series.points[0].started:%H:%M}" == "00:00"


def test_times_of_a_zone_are_told_in_utc(tmp_path):
    record = histories.run(tmp_path, 0)
    trials = record.folder / "trials.ndjson"
    trials.write_text(trials.read_text().replace("+00:00", "+02:00"))
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "native", None, EVERY)
    assert f"{series.points[0].started:%Y-%m-%d %H:%M}" == "2025-12-31 22:00"


def test_where_the_folder_cannot_be_written_the_history_is_kept_in_the_cache(tmp_path, monkeypatch):
    histories.runs(tmp_path / "results", [1.0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # Root may write anywhere but on a read-only file system.
    asked = os.access
    refused = tmp_path / "results"
    monkeypatch.setattr(os, "access", lambda path, how: path != refused and asked(path, how))
    index, read = histories.refreshed(refused)
    assert read == 1
    assert index.home.is_relative_to(tmp_path / "cache/tare/history")
    assert not (refused / ".history").exists()
    assert len(values(index)) == 1


def test_a_history_that_is_damaged_says_how_to_make_it_anew(tmp_path):
    histories.runs(tmp_path, [1.0])
    index, _ = histories.refreshed(tmp_path)
    index.runs.write_bytes(b"PAR1 no more")
    with pytest.raises(TareError) as error:
        histories.refreshed(tmp_path)
    assert "--rebuild" in error.value.remedy
    assert histories.refreshed(tmp_path, anew=True)[1] == 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _folder: None, "there is no folder"),
        (lambda folder: folder.mkdir(), "there is no result below"),
        (lambda folder: histories.run(folder, 0).folder.rename(folder.parent / "x"), "no result"),
    ],
)
def test_a_folder_without_results_is_refused(tmp_path, make, said):
    make(tmp_path / "r")
    with pytest.raises(UsageError, match=said):
        histories.refreshed(tmp_path / "r")


def test_one_result_is_no_folder_of_results(tmp_path):
    record = histories.run(tmp_path, 0)
    with pytest.raises(UsageError) as error:
        Index(record.folder)
    assert error.value.remedy.endswith(f"tare history {tmp_path}")
    assert not (record.folder / ".history").exists()
