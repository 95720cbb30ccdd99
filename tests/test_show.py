"""`tare show`: the verdicts in the terminal, of whatever is on record, also while it runs."""

import json
import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import records
from needs import refused, tare
from tare import analysis, catalogue
from tare.errors import UsageError
from tare.record import Record
from tare.report import terminal
from tare.report.whiskers import Ruler, Ticks, Whisker
from tare.stats import Interval
from tare.stats.interval import Method

TEXT = """\
title: "A container?"
factors: {environment: [native, container], transport: [udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""


def drawn(record: Record, width: int) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(terminal.summary(analysis.analyse(record)))
    return console.export_text()


def test_blocks_are_counted_whatever_sessions_each_has(tmp_path):
    text = records.EXPERIMENT.replace("until: 3 %", "until: 3 %, sessions: 3")
    records.make(tmp_path / "r", records.Recipe(blocks=4, requests=20), text)
    (listed,) = catalogue.results(tmp_path)
    assert "in 4 blocks" in listed.state


def test_the_verdict_is_said_in_a_sentence_with_a_row_and_a_picture(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(scale={"container": 1.3}), TEXT)
    found = tare("show", str(record.folder))
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "A container?"
    assert lines[1].startswith("In the container (runc): slower, 1.")
    (row,) = [line for line in lines if line.startswith("slower")]
    assert "\N{BLACK CIRCLE}" in row.partition("\N{MULTIPLICATION SIGN}")[0]
    assert not (record.folder / "report.html").exists()


def test_the_noise_floor_is_no_smaller_for_arms_that_agree_by_luck(tmp_path):
    # Each arm of the pair has one session in eight that takes ten times as long: their means agree.
    stray = {(2, "native"): 10.0, (5, "native#2"): 10.0}
    record = records.make(tmp_path / "r", records.Recipe(stray=stray), TEXT)
    said = drawn(record, 200)
    largest, found = re.search(
        r"the same cell twice differed by at most ([0-9.]+)\s%; a difference of ([0-9]+)\s%", said
    ).groups()
    assert float(largest) < 5
    assert float(found) > 100
    told = json.loads(tare("show", str(record.folder), "--json").stdout)
    assert told["found_percent"] > 100


def test_on_a_narrow_terminal_the_picture_stands_below_and_no_figure_is_cut(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(scale={"container": 1.3}), TEXT)
    wide, narrow = drawn(record, 130), drawn(record, 80)
    assert "\N{BLACK CIRCLE}" in next(x for x in wide.splitlines() if x.startswith("slower"))
    assert "\N{BLACK CIRCLE}" not in next(x for x in narrow.splitlines() if x.startswith("slower"))
    assert narrow.count("\N{BLACK CIRCLE}") == 1
    assert "[95 %]" in narrow


def test_what_machines_are_told_is_the_same(tmp_path):
    recipe = records.Recipe(scale={"container": 1.3}, failing=frozenset({(2, "container")}))
    record = records.make(tmp_path / "r", recipe, TEXT)
    said = json.loads(tare("show", str(record.folder), "--json").stdout)
    (row,) = said["comparisons"]
    assert (row["cell"], row["against"], row["verdict"]) == ("container", "native", "slower")
    assert row["ratio"]["low"] < 1.3 < row["ratio"]["high"]
    assert row["here"]["estimate"] == pytest.approx(6900 * 1.3, rel=0.05)
    assert (said["statistic"], said["unit"], said["running"]) == ("p50", "ns", False)
    assert said["failed"] == [{"cell": "container", "block": 2, "error": recipe.error}]


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_run_that_has_not_ended_is_provisional_and_said_to_be_running(tmp_path, blocks):
    record = records.make(tmp_path / "r", records.Recipe(blocks=blocks), TEXT)
    with record.writing():
        found = tare("show", str(record.folder))
        assert json.loads(tare("show", str(record.folder), "--json").stdout)["running"]
        with pytest.raises(Exception, match="another tare is writing"), record.writing():
            pass
    assert found.returncode == 0, found.stderr
    assert f"{blocks} of at least 8" in found.stdout
    assert "running now" in found.stdout
    assert "running now" not in tare("show", str(record.folder)).stdout


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(), TEXT)
    with (record.folder / "trials.ndjson").open("a") as file:
        file.write('{"block": 9, "pos')
    assert tare("show", str(record.folder)).returncode == 0


def test_without_a_name_the_result_that_was_written_last_is_shown(tmp_path):
    old = records.make(tmp_path / "results" / "old", records.Recipe(), TEXT)
    new = records.make(tmp_path / "results" / "new", records.Recipe(), TEXT)
    os.utime(old.folder / "trials.ndjson", (1, 1))
    assert f"result  {new.folder.relative_to(tmp_path)}" in tare("show", cwd=tmp_path).stdout
    assert catalogue.newest(tmp_path / "results") == new.folder
    os.utime(new.folder / "trials.ndjson", (0, 0))
    assert catalogue.newest(tmp_path / "results") == old.folder


def test_a_suite_is_shown_part_by_part_and_is_the_newest_as_a_whole(tmp_path):
    whole = tmp_path / "results" / "whole"
    for part in ("one", "two"):
        records.make(whole / part, records.Recipe(), TEXT)
    (whole / "suite.json").write_text(
        json.dumps({"title": "Both", "description": "", "parts": ["one", "two"], "absent": {}})
    )
    assert catalogue.newest(tmp_path / "results") == whole
    said = json.loads(tare("show", "--json", cwd=tmp_path).stdout)
    assert list(said["parts"]) == ["one", "two"]
    assert tare("show", cwd=tmp_path).stdout.count("A container?") == 2


def test_where_there_is_no_result_that_is_said(tmp_path):
    refused("there is no result in results/", "show", cwd=tmp_path)
    with pytest.raises(UsageError, match="there is no result in"):
        catalogue.newest(tmp_path)


def interval(low: float | None, estimate: float | None, high: float | None) -> Interval:
    return Interval(estimate, low, high, 0.95, Method.T, 8)


@given(
    ends=st.lists(st.floats(1e-3, 1e3), min_size=3, max_size=3).map(sorted),
    margin=st.floats(0.001, 0.9),
    width=st.integers(12, 40),
)
def test_an_interval_is_drawn_where_it_lies_on_the_axis(ends, margin, width):
    low, estimate, high = ends
    ratio = interval(low, estimate, high)
    axis = Ruler.over([ratio], margin)
    line = Whisker(axis, ratio).drawn(width).plain
    assert len(line) == width
    assert line.index("\N{BLACK CIRCLE}") == axis.column(estimate, width)
    one = axis.column(1.0, width)
    if not axis.column(low, width) <= one <= axis.column(high, width):
        assert line[one] == "\N{BOX DRAWINGS LIGHT VERTICAL}"
        assert (line.index("\N{BLACK CIRCLE}") > one) == (estimate > 1.0)
    assert len(Ticks(axis).drawn(width).plain) == width


def test_what_was_not_measured_is_a_line_without_a_mark():
    absent = interval(None, None, None)
    assert "\N{BLACK CIRCLE}" not in Whisker(Ruler.over([absent], 0.03), absent).drawn(20).plain
    bare = interval(None, 2.0, None)
    assert "\N{BLACK CIRCLE}" in Whisker(Ruler.over([bare], 0.03), bare).drawn(20).plain


def test_a_whisker_that_goes_on_beyond_its_axis_ends_in_an_arrow():
    wild, tame = (
        Interval(1.0, low, high, 0.95, Method.T, 2) for low, high in ((1e-9, 1e9), (0.9, 1.1))
    )
    ruler = Ruler.over([wild, tame], 0.03)
    assert ruler.high / ruler.low < 1000
    assert Whisker(ruler, wild).drawn(21).plain == "←─────────●─────────→"
    assert "→" not in Whisker(ruler, tame).drawn(21).plain
