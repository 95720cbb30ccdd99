"""An experiment as an array job of Slurm: the script, and what becomes of its blocks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import records
from tare import experiment, plan, repetition
from tare.cli import app
from tare.errors import TareError, UnavailableError, UsageError
from tare.history import folder
from tare.record import Loss, Record
from tare.slurm import Asked, Job, apart, gather, ranges, submit, waiting

MPI = """\
title: t
workload: mpi-io
factors: {program: [grid], cache: [plain, nvio], filesystem: [tmpfs], ranks: [2, 6]}
baseline: {cache: plain}
blocks: {min: 8, max: 8, sessions: auto}
"""
ELSEWHERE = {**records.FINGERPRINT, "memory_bytes": 48 << 30}


@dataclass(frozen=True)
class Apart:
    """A whole run, and a job whose attempts repeat what it measured."""

    whole: Record
    job: Job

    def measured(
        self,
        block: int,
        fingerprint: Mapping[str, object] = records.FINGERPRINT,
        *,
        trials: int | None = None,
    ) -> Record:
        """An attempt at a block; so many of its trials, all if None."""
        attempt = self.job.begin(block, fingerprint)
        of_block = [trial for trial in self.whole.trials() if trial.block == block]
        with attempt.writing() as writer:
            for trial in of_block[:trials]:
                samples = self.whole.samples_path(trial)
                assert samples is not None
                shutil.copy(samples, attempt.folder / "samples")
                writer.append(trial)
        return attempt

    def gathered(self) -> tuple[int, str, str]:
        """What the command line ends with, prints and says."""
        ended = CliRunner().invoke(app, ["slurm", "--gather", str(self.job.folder)])
        return ended.exit_code, ended.stdout, ended.stderr

    def told(self) -> dict[str, Any]:
        """What it prints for machines."""
        words = ["slurm", "--gather", str(self.job.folder), "--json"]
        found: dict[str, Any] = json.loads(CliRunner().invoke(app, words).stdout)
        return found

    def again(self, *blocks: int) -> str:
        return f"sbatch --array={ranges(blocks)}%1 {self.job.script}"


def of_run(folder: Path, recipe: records.Recipe, text: str = records.EXPERIMENT) -> Apart:
    whole = records.make(folder / "whole", recipe, text)
    asked = Asked(tasks=4, seconds=600)
    made = (folder / "apart", text, whole.plan, asked, records.FINGERPRINT)
    return Apart(whole, Job.create(*made))


@pytest.fixture
def run(tmp_path: Path) -> Apart:
    return of_run(tmp_path, records.Recipe(blocks=12, requests=200))


def test_blocks_that_were_measured_apart_are_the_result_of_a_whole_run(run: Apart) -> None:
    loss = Loss(block=3, session="s", error="native: no room")
    last = Loss(block=11, session="t", error="native: still mounted")
    with run.measured(3).writing() as writer:
        writer.append(loss)
    for block in (0, 1, 2, *range(4, 11)):
        run.measured(block)
    attempt = run.measured(11)
    gather(run.job)
    with attempt.writing() as writer:
        writer.append(last)  # the task itself ended after that gathering
    found = gather(run.job)
    assert found.record is not None
    assert found.record.losses() == (loss, last)
    assert found.record.trials() == run.whole.trials()
    assert found.record.plan == run.whole.plan
    for trial in run.whole.trials():
        ours, theirs = found.record.samples_path(trial), run.whole.samples_path(trial)
        assert ours is not None
        assert theirs is not None
        assert ours.read_bytes() == theirs.read_bytes()
    assert (found.blocks, found.wanted, found.notes) == (tuple(range(12)), (), ())
    code, _, said = run.gathered()
    assert code == 4
    assert "12 blocks on record: 0-11" in said
    for command in ("report", "show", "export"):
        assert CliRunner().invoke(app, [command, str(run.job.folder)]).exit_code == 0


def test_missing_blocks_are_named_with_what_measures_them_and_come_later(run: Apart) -> None:
    for block in (0, 1, 4, 6, 7):
        run.measured(block)
    run.measured(3, trials=2)
    code, shown, said = run.gathered()
    assert code == 5
    assert f"report  {run.job.folder}" in shown
    assert "block 3 is not complete: 2 of its" in said
    assert "missing: 2-3,5" in said
    assert run.again(2, 3, 5) in said
    for block in (2, 3, 5):
        run.measured(block)
    found = gather(run.job)
    assert found.record is not None
    assert (found.blocks, found.missing) == (tuple(range(8)), ())
    assert sorted(t.key for t in found.record.trials()) == sorted(
        t.key for t in run.whole.trials() if t.block < 8
    )


def test_where_nothing_is_complete_all_is_missing_and_there_is_no_result(run: Apart) -> None:
    run.measured(0, trials=1)
    code, shown, said = run.gathered()
    assert (code, shown) == (5, "")
    assert run.again(*range(8)) in said
    assert not (run.job.folder / "plan.json").exists()
    told = run.told()
    assert "block 0 is not complete" in told.pop("notes")[0]
    wanted = {"missing": [*range(8)], "more": [], "waiting": []}
    assert told == {"blocks": [], **wanted, "report": None}


def test_what_is_missing_is_told_to_machines_beside_the_report(run: Apart) -> None:
    for block in (0, 3):
        run.measured(block)
    told = run.told()
    assert (told["blocks"], told["missing"]) == ([0, 3], [1, 2, 4, 5, 6, 7])
    assert Path(told["report"]["report"]).is_file()
    assert told["report"]["questions"]


def test_a_block_that_was_measured_twice_counts_once(run: Apart) -> None:
    run.measured(2, trials=3)
    first, second = run.measured(2), run.measured(2)
    found = gather(run.job)
    assert found.record is not None
    of_block = sum(trial.block == 2 for trial in run.whole.trials())
    assert len((found.record.folder / "trials.ndjson").read_bytes().splitlines()) == of_block
    said = f"{first.folder.name} counts, {second.folder.name} does not"
    assert found.notes == (f"block 2 was measured twice: {said}",)
    gather(run.job)
    assert len((found.record.folder / "trials.ndjson").read_bytes().splitlines()) == of_block


def test_a_block_of_another_experiment_does_not_count(run: Apart, tmp_path: Path) -> None:
    recipe = records.Recipe(seed=2, blocks=1, requests=200)
    stranger = of_run(tmp_path / "other", recipe).measured(0)
    run.measured(1)
    shutil.copytree(stranger.folder, run.job.folder / ".slurm/000-1")
    found = gather(run.job)
    assert found.blocks == (1,)
    assert [note.partition(" is ")[2] for note in found.notes] == [
        "of another experiment, and does not count"
    ]


def test_blocks_of_unlike_machines_are_not_merged(run: Apart) -> None:
    run.measured(0, ELSEWHERE)
    for block in range(1, 8):
        run.measured(block)
    found = gather(run.job)
    assert (found.blocks, found.missing) == (tuple(range(1, 8)), (0,))
    assert len(found.notes) == 1
    assert "block 0 does not count" in found.notes[0]
    assert "memory_bytes" in found.notes[0]
    run.measured(0)
    found = gather(run.job)
    assert (found.blocks, found.notes) == (tuple(range(8)), ())


def test_nodes_of_which_a_kernel_keeps_some_more_memory_are_alike(run: Apart) -> None:
    run.measured(0, {**records.FINGERPRINT, "memory_bytes": (24 << 30) - 400_000})
    run.measured(1)
    found = gather(run.job)
    assert (found.blocks, found.notes) == ((0, 1), ())


def test_the_machine_that_measured_most_counts_also_after_another_was_gathered(run: Apart) -> None:
    run.measured(0, ELSEWHERE)
    assert gather(run.job).blocks == (0,)
    run.measured(1)
    assert gather(run.job).blocks == (0,)  # as many: what is on record stays
    run.measured(2)
    found = gather(run.job)
    assert found.record is not None
    assert found.blocks == (1, 2)
    assert found.record.fingerprint.whole == records.FINGERPRINT
    assert {trial.block for trial in found.record.trials()} == {1, 2}
    kept = {path.name for path in (found.record.folder / "samples").iterdir()}
    assert kept == {trial.samples for trial in found.record.trials()}
    assert "fewer blocks than another" in found.notes[0]
    assert "block 0 does not count" in found.notes[1]
    again = gather(run.job)
    assert (again.blocks, len(again.notes)) == ((1, 2), 1)


def test_what_a_killed_gathering_left_comes_again_whole(run: Apart) -> None:
    for block in range(2):
        run.measured(block)
    (run.job.folder / "samples").mkdir()  # killed before there was a plan
    gather(run.job)
    lines = (run.job.folder / "trials.ndjson").read_bytes().splitlines(keepends=True)
    (run.job.folder / "trials.ndjson").write_bytes(b"".join(lines[:-3]) + lines[-3][:9])
    found = gather(run.job)
    assert found.record is not None
    assert {t.key: t for t in found.record.trials()} == {
        t.key: t for t in run.whole.trials() if t.block < 2
    }


def test_wide_intervals_ask_for_more_blocks_and_narrow_ones_for_none(tmp_path: Path) -> None:
    wide = of_run(tmp_path / "wide", records.Recipe(blocks=8, requests=200, spread=0.05))
    for block in range(8):
        wide.measured(block)
    code, _, said = wide.gathered()
    assert code == 5
    assert "intervals are still wide, more are needed: 8-11" in said
    assert wide.again(8, 9, 10, 11) in said
    same = records.Recipe(blocks=8, requests=2000, spread=0.0)
    text = records.EXPERIMENT.replace(", fastdds", "")  # which has modes
    narrow = of_run(tmp_path / "narrow", same, text)
    for block in range(8):
        narrow.measured(block)
    assert gather(narrow.job).wanted == ()


def test_the_folder_of_another_plan_is_left_alone(run: Apart, tmp_path: Path) -> None:
    other = records.make(tmp_path / "other", records.Recipe(seed=2, blocks=2, requests=200))
    shutil.copytree(other.folder, run.job.folder, dirs_exist_ok=True)
    with pytest.raises(UsageError, match="holds the result of another plan than its jobs'"):
        gather(run.job)


def test_a_script_asks_for_one_task_a_block_and_survives_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a 'b' 50%"
    asked = Asked(4, 61.0, "fast", 3, ("--account=my project",))
    text = asked.script(folder, (0, 1, 2, 5))
    options = [line for line in text.splitlines() if line.startswith("#SBATCH ")]
    assert "#SBATCH --array=0-2,5%3" in options
    for wanted in ("--ntasks=4", "--nodes=1", "--time=2", "--partition=fast", "--exclusive"):
        assert f"#SBATCH {wanted}" in options
    assert "#SBATCH '--account=my project'" in options
    assert "50%%/logs/%a-%A.log" in text
    # What the shell makes of its last line.
    asks = text.replace("exec ", "printf '%s\\n' ", 1)
    by_slurm = {"SLURM_ARRAY_TASK_ID": "7", "SLURMD_NODENAME": "node3"}
    done = subprocess.run(
        ["sh", "-euc", asks], env={"PATH": "/usr/bin:/bin", "HOME": "/home/me", **by_slurm},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-4:] == ["--run", str(folder), "--block", "7"]


def test_ranges_are_written_as_sbatch_reads_them() -> None:
    assert ranges([7, 0, 1, 2, 4]) == "0-2,4,7"
    assert ranges([]) == ""


def planned(text: str) -> plan.Plan:
    return repetition.planned(plan.make(experiment.parse(text, "t.yaml"), 1))


def test_sessions_stay_as_planned_since_blocks_cannot_tell_each_other() -> None:
    whole = planned(MPI)
    fixed = apart(whole)
    assert fixed.sessions == whole.sessions
    assert fixed.experiment.blocks.sessions == 1
    assert "sessions of a cell stay as many as planned" in fixed.cuts[-1]
    told = planned(MPI.replace("auto", "3"))
    assert apart(told) == told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (records.EXPERIMENT, "is for MPI programs, and request-reply starts none"),
        (MPI + "gate: {}\n", "a gate ends a run by what its blocks have told"),
    ],
)
def test_what_cannot_be_measured_apart_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        apart(planned(text))


def test_what_is_no_folder_of_jobs_is_said_so(run: Apart) -> None:
    with pytest.raises(UsageError, match="was not made by `tare slurm FILE`"):
        Job(run.whole.folder)
    with pytest.raises(UsageError, match="has no block 12"):
        run.job.begin(12, records.FINGERPRINT)
    with pytest.raises(TareError, match="it exists"):
        asked = Asked(tasks=4, seconds=600)
        Job.create(run.job.folder, "", run.whole.plan, asked, records.FINGERPRINT)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give one of: an experiment file"),
        (["x.yaml", "--gather", "y"], "give one of: an experiment file"),
        (["--run", "x"], "--run FOLDER and --block NUMBER go together"),
        (["x.yaml", "--block", "1"], "--run FOLDER and --block NUMBER go together"),
        (["--gather", "x", "--submit"], "take no more"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CliRunner().invoke(app, ["slurm", *words], catch_exceptions=False)


def on_path(folder: Path, name: str, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_what_sbatch_refuses_is_written_all_the_same(
    run: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path(tmp_path, "sbatch", "echo invalid partition >&2; exit 1", monkeypatch)
    with pytest.raises(UnavailableError, match=r"and not submitted: .*invalid part"):
        submit(run.job.script)


def test_no_task_bears_the_mark_of_who_submitted_it(
    run: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has ended by then: `tare clean` would kill the task."""
    on_path(tmp_path, "sbatch", 'echo "${TARE_OWNER-nobody} $MINE"', monkeypatch)
    monkeypatch.setenv("MINE", "too")
    monkeypatch.setenv("TARE_OWNER", "1:1")
    assert submit(run.job.script) == "nobody too"
    asks = run.job.script.read_text().replace("exec ", "env; exit # ", 1)
    given = {"PATH": "/usr/bin:/bin", "HOME": "/home/me", "TARE_OWNER": "1:1"}
    done = subprocess.run(["sh", "-c", asks], env=given, capture_output=True, text=True, check=True)
    assert "XDG_STATE_HOME=" in done.stdout
    assert "TARE_OWNER" not in done.stdout


