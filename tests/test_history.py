"""What a folder of results tells over time."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import histories
import records
from tare import analysis
from tare.errors import UsageError
from tare.history import query, samples
from tare.history.query import Filter
from tare.record import Record
from tare.report import history, history_page
from tare.stats import across

RECORDED = Path(__file__).parents[1] / "testdata/results"
EVERY = Filter()


def told(index):
    return {one.folder: one.why for one in query.skipped(index)}


@pytest.fixture(scope="module")
def stepped(tmp_path_factory):
    """Twenty runs; from the twelfth the container takes a fifth longer, under another kernel."""
    folder = tmp_path_factory.mktemp("stepped")
    newer = {**records.FINGERPRINT, "kernel": {"release": "6.2.0-test", "clock_source": "tsc"}}
    for number in range(20):
        changed = number >= 12
        fingerprint = newer if changed else records.FINGERPRINT
        histories.run(folder, number, 1.2 if changed else 1.0, fingerprint=fingerprint)
    return histories.refreshed(folder)[0]


def test_every_recorded_result_is_in_the_overview(tmp_path):
    shutil.copytree(RECORDED, tmp_path / "results")
    index = histories.refreshed(tmp_path / "results")[0]
    found = query.overview(index, EVERY)
    assert {one.workload for one in found} == {p.parent.name for p in RECORDED.glob("*/plan.json")}
    assert all(one.runs == 1 and one.cells and one.changed is None for one in found)
    assert not query.skipped(index)


@pytest.mark.parametrize("workload", ["request-reply", "cpu"])
def test_a_value_is_what_the_report_of_its_run_says(tmp_path, workload):
    shutil.copytree(RECORDED / workload, tmp_path / "r")
    index = histories.refreshed(tmp_path)[0]
    found = analysis.analyse(Record(tmp_path / "r"))
    statistics = ("p50", "mean", "p99", "p99.99") if found.response_times else found.statistics
    seen = 0
    for view in found.cells:
        for statistic in statistics:
            estimate = view.resolved(statistic)
            if estimate is None:
                with pytest.raises(UsageError, match=f"has no {statistic}"):
                    query.cell_history(index, view.cell.id, statistic, EVERY)
                continue
            (series,) = query.cell_history(index, view.cell.id, statistic, EVERY)
            point = series.points[0]
            assert (point.value, point.low, point.high) == (
                estimate.value,
                estimate.low,
                estimate.high,
            )
            assert point.sessions == view.measured
            seen += 1
    assert seen


def test_a_change_is_found_with_its_ratio_and_what_it_came_with(stepped):
    (series,) = query.cell_history(stepped, "container", None, EVERY)
    (step,) = series.steps
    assert step.at == 12
    assert step.word == "slower"
    assert step.ratio.ratio.low < 1.2 < step.ratio.ratio.high
    assert step.differs == {"kernel.release": ("6.1.0-test", "6.2.0-test")}
    levels = series.levels_between
    assert [(first, last) for first, last, _ in levels] == [(0, 11), (12, 19)]
    assert levels[0][2].estimate == pytest.approx(across(list(series.values[:12])).value)
    (row,) = query.overview(stepped, EVERY)
    assert (row.runs, row.cells) == (20, histories.CELLS)
    assert (row.changed.cell, row.changed.folder) == ("container", "run-12")
    (still,) = query.cell_history(stepped, "native", None, EVERY)
    assert not still.steps


def test_a_change_to_more_is_drawn_as_neither_good_nor_bad(stepped):
    """Bytes may be too many, and what a compressor saves too little: it is not on record."""
    (series,) = query.cell_history(stepped, "container", None, EVERY)
    more = replace(series, steps=tuple(replace(step, word="more") for step in series.steps))
    page = history_page.render("results", [more])
    assert "a change: more" in page
    assert 'class="ink"' in page
    assert 'class="more"' not in page
    colours = {span.style for line in history._levels(more)._rows for span in line[4].spans}
    assert not colours & {"red", "green"}


def test_runs_of_one_half_hour_are_drawn_apart_and_the_scale_is_told(stepped):
    (series,) = query.cell_history(stepped, "container", None, EVERY)
    began = datetime(2026, 1, 5, 10)
    points = tuple(
        replace(point, started=began + number * timedelta(minutes=1))
        for number, point in enumerate(series.points)
    )
    figure = history_page._figure(replace(series, points=points), 0)
    (panel,) = figure.panels
    (runs,) = [line for line in panel.lines if line.kind == "points"]
    places = [panel.x.at(x) for x, _ in runs.points]
    assert all(b - a > 4 for a, b in pairwise(places))
    assert figure.caption.endswith("Log scale.")


def test_runs_are_in_the_order_of_time_not_of_their_names(tmp_path):
    histories.run(tmp_path / "b", 1)
    histories.run(tmp_path / "a", 2)
    histories.run(tmp_path / "c", 0)
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "native", None, EVERY)
    assert [point.folder for point in series.points] == ["c/run-00", "b/run-01", "a/run-02"]


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        (Filter(since=datetime(2026, 1, 11)), 10),
        (Filter(title="CONTAINER"), 20),
        (Filter(machine="test proc"), 20),
        (Filter(title="container", since=datetime(2026, 1, 20)), 1),
    ],
)
def test_filters_choose_runs(stepped, wanted, runs):
    assert query.overview(stepped, wanted)[0].runs == runs
    assert len(query.cell_history(stepped, "native", None, wanted)[0].points) == runs


@pytest.mark.parametrize(
    "wanted", [Filter(commit="abc"), Filter(machine="EPYC"), Filter(since=datetime(2027, 1, 1))]
)
def test_what_no_run_is_of_is_said(stepped, wanted):
    with pytest.raises(UsageError, match=r"no run below .* is of"):
        query.overview(stepped, wanted)
    with pytest.raises(UsageError, match=r"no run below .* is of"):
        query.cell_history(stepped, "native", None, wanted)


def test_a_cell_that_is_not_there_is_answered_with_those_that_are(stepped):
    with pytest.raises(UsageError) as error:
        query.cell_history(stepped, "quemu/udp", None, EVERY)
    assert error.value.remedy == "they have container, native"


def other_machine():
    return {**records.FINGERPRINT, "cpu": {"model": "Another processor"}}


def newer_pages():
    return {**records.FINGERPRINT, "memory_bytes": (24 << 30) - 40_000_000}


@pytest.mark.parametrize(
    ("other", "series"),
    [
        ({"fingerprint": other_machine()}, 2),
        ({"requests": 101}, 2),
        ({"factors": ", payload: [512 B]"}, 2),
        ({"title": "Another question?"}, 2),
        ({"statistic": "mean"}, 2),
        ({"polite": True}, 2),
        ({"fingerprint": newer_pages()}, 1),
        ({"factors": ", payload: [64 B]"}, 1),  # the default
    ],
)
def test_only_what_agrees_is_one_series(tmp_path, other, series):
    histories.run(tmp_path, 0)
    histories.run(tmp_path, 1, **other)
    index = histories.refreshed(tmp_path)[0]
    assert len(query.cell_history(index, "native", None, EVERY)) == series


def test_guests_under_kvm_and_tcg_are_two_series(tmp_path):
    asked = {"title": "A guest?", "factors": "", "requests": 100, "statistic": "p50"}
    text = histories._TEXT.format(**asked).replace("container", "qemu")
    for number, accelerator in enumerate(("tcg", "kvm")):
        recipe = records.Recipe(
            seed=number, blocks=2, requests=100, accelerator=lambda _b, _c, a=accelerator: a
        )
        records.make(tmp_path / accelerator, recipe, text)
    index = histories.refreshed(tmp_path)[0]
    guests = query.cell_history(index, "qemu", None, EVERY)
    assert sorted(str(one.accelerator) for one in guests) == ["kvm", "tcg"]
    assert len(query.cell_history(index, "native", None, EVERY)) == 1


def test_the_distribution_of_each_level_is_that_of_its_samples(stepped):
    (series,) = query.cell_history(stepped, "container", None, EVERY)
    before, after = samples.distributions(stepped.folder, series, lambda _done, _of: None)
    responses = []
    for point in series.points[:12]:
        record = Record(stepped.folder / point.folder)
        for trial in record.trials():
            if trial.cell == "container":
                table = pq.read_table(record.samples_path(trial))
                responses.append(table["received_ns"].to_numpy() - table["intended_ns"].to_numpy())
    ordered = np.sort(np.concatenate(responses))
    assert before.samples == ordered.size
    assert before.sessions == len(responses)
    for share, value in before.quantiles_ns.items():
        assert value == pytest.approx(ordered[int(np.ceil(share * ordered.size)) - 1], rel=0.0015)
    assert after.quantiles_ns[0.5] == pytest.approx(1.2 * before.quantiles_ns[0.5], rel=0.03)


def test_a_distribution_ranks_lost_requests_as_the_longest(tmp_path):
    record = histories.run(tmp_path, 0)
    trials = [t for t in record.trials() if t.cell == "native"]
    paths = [record.samples_path(t) for t in trials]
    for path in paths:
        records.write_samples(
            path, np.random.default_rng(1).permutation(np.arange(1, 101)), lost=15
        )
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "native", None, EVERY)
    (found,) = samples.distributions(tmp_path, series, lambda _done, _of: None)
    assert found.samples == 100 * len(paths)
    assert 0.5 in found.quantiles_ns
    assert 0.9 not in found.quantiles_ns


def test_samples_that_are_damaged_are_left_out_of_a_distribution_and_told(tmp_path):
    record = histories.run(tmp_path, 0)
    victim = next(t for t in record.trials() if t.cell == "native")
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "native", None, EVERY)
    record.samples_path(victim).write_bytes(b"PAR1 no more")
    (found,) = samples.distributions(tmp_path, series, lambda _done, _of: None)
    assert found.sessions == 1
    assert victim.samples in found.left_out[0]


def test_samples_that_are_gone_are_said_to_be_gone(stepped, tmp_path):
    (series,) = query.cell_history(stepped, "container", None, EVERY)
    found = samples.distributions(tmp_path, series, lambda _done, _of: None)
    assert [(one.sessions, one.samples, one.quantiles_ns) for one in found] == [(0, 0, {})] * 2
    assert all("is not a result" in why for one in found for why in one.left_out)


def test_values_have_no_raw_distribution(tmp_path):
    shutil.copytree(RECORDED / "cpu", tmp_path / "r")
    (series,) = query.cell_history(histories.refreshed(tmp_path)[0], "native", None, EVERY)
    with pytest.raises(UsageError, match="no raw samples"):
        samples.distributions(tmp_path, series, lambda _done, _of: None)
