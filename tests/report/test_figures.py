"""Figures are data: axes are marked whatever they span, and strips say what the analysis says."""

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import records
from tare import analysis, report
from tare.report import figures, tables, wording
from tare.report.figures.axis import Axis, plain, written

STEADY = settings(deadline=None, derandomize=True, max_examples=300)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return analysis.analyse(records.make(tmp_path_factory.mktemp("figures") / "r"))


@pytest.fixture(scope="module")
def drawn(found):
    return figures.draw(found, wording.names_of(found))


@STEADY
@given(least=st.floats(1e-3, 1e9), factor=st.floats(1.001, 1e12), log=st.booleans())
def test_any_axis_has_marks_that_lie_apart_and_in_order(least, factor, log):
    axis = Axis([least, least * factor], written("ns"), log=log)
    places = [place for place, _ in axis.marks]
    assert len(places) >= 2
    assert all(b - a >= 17 for a, b in pairwise(places))
    assert len({text for _, text in axis.marks}) == len(places), "two marks read alike"


def test_an_axis_of_one_value_is_an_axis_too():
    assert Axis([7.0], plain).at(7.0) == pytest.approx(50.0)
    assert Axis([], plain).marks


@pytest.mark.parametrize("log", [True, False])
def test_values_that_differ_by_a_rounding_are_in_the_middle(log: bool) -> None:
    # As the ends of an interval over blocks that all took the same.
    axis = Axis([25_083.0, math.nextafter(25_083.0, math.inf)], plain, log=log)
    assert axis.at(25_083.0) == pytest.approx(50.0, abs=0.1)
    assert axis.marks


def test_what_lies_outside_of_an_axis_is_put_at_its_end():
    axis = Axis([1.0, 10.0], plain)
    assert (axis.at(0.0), axis.at(1e9)) == (0.0, 100.0)


def test_the_picture_holds_every_comparison_by_environment_with_the_margin(found, drawn):
    picture = drawn["answers"]
    assert [group.heading for group in picture.groups] == ["Container (runc)", "QEMU guest (TCG)"]
    assert sum(len(group.rows) for group in picture.groups) == len(found.questions)
    for group in picture.groups:
        low, high = group.band
        assert 0 < group.axis.at(low) < group.axis.at(1.0) < group.axis.at(high) < 100
    point, line = picture.groups[1].rows[1].marks[1], picture.groups[1].rows[1].marks[0]
    asked = next(q for q in found.questions if q.cell.id == "qemu/udp")
    assert (line.start, point.start, line.end) == (
        asked.ratio.ratio.low,
        asked.ratio.ratio.estimate,
        asked.ratio.ratio.high,
    )
    assert point.style == "slower"


def test_members_beyond_the_colours_have_a_shape_of_their_own():
    styles = figures.figure.series(str(threads) for threads in range(20))
    looks = {(style.split()[0], figures.figure.shape(style)) for style in styles.values()}
    assert len(looks) == 20
    assert [*styles.values()][:7] == [f"c{i}" for i in range(7)]


def test_groups_of_unlike_size_have_an_axis_each_and_alike_ones_share_one(drawn):
    assert drawn["answers"].groups[0].axis is not drawn["answers"].groups[1].axis
    assert len({id(group.axis) for group in drawn["levels"].groups}) == 1


def test_an_interval_without_end_does_not_press_the_others_together(tmp_path):
    recipe = records.Recipe(blocks=2, requests=50, spread=0.8)
    wild = analysis.analyse(records.make(tmp_path / "r", recipe))
    picture = figures.draw(wild, wording.names_of(wild))["answers"]
    widest = max(m.end / m.start for g in picture.groups for r in g.rows for m in r.marks if m.end)
    assert widest > 1e4
    for group in picture.groups:
        assert group.axis.at(1 + 0.03) - group.axis.at(1.0) > 0.1


def test_an_interval_that_goes_on_beyond_the_axis_says_so(tmp_path):
    wild = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=50, spread=0.8))
    assert "It goes on." in report.render(analysis.analyse(wild))
    whole = records.make(tmp_path / "whole", records.Recipe(requests=50))
    assert "It goes on." not in report.render(analysis.analyse(whole))


def test_every_logarithmic_axis_is_told(drawn):
    for figure in filter(None, drawn.values()):
        axes = [group.axis for group in figure.groups]
        axes += [axis for panel in figure.panels for axis in (panel.x, panel.y)]
        if any(axis._log for axis in axes):
            assert re.search(r"\blog(arithmic)?\b", figure.caption, re.IGNORECASE), figure.id