def test_a_folder_knows_its_tasks_by_whatever_path_it_is_named(
    run: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(run.job.folder.parent)
    by_link = tmp_path / "link" / "another"
    asked = Asked(tasks=4, seconds=600)
    job = Job.create(by_link, records.EXPERIMENT, run.whole.plan, asked, records.FINGERPRINT)
    comment = re.search("--comment=(.*)", job.script.read_text())
    assert comment
    on_path(tmp_path, "squeue", f"echo '5 {comment[1]}'", monkeypatch)
    assert waiting(by_link) == waiting(by_link.resolve()) == frozenset({5})


def test_blocks_in_the_queue_are_not_asked_for_again(
    run: Apart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run.job.folder
    queue = f"printf '%s\\n' '5 {folder}' 'N/A {folder}' '6 {folder}' '7 {folder}2' '0 (null)'"
    on_path(tmp_path, "squeue", queue, monkeypatch)
    _, _, said = run.gathered()
    assert "waiting or running: 5-6; gather again" in said
    assert run.again(0, 1, 2, 3, 4, 7) in said
    on_path(tmp_path, "squeue", "exit 1", monkeypatch)
    _, _, said = run.gathered()
    assert run.again(*range(8)) in said


def test_parts_are_no_results_of_their_own(run: Apart) -> None:
    """Else a history would count a block as a run."""
    for block in range(3):
        run.measured(block)
    assert "apart" not in [path for path, _ in folder.results(str(run.job.folder.parent))]
    gather(run.job)
    below = [path for path, _ in folder.results(str(run.job.folder.parent))]
    assert below == ["apart", "whole"]
