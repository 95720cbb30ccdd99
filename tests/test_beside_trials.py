"""What the machine did beside the trials, over all of them: what is absent stays absent."""

import re
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from tare import analysis
from tare.analysis import beside_trials
from tare.analysis.cells import over_the_run, view_cell
from tare.analysis.sessions import Sessions
from tare.meanwhile import Meanwhile
from tare.report import page, remarks, tables, wording
from tare.stats.drift import BlockTrend, SessionDrift

VALUES = st.lists(st.none() | st.floats(0, 1e9), max_size=60)


@given(VALUES)
def test_a_spread_is_of_what_is_there_alone(values):
    known = [value for value in values if value is not None]
    found = beside_trials.spread(values)
    if not known:
        assert found is None
        return
    assert found is not None
    assert (found.n, found.least, found.most) == (len(known), min(known), max(known))
    assert found.median == statistics.median(known)
    assert (found.p95 is None) == (len(known) < 20)
    if found.p95 is not None:
        assert found.median <= found.p95 <= found.most


def test_the_median_over_eight_sessions_lies_between_the_middle_two(tmp_path):
    view = analysis.analyse(records.make(tmp_path / "r")).view("native/udp")
    middle = sorted(session.value("p50") for session in view.sessions.values())[3:5]
    assert len(view.sessions) == 8
    assert view.quantiles[0.5].median == pytest.approx(sum(middle) / 2)
    assert middle[0] < view.quantiles[0.5].median < middle[1]


def with_machine(record, **machine):
    """The record's analysis, with other readings in every trial."""
    found = analysis.analyse(record)
    trials = tuple(
        trial.model_copy(update={"machine": replace(trial.machine, **machine)})
        for trial in found.trials
    )
    return replace(found, trials=trials)


def test_a_reading_that_is_absent_is_no_zero(tmp_path):
    fingerprint = {**records.FINGERPRINT, "cpu": {"usable": 2}}
    record = records.make(tmp_path / "r", fingerprint=fingerprint)
    told = with_machine(record, steal_ns=int(0.2 * 0.5e9), load_1min=17.0)
    assert len(remarks.cautions(told)) == 2
    trials = [
        trial.model_copy(update={"machine": Meanwhile(seconds=0.5)}) if i % 3 else trial
        for i, trial in enumerate(told.trials)
    ]
    mostly_absent = replace(told, trials=tuple(trials))
    assert remarks.cautions(mostly_absent) == remarks.cautions(told)
    table = tables.machine(with_machine(record, steal_ns=None))
    assert not any("stolen" in row[0] for row in table.rows)


def test_nothing_waits_for_longer_than_the_time_that_there_is(tmp_path):
    found = with_machine(records.make(tmp_path / "r"), pressure_us={"cpu": 515_000, "io": None})
    assert found.trials[0].machine.seconds == 0.5
    assert beside_trials.waited(found.trials[0], "cpu") == 1.0
    assert beside_trials.waited(found.trials[0], "io") is None
    (row,) = (row for row in tables.machine(found).rows if "waited for cpu" in row[0])
    assert row[1:] == ("100", "100", "100")


def odd(found, p):
    """The views, with one session that drifts and one cell that has a trend, by chance or not."""
    first, *others = (replace(v, drifting=(), modes=None) for v in found.cells)
    block, session = next(iter(first.sessions.items()))
    drift = SessionDrift(p, flagged=True)
    summary = replace(session.summary, drift=drift)
    calm = BlockTrend(0.0, 1.0, flagged=False, n=8)
    return over_the_run(
        [
            replace(
                first,
                sessions={**first.sessions, block: replace(session, summary=summary)},
                drifting=(block,),
                trend=BlockTrend(1.0, p, flagged=True, n=8),
            ),
            *(replace(view, trend=calm) for view in others),
        ]
    )[0]


def test_what_chance_does_in_one_of_a_hundred_sessions_is_not_told_of(tmp_path):
    found = analysis.analyse(records.make(tmp_path / "r"))
    assert sum(len(view.sessions) for view in found.cells) > 100
    by_chance, real = odd(found, 0.005), odd(found, 1e-7)
    assert (by_chance.drifting, by_chance.trend.flagged) == ((), False)
    assert (real.drifting, real.trend.flagged) == (((0, 0),), True)


def test_two_modes_of_one_cell_are_told_of_in_a_run_of_a_hundred_and_one(tmp_path):
    text = records.TWO_ENVIRONMENTS.replace("deadlines: [20 us, 10 ms]\n", "")
    slow = {(block, "native/udp"): 2.0 for block in (1, 3, 4, 6)}
    record = records.make(tmp_path / "r", records.Recipe(requests=200, stray=slow), text)
    sessions = Sessions(record)
    cells = sessions.plan.cells
    sessions.plan = sessions.plan.model_copy(update={"cells": cells * 101})
    one, calm = (view_cell(cell, sessions) for cell in cells[:2])
    assert one.cell.id == "native/udp"
    found = over_the_run([one, *[replace(calm, modes=None)] * 100])
    assert found[0].modes.flagged


def test_answers_within_one_environment_are_headed_by_it_once(tmp_path):
    text = records.EXPERIMENT.replace(
        "baseline: {environment: native}", "baseline: {environment: native, transport: udp}"
    )
    text = text.replace("family: {transport: [udp, cyclonedds, fastdds]}", "family: none")
    found = analysis.analyse(records.make(tmp_path / "r", text=text))
    assert "Nothing is judged: every comparison is outside of the family." in page.render(found)
    names = wording.names_of(found)
    headings = [
        group.heading for group in page._grouped(found.questions, names, 0.03, found.statistic)
    ]
    assert any(question.cell.id == "native/icmp" for question in found.questions)
    assert headings == [
        "Host",
        "Container (runc) against Host",
        "QEMU guest (TCG) against Host",
    ]


def test_no_two_sides_within_one_environment_have_the_same_name(tmp_path):
    text = records.EXPERIMENT.replace(
        "baseline: {environment: native}", "baseline: {environment: native, transport: udp}"
    )
    text = text.replace(
        "family: {transport: [udp, cyclonedds, fastdds]}", "family: {environment: native}"
    )
    recipe = records.Recipe(
        truth_us=lambda cell: 40.0 if cell.levels["transport"] == "udp" else 90.0
    )
    found = analysis.analyse(records.make(tmp_path / "r", recipe, text))
    within = [e for e in found.differences if e.cell.levels["environment"] == "native"]
    assert within
    names = wording.names_of(found)
    shown = [table for table in page._tables(found, names).values() if table is not None]
    for heading, _, _, made in tables.differences(found, names):
        here, there = heading.split(" against ")
        assert here != there
        shown += made
    assert len(shown) > len(within)
    for table in shown:
        neighbours = zip(table.columns, table.columns[1:], strict=False)
        assert all(one != other for one, other in neighbours), table.columns
    for one, other in re.findall(r">\s*([^<>]+?) against ([^<>]+?)\s*<", page.render(found)):
        assert one != other
