"""`tare history` as its user has it: words, pictures, JSON, CSV, a page."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import histories
from needs import tare
from tare.errors import Exit


def history(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return tare("history", *argv, COLUMNS="100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("told")
    histories.runs(folder, [1.0] * 15 + [1.3] * 10)
    return folder


def test_the_overview_says_what_there_is_and_what_changed_last(folder):
    said = history(folder)
    assert said.returncode == Exit.OK, said.stderr
    row = next(line for line in said.stdout.splitlines() if "What does a container cost?" in line)
    assert re.search(
        r"25 +2026-01-01 +2026-01-25 +0 +slower container 1\.\d+ . \[1\.\d+, 1\.\d+\]", row
    )
    assert "since 2026-01-16" in row
    assert "cells: container, native" in said.stdout


def test_a_cell_is_a_picture_levels_and_runs(folder):
    said = history(folder, "--cell", "container")
    assert said.returncode == Exit.OK, said.stderr
    lines = said.stdout.splitlines()
    axis = next(i for i, line in enumerate(lines) if "└" in line)
    drawn = lines[axis - 10 : axis]
    assert sum(line.count("●") for line in drawn) == 25
    # The change is marked below the first run of the new level, which is drawn higher.
    place = lines[axis + 1].index("2")
    heights = [
        next(i for i, line in enumerate(drawn) if line[at : at + 1] == "●")
        for at in (place - 3, place)
    ]
    assert heights[1] < heights[0]
    level = next(line for line in lines if line.startswith("2 "))
    assert re.search(r"2026-01-16 00:00 +10 +9\.\d+\s\[.*slower 1\.3\d*\s", level)
    assert "the last 20 of 25 runs" in said.stdout
    assert "run-24" in said.stdout
    assert "run-04" not in said.stdout


def test_json_and_csv_hold_every_run(folder):
    (series,) = json.loads(history(folder, "--cell", "container", "--json").stdout)["series"]
    assert [step["at"] for step in series["steps"]] == [15]
    assert series["levels"]["environment"] == "container"
    rows = list(csv.DictReader(io.StringIO(history(folder, "--cell", "container", "--csv").stdout)))
    assert [row["folder"] for row in rows] == [f"run-{number:02}" for number in range(25)]
    assert [float(row["value"]) for row in rows] == [p["value"] for p in series["points"]]
    assert [row["level"] for row in rows] == ["1"] * 15 + ["2"] * 10
    assert [row["change"] for row in rows if row["change"]] == ["slower"]
    (row,) = csv.DictReader(io.StringIO(history(folder, "--csv").stdout))
    assert (row["runs"], row["changed_cell"]) == ("25", "container")
    assert json.loads(history(folder, "--json").stdout)["titles"][0]["runs"] == 25


def test_the_page_draws_the_runs_and_the_change_and_loads_nothing(folder, tmp_path):
    page = tmp_path / "page.html"
    said = history(folder, "--cell", "container", "--html", page)
    assert said.returncode == Exit.OK, said.stderr
    assert str(page) in said.stdout
    text = page.read_text()
    assert len(re.findall(r'<use href="#circle" transform', text)) == 25
    assert '<g class="slower">' in text
    assert "run-24" in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)


def test_the_distribution_has_a_row_a_level(folder):
    said = history(folder, "--cell", "container", "--distribution").stdout
    assert re.search(r"^2026-01-01 +30 +3.000 ", said, re.M)
    assert re.search(r"^2026-01-16 +20 +2.000 ", said, re.M)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--cell", "qemu"], "they have container, native"),
        (["--cell", "native", "--statistic", "p77"], "it has jitter, max, mean"),
        (["--statistic", "p99"], "are of one cell"),
        (["--since", "yesterday"], "--since takes a date or how long ago"),
        (["--since", "0001-01-01T00:00+14:00"], "--since takes a date or how long ago"),
        (["--json", "--csv"], "choose one"),
        (["--cell", "native", "--distribution", "--csv"], "ask for --json"),
        (["--title", "nothing"], "is of title nothing"),
    ],
)
def test_what_cannot_be_answered_says_what_can(folder, argv, said):
    found = history(folder, *argv)
    assert found.returncode == Exit.USAGE
    assert said in found.stderr
    assert "Traceback" not in found.stderr


def test_since_takes_a_date_or_how_long_ago(folder):
    rows = history(folder, "--cell", "native", "--since", "2026-01-20", "--csv").stdout.splitlines()
    assert len(rows) == 1 + 6
    assert "no run below" in history(folder, "--since", "1h").stderr


def test_what_is_left_out_is_told_beside(folder, tmp_path):
    histories.run(tmp_path, 0)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/plan.json").write_text("{")
    said = history(tmp_path)
    assert said.returncode == Exit.OK
    assert "note: broken: " in said.stderr
    assert json.loads(history(tmp_path, "--json").stdout)["skipped"][0]["folder"] == "broken"


def test_where_duckdb_is_missing_the_line_that_is_told_is_one_of_this_python(folder, tmp_path):
    (tmp_path / "duckdb.py").write_text("raise ImportError\n")
    beside = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    found = tare("history", folder, "--rebuild", PYTHONPATH=beside)
    assert found.returncode == Exit.UNAVAILABLE, found
    python = shlex.join([sys.executable, "-m", "pip", "install"])
    assert f"→ {python} " in found.stderr
    words = found.stderr.partition("→ ")[2].partition(" (")[0].split()
    tried = subprocess.run([*words, "--help"], capture_output=True, check=False, timeout=60)
    assert tried.returncode == 0, tried.stderr
