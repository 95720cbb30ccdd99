"""How many sessions a block of a plan holds, in which order, and which cells stop."""

import math
from collections import Counter
from statistics import fmean

import numpy as np
import pytest

import records
from tare import analysis, cuts, experiment, export, plan, repetition, runner
from tare.record import Course, Record
from tare.report import remarks
from tare.stats import clustered_proportion
from tare.stats.modes import two_modes
from tare.stats.repetition import Spread
from tare.stats.stopping import Action, Decision

AUTO = records.EXPERIMENT.replace("until: 3 %", "until: 3 %, sessions: auto")
CONTAINERS = ("container/udp", "container/cyclonedds", "container/fastdds")


def made(text=AUTO, seed=1):
    return repetition.planned(plan.make(experiment.parse(text, "experiment.yaml"), seed))


def test_cheap_cells_that_are_judged_have_several_sessions_and_a_guests_one():
    sessions = made().sessions
    assert all(sessions[cell] > 1 for cell in CONTAINERS)
    assert not [cell for cell in sessions if cell.startswith("qemu")]
    assert "native/icmp" not in sessions  # shown, and not judged


def test_a_cell_and_its_second_arm_have_as_many_sessions():
    found = made()
    arms = {c.cell: c.against for c in found.comparisons if c.kind == "a/a"}
    assert "native/udp#2" in arms
    for arm, first in arms.items():
        assert found.sessions.get(arm, 1) == found.sessions.get(first, 1)


def test_without_being_asked_every_cell_has_one_session():
    assert made(records.EXPERIMENT).sessions == {}


def test_a_number_that_is_given_is_everybodys():
    found = made(AUTO.replace("auto", "3"))
    assert set(found.sessions.values()) == {3}
    assert set(found.sessions) == {cell.id for cell in found.cells}
    assert found.block_seconds() > 2 * made(records.EXPERIMENT).block_seconds() * 0.7


@pytest.mark.parametrize("wrong", ["0", "101", "many", "2.5"])
def test_a_number_of_sessions_that_cannot_be_is_refused(wrong):
    with pytest.raises(Exception, match="sessions"):
        made(AUTO.replace("auto", wrong))


def test_each_session_has_its_place_and_comes_round_by_round():
    found = made()
    for block, visits in enumerate(found.blocks[:3]):
        for visit in visits:
            order = repetition.order(found, block, visit, found.sessions)
            wanted = {cell: found.sessions.get(cell, 1) for cell in visit.cells}
            assert Counter(cell for cell, _ in order) == wanted
            assert len(set(order)) == len(order)
            assert [repeat for _, repeat in order] == sorted(repeat for _, repeat in order)
            assert tuple(cell for cell, repeat in order if repeat == 0) == visit.cells
            assert order == repetition.order(made(), block, visit, found.sessions)


def test_rounds_are_in_orders_of_their_own():
    found = made()
    visit = next(v for v in found.blocks[0] if len(v.cells) > 3)
    many = dict.fromkeys(visit.cells, 8)
    order = repetition.order(found, 0, visit, many)
    rounds = {tuple(c for c, repeat in order if repeat == n) for n in range(8)}
    assert len(rounds) > 4


def test_a_budget_takes_sessions_before_requests_and_blocks():
    whole = made()
    cut = cuts.fit(whole, whole.seconds(8) * 0.8)
    assert cut.min_blocks == whole.min_blocks
    assert cut.session == whole.session
    assert sum(cut.sessions.values()) < sum(whole.sessions.values())
    assert cut.seconds() <= whole.seconds(8) * 0.8
    assert any("fewer sessions" in sentence for sentence in cut.cuts)


def test_what_the_pilot_blocks_tell_stays_within_the_budget():
    cut = cuts.fit(made(), made().seconds(8))
    costs = {cell.id: 0.1 for cell in cut.cells}
    pairs = {(c.cell, c.against): Spread(1.0, 0.001) for c in cut.watched}
    a_block = cut.block_seconds()
    found = repetition.adapted(cut, costs, a_block, pairs)
    more = sum(0.1 * (found.get(c, 1) - cut.sessions.get(c, 1)) for c in costs)
    assert a_block + more <= cut.block_limit_s


def test_what_differs_between_settings_up_is_not_repeated_for():
    found = made()
    costs = {cell.id: 0.1 for cell in found.cells}
    still = {(c.cell, c.against): Spread(0.001, 1.0) for c in found.watched}
    moving = {(c.cell, c.against): Spread(1.0, 0.001) for c in found.watched}
    few = repetition.adapted(found, costs, found.block_seconds(), still)
    many = repetition.adapted(found, costs, found.block_seconds(), moving)
    assert few == {}
    assert all(many[cell] >= found.sessions[cell] for cell in CONTAINERS)
    assert not [cell for cell in many if cell.startswith("qemu")]


def ids(found, *cells):
    return [c.id for c in found.watched if c.cell in cells]


def test_a_baseline_goes_on_while_a_comparison_with_it_is_wide():
    found = made()
    stopped = repetition.finished(found, ids(found, "container/udp"))
    assert "native/udp" not in stopped
    assert "native/udp#2" not in stopped  # the arm goes with its first
    assert {"qemu/udp", "container/fastdds", "native/fastdds"} <= stopped
    # What nobody judges goes on where the setting up is paid for anyway.
    assert not stopped & {"native/icmp", "container/icmp"}
    assert "qemu/icmp" in stopped


def test_nothing_stops_while_everything_is_wide_and_all_when_nothing_is():
    found = made()
    assert repetition.finished(found, [c.id for c in found.watched]) == frozenset()
    assert repetition.finished(found, []) == {cell.id for cell in found.cells}


