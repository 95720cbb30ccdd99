"""`tare measure` as it is typed."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from needs import needs_root
from tare.errors import Exit
from tare.record import Record

pytestmark = [pytest.mark.system, needs_root]

Typed = "subprocess.CompletedProcess[str]"


def tare(cwd: Path, *argv: str) -> Typed:
    return subprocess.run(
        [sys.executable, "-m", "tare", *argv],
        cwd=cwd, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip


def test_two_programs_are_compared_and_can_be_again(tmp_path: Path) -> None:
    # The same each time: what gzip makes of six in a hundred has a line that is a number.
    (tmp_path / "data").write_bytes(random.Random(1).randbytes(100_000))
    found = tare(
        tmp_path, "measure", "--against", "gzip -1 -c {file}", "-P", "file=data",
        "--blocks", "6", "-r", "2", "--read", r"size:B=^(\d+)$", "--shell", "sh",
        "--export-csv", "a.csv", "--export-markdown", "a.md", "--out", "result", "--takes", "10ms",
        "--", "gzip -9 -c {file} >out; wc -c <out",
    )  # fmt: skip
    assert found.returncode == Exit.TRIALS_FAILED, found.stderr
    # The other command prints no number: its trials fail, with what it printed instead.
    assert "no size was found" in found.stdout
    assert not (tmp_path / "out").exists(), "what it writes stays in its own layer"
    record = Record(tmp_path / "result")
    good = [trial for trial in record.trials() if trial.status == "ok"]
    assert len(good) == 6
    assert all(100_000 < trial.values["size"] < 100_100 for trial in good)
    assert all(trial.counters["executions"] == 2 for trial in good)
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert {row["command"] for row in rows} == {"new", "old"}
    assert (tmp_path / "a.md").read_text().count("\n") == 4
    again = tare(tmp_path, "run", "result/experiment.yaml", "--dry-run", "--json")
    cells = [cell["id"] for cell in json.loads(again.stdout)["cells"]]
    assert cells == [cell.id for cell in record.plan.cells]


def test_a_number_that_it_does_not_print_is_told_before_the_first_block(tmp_path: Path) -> None:
    found = tare(
        tmp_path, "measure", "--read", r"qps:1/s=qps (\d+)", "--show-output", "--out", "result",
        "--", "echo", "tps 5",
    )  # fmt: skip
    assert found.returncode == Exit.TRIALS_FAILED, found.stderr
    assert found.stdout == "tps 5\n", "it was asked for"
    assert "no qps was found there" in found.stderr
    assert "block" not in found.stderr
    assert not (tmp_path / "result").exists()


def test_what_a_command_prints_is_not_mixed_into_what_machines_read(tmp_path: Path) -> None:
    words = ("--blocks", "2", "-r", "1", "-w", "0", "--out", "result")
    found = tare(tmp_path, "measure", "--json", "--show-output", *words, "--", "echo", "hello you")
    assert found.returncode == Exit.OK, found.stderr
    assert json.loads(found.stdout)["result"] == "result"
    assert "hello you\n" in found.stderr


def test_a_number_that_is_not_judged_is_shown_also_where_it_is_zero(tmp_path: Path) -> None:
    read = ("--read", r"errors=(-?\d+) errors", "--read", r"size:B=(\d+) bytes")
    words = ("--blocks", "3", "-r", "1", "-w", "0", "--out", "result")
    line = ("--", "echo", "0 errors, 2000 bytes")
    found = tare(tmp_path, "measure", *words, *read, *line)
    assert found.returncode == Exit.OK, found.stderr
    heading, row = (found.stdout.splitlines()[n] for n in (3, 4))
    assert heading.split()[-3:] == ["errors", "size", "sessions"]
    assert row.split()[-4:] == ["0", "2.00", "kB", "3"]
    (cell,) = json.loads(tare(tmp_path, "show", "result", "--json").stdout)["cells"]
    assert cell["values"]["errors"] == {"unit": "1", "value": 0, "low": None, "high": None}
    assert cell["values"]["size"]["value"] == pytest.approx(2000)
    judged = tare(tmp_path, "measure", "--statistic", "errors", *read, "--out", "r", *line)
    assert judged.returncode == Exit.TRIALS_FAILED
    assert "errors was 0: only positive numbers can be judged" in judged.stderr


def test_a_command_alone_has_an_interval_and_a_report(tmp_path: Path) -> None:
    found = tare(
        tmp_path, "measure", "--blocks", "3", "-r", "1", "-w", "0", "--out", "result", "--",
        "true",
    )  # fmt: skip
    assert found.returncode == Exit.OK, found.stderr
    assert "The command true takes" in found.stdout
    assert "You measured starting" in found.stdout
    assert (tmp_path / "result" / "report.html").exists()
    assert not (tmp_path / "results").exists()


def test_what_is_not_brought_back_fails_the_run_and_is_on_record(tmp_path: Path) -> None:
    words = ("--blocks", "3", "-r", "1", "-w", "0", "--takes", "1ms", "--out", "result")
    found = tare(tmp_path, "measure", *words, "--keep", "never-made", "--", "true")
    assert found.returncode == Exit.TRIALS_FAILED, found.stderr
    assert "After its trials of block 0, native: cannot bring" in found.stdout
    record = Record(tmp_path / "result")
    assert {trial.status for trial in record.trials()} == {"ok"}
    assert {loss.block for loss in record.losses()} == {0, 1, 2}


def test_how_long_it_takes_is_told_with_what_is_beside_it(tmp_path: Path) -> None:
    words = ("--blocks", "3", "-r", "1", "-w", "0", "--prepare", "sleep 0.2", "--out", "result")
    found = tare(tmp_path, "measure", *words, "--", "true")
    assert found.returncode == Exit.OK, found.stderr
    assert Record(tmp_path / "result").plan.session.takes >= 200_000_000


def test_a_slip_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    wrong = "ls --no-such-option"
    for words in (
        ("--", wrong), ("--fail-on", "slower", "--against", "true", "--", wrong),
        ("--fail-on", "slower", "--against", wrong, "--", "true"),
    ):  # fmt: skip
        found = tare(tmp_path, "measure", "--out", "result", *words)
        assert found.returncode == Exit.TRIALS_FAILED
        assert "exit code 2; its last words: ls: unrecognized option" in found.stderr
        assert not (tmp_path / "result").exists()


def test_a_budget_is_held_against_what_the_command_takes(tmp_path: Path) -> None:
    done = tare(tmp_path, "measure", "-r", "200", "--budget", "2m", "--", "true")
    assert done.returncode == 0, done.stderr


def test_a_budget_that_is_no_time_is_told_before_anything_is_tried(tmp_path: Path) -> None:
    done = tare(tmp_path, "measure", "--budget", "5parsecs", "--", "true")
    assert done.returncode == Exit.USAGE
    assert "'5parsecs' has an unknown unit" in done.stderr
    assert "it took" not in done.stderr