def test_a_staircase_ends_at_its_total(drawn):
    for group in drawn["contrasts"].groups:
        *parts, total = group.rows
        assert parts[-1].label == "interaction (unadjusted)"
        ends = {mark.start for mark in parts[-1].marks[:1]} | {parts[-1].marks[0].end}
        assert total.marks[0].end in ends


def test_a_comparison_is_in_one_unit_from_end_to_end(found):
    names = wording.names_of(found)
    table = tables.effects(found, names, found.questions)
    here, baseline, difference = (
        table.columns.index(c) for c in ("here", "baseline", "difference")
    )
    for row in table.rows:
        units = {
            row[column].split("\N{NO-BREAK SPACE}")[-1] for column in (here, baseline, difference)
        }
        assert len(units) == 1, row


def test_late_and_missed_stand_in_columns_of_their_own(found):
    table = tables.deadlines(found, wording.names_of(found))
    assert table.columns[2:] == ("deadline", "p50", "p99", "late", "missed")
    assert not any(";" in cell for row in table.rows for cell in row)


@pytest.fixture(scope="module")
def of_payloads(tmp_path_factory):
    """No transport varies; with 512 B the median of the truth is 103.6 % of the deadline."""
    text = """\
title: Of payloads
factors: {environment: [native, container], payload: [64 B, 512 B]}
baseline: {environment: native}
deadlines: [7 us]
blocks: {min: 8, max: 8}
"""
    recipe = records.Recipe(spread=0.0001)
    return analysis.analyse(records.make(tmp_path_factory.mktemp("payloads") / "r", recipe, text))


@pytest.mark.parametrize(("statistic", "drawn"), [("p50", True), ("mean", False)])
def test_intervals_within_sessions_are_told_where_they_are_drawn(tmp_path, statistic, drawn):
    """Of a mean there is none."""
    text = records.EXPERIMENT + f"statistic: {statistic}\n"
    one = analysis.analyse(records.make(tmp_path / "r", records.Recipe(requests=400), text))
    picture = figures.draw(one, wording.names_of(one))["by_block"]
    assert any(line.bars for panel in picture.panels for line in panel.lines) == drawn
    assert ("its own 95 % interval" in picture.caption) == drawn


def test_a_deadline_that_is_missed_by_little_is_not_said_to_be_just_kept(of_payloads):
    table = tables.deadlines(of_payloads, wording.names_of(of_payloads))
    shown = {row[1]: row[3] for row in table.rows}
    assert shown["512 B"].startswith("103.")
    for value in shown.values():
        number, low, high = map(float, re.findall(r"[0-9.]+", value))
        assert low < number < high


def test_a_column_has_the_name_of_what_stands_in_it(of_payloads):
    names = wording.names_of(of_payloads)
    shown = [make(of_payloads, names) for make in (tables.levels, tables.tails, tables.threads)]
    shown += [tables.deadlines(of_payloads, names), tables.resources(of_payloads, names)]
    for table in shown:
        assert table.rows[0][1] == "64 B"
        assert table.columns[:2] == ("environment", "payload"), table.caption


def test_a_percentile_that_a_session_cannot_resolve_is_drawn_against_no_deadline(tmp_path):
    """Nor where another session of its block can: it would be of those that happened to."""
    text = records.EXPERIMENT.replace("until: 3 %", "sessions: 2")
    record = records.make(tmp_path / "r", records.Recipe(blocks=2), text)
    (trial, *_) = [t for t in record.trials() if (t.cell, t.block) == ("native/udp", 0)]
    ramp = np.linspace(5_000, 9_000, 1000).astype(np.int64)  # worth a handful of samples
    records.write_samples(record.samples_path(trial), ramp)
    found = analysis.analyse(record)
    assert found.view("native/udp").deadlines[0].p99_share.n == 2
    names = wording.names_of(found)
    drawn = figures.draw(found, names)["deadlines"]
    place = names.place(found.view("native/udp").cell).full
    (row,) = [row for row in drawn.groups[0].rows if row.label == place]
    assert {mark.style for mark in row.marks} == {"c0"}


def test_what_differs_stands_in_columns_named_by_the_cells(found):
    names = wording.names_of(found)
    for heading, _, _, made in tables.differences(found, names):
        here, there = heading.split(" against ")
        for table in made:
            assert here in " ".join(table.columns)
            assert there in " ".join(table.columns)
            assert not {"here", "there"} & set(" ".join(table.columns).split())