def test_where_a_cell_stopped_its_comparison_ends_and_nothing_counts_as_dropped(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=10, requests=50), AUTO)
    course = Course(block=8, sessions=dict(record.plan.sessions), stopped=("container/udp",))
    with record.writing() as writer:
        writer.append(course)
    lines = (record.folder / "trials.ndjson").read_text().splitlines(keepends=True)
    kept = [x for x in lines if '"cell":"container/udp"' not in x or trial_block(x) < 8]
    (record.folder / "trials.ndjson").write_text("".join(kept))
    found = analysis.analyse(Record(record.folder))
    ratios = {q.comparison.cell: q.ratio for q in found.questions}
    assert (ratios["container/udp"].n_used, ratios["container/udp"].n_dropped) == (8, 0)
    assert (ratios["qemu/udp"].n_used, ratios["qemu/udp"].n_dropped) == (10, 0)
    assert found.complete_blocks == 10


def test_a_blocks_value_is_the_mean_of_its_sessions_and_a_failed_one_takes_its_partner_with_it(
    tmp_path,
):
    record = records.make(tmp_path / "r", records.Recipe(blocks=8, requests=200), AUTO)
    lines = (record.folder / "trials.ndjson").read_text().splitlines(keepends=True)
    trials = record.trials()
    lost = next(i for i, t in enumerate(trials) if t.key == (2, "container/udp", 1))
    gone = trials[lost].model_copy(update={"status": "failed", "error": "x", "samples": None})
    lines[lost] = gone.model_dump_json() + "\n"
    (record.folder / "trials.ndjson").write_text("".join(lines))
    found = analysis.analyse(Record(record.folder))
    rows = export.rows(Record(record.folder))
    assert len(rows) == len(trials) == len({(r["block"], r["cell"], r["repeat"]) for r in rows})

    def logs(cell, block):
        of = [r for r in rows if (r["cell"], r["block"]) == (cell, block)]
        return [math.log(r["p50_ns"]) for r in of if r["p50_ns"]]

    ratios = []
    for block in range(8):
        a, b = logs("container/udp", block), logs("native/udp", block)
        n = min(len(a), len(b))
        assert n == record.plan.sessions["native/udp"] - (block == 2)
        ratios.append(fmean(a[:n]) - fmean(b[:n]))
    question = next(q for q in found.questions if q.comparison.cell == "container/udp")
    assert question.ratio.ratio.estimate == pytest.approx(math.exp(fmean(ratios)))
    assert (question.ratio.n_used, question.ratio.n_dropped) == (8, 0)
    assert found.view("container/udp").failed == 1
    assert len(found.threads) == sum(cell.replica == 1 for cell in record.plan.cells)
    assert found.complete_blocks == 8
    most = max(record.plan.sessions.values())
    assert f"up to {most} sessions of a cell in each" in remarks.outcome(found)


def test_deadlines_and_modes_take_blocks_for_the_unit_where_those_hold_several_sessions(tmp_path):
    """Else eight blocks would count as forty, though each is slow or late as a whole."""
    text = AUTO.replace("auto", "5").replace("[10 ms, 100 ms]", "[8 us]")
    record = records.make(tmp_path / "r", records.Recipe(blocks=8, requests=50), text)
    rng = np.random.default_rng(3)
    of_block = rng.permutation([6_000, 6_100, 6_200, 6_900, 7_000, 7_100, 8_100, 8_200])
    cell = "native/udp"
    for trial in record.trials():
        if trial.cell == cell:
            level = of_block[trial.block] * np.exp(rng.normal(0, 0.001))
            records.write_samples(record.samples_path(trial), np.full(50, level).astype(np.int64))
    view = analysis.analyse(Record(record.folder)).view(cell)
    (deadline,) = view.deadlines
    assert (deadline.late.count, deadline.late.of) == (2 * 5 * 50, 8 * 5 * 50)
    assert deadline.late == clustered_proportion([0] * 6 + [250] * 2, [250] * 8)
    assert deadline.missed.effective < 8
    assert len(view.declared) == 40
    assert two_modes(list(view.declared.values())).flagged
    assert (view.modes.n, view.modes.flagged) == (8, False)


def trial_block(line):
    return int(line.partition('"block":')[2].partition(",")[0])


def running(record, writer):
    nowhere = record.folder
    return runner._Run(
        record=record, programs=nowhere, cache=nowhere, on_progress=lambda _: None,
        writer=writer, registry=None, scratch=nowhere, blocks=None,
    )  # fmt: skip


def test_after_the_pilot_blocks_the_numbers_are_decided_once_and_kept(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=3, requests=50), AUTO)
    going_on = Decision(Action.CONTINUE, None, tuple(c.id for c in record.plan.watched))
    with record.writing() as writer:
        run = running(record, writer)
        for block in (1, 2, 3):
            run._go_on(block, going_on)
    (planned, decided) = Record(record.folder).courses()
    assert (planned.block, decided.block) == (0, 3)
    assert planned.sessions == record.plan.sessions
    with record.writing() as writer:
        running(Record(record.folder), writer)._go_on(3, going_on)
    assert Record(record.folder).courses() == (planned, decided)


def test_what_a_resumed_run_went_on_with_is_not_decided_again(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=4, requests=50), AUTO)
    going_on = Decision(Action.CONTINUE, None, ())
    with record.writing() as writer:
        running(record, writer)._go_on(3, going_on)
    assert len(Record(record.folder).courses()) == 1
