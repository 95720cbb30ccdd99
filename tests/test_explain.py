"""What differs between two cells, in records whose truth is known."""

from dataclasses import replace

import pytest

import records
from tare import analysis
from tare.accounting import Account, ThreadTime
from tare.analysis import difference
from tare.analysis.difference import explain
from tare.environments import Facts
from tare.errors import UsageError
from tare.meanwhile import Meanwhile
from tare.record import CauseSession
from tare.report import tables, wording
from tare.report.page import render
from tare.stats.operations import Operation

TEXT = records.TWO_ENVIRONMENTS


def slower(cell):
    """A container that takes two microseconds more, all of them the server's."""
    return 10.0 + (2.0 if cell.levels["environment"] == "container" else 0.0)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    recipe = records.Recipe(truth_us=slower, requests=500)
    made = records.make(tmp_path_factory.mktemp("explain") / "r", recipe, TEXT)
    with made.writing() as writer:
        for trial in made.trials():
            more = 2_000 if trial.cell.startswith("container") else 0
            sent = trial.counters["sent"]
            client = ThreadTime("client", "c", 1, 5_000 * sent, 0, 0, 0)
            server = ThreadTime("server", "s", 2, (5_000 + more) * sent, 0, 0, 0)
            changed = {
                "client": Account((client,)),
                "server": Account((server,), huge_bytes=4096),
                "facts": Facts.model_validate(
                    {"kernel": "6.1", "seccomp": "none" if more else None}
                ),
                "machine": Meanwhile(1.0, steal_ns=100_000_000 if more else 0, interrupts=1000),
            }
            writer.append(trial.model_copy(update=changed))
        for cell in made.plan.cells:
            more = cell.levels["environment"] == "container"
            for repeat in range(3):
                costs = dict.fromkeys(COSTS, 1_000.0) | {
                    "inside send": 3_000.0 if more else 1_000.0
                }
                writer.append(
                    CauseSession(
                        repeat=repeat,
                        cell=cell.id,
                        unit_costs_ns={k: v + repeat for k, v in costs.items()},
                        counts=dict.fromkeys(COUNTS, 1.0),
                        mean_ns=1e4,
                    )
                )
    return made


COSTS = ("send", "receive", "wake process", "wake thread")
COSTS += tuple(f"inside {name}" for name in COSTS)
COUNTS = tuple(f"{side} {what}" for side in ("client", "server") for what in
               ("sends", "receives", "switches"))  # fmt: skip


@pytest.fixture(scope="module")
def found(record):
    return explain(record, "container/udp")


def test_the_party_that_takes_longer_stands_first_with_all_of_the_effect(found):
    first = found.threads.parts[0]
    assert first.name == "server on CPU"
    assert first.share.estimate == pytest.approx(1.0, abs=0.1)
    assert found.explained


def test_the_operation_that_costs_more_is_named_with_what_it_adds(found):
    first = found.operations[0]
    assert first.name == "send, server"
    assert first.by_cost.estimate == pytest.approx(2_000)
    assert first.by_count.estimate == 0
    assert first.share.estimate == pytest.approx(1.0, abs=0.1)


def test_what_one_side_never_does_changes_by_its_count_alone():
    """Its cost is the other side's, session by session, and not as if it were another one."""
    kick = Operation("virtio kick", [100.0, 110.0, 95.0, 105.0], [2.0])
    never = difference._absent(kick)
    change = difference._changed(kick, never, None, one_sided=True)
    assert change.amount.estimate == pytest.approx(205.0)
    assert change.by_count == change.amount
    assert (change.by_cost.low, change.by_cost.high) == (0.0, 0.0)


def test_time_that_was_stolen_explains_at_most_its_share(found):
    stolen = next(r for r in found.readings if "stolen" in r.name)
    # A tenth of the time stolen: 0.105 of a logarithm of 0.182.
    assert 0.4 < stolen.share.estimate < 0.8
    assert "interrupts" in found.alike


def test_facts_that_differ_are_named_without_an_amount(found):
    names = {name for name, _, _ in found.facts}
    assert {"level: environment", "environment.seccomp"} <= names
    assert "environment.kernel" not in names


def test_words_name_what_explains_and_the_page_holds_them(record, found):
    said = " ".join(tables.conclusion(found))
    assert "server on CPU" in said
    assert "send, server" in said
    page = render(analysis.analyse(record))
    assert 'id="differences"' in page
    assert "send, server" in page


def test_without_an_effect_there_is_nothing_to_explain(record):
    again = explain(record, "native/udp#2", "native/udp")
    assert not again.effect_found
    assert "no effect" in tables.conclusion(again)[0]
    assert not again.explained


def test_what_nothing_recorded_makes_up_is_said_to_be_unexplained(tmp_path):
    recipe = records.Recipe(truth_us=slower, requests=200)
    made = records.make(tmp_path / "r", recipe, TEXT)
    with made.writing() as writer:
        for trial in made.trials():
            writer.append(
                trial.model_copy(update={"client": None, "server": None, "machine": Meanwhile()})
            )
    bare = explain(made, "container/udp")
    assert bare.effect_found
    assert not bare.explained
    said = tables.conclusion(bare)[0]
    assert said.startswith("Cannot explain")
    assert "Ask for `causes`" in said
    # Nobody is sent for what a workload without requests cannot give.
    assert "causes" not in tables.conclusion(replace(bare, countable=False))[0]


@pytest.mark.parametrize("counted", [True, False])
def test_events_as_frequent_but_dearer_explain_by_each_sides_own_price(tmp_path, counted):
    made = records.make(tmp_path / "r", records.Recipe(truth_us=slower, requests=500), TEXT)
    with made.writing() as writer:
        for trial in made.trials():
            server = ThreadTime("server", "s", 2, 5_000, 0, 0, 0, faults=1000 + trial.block)
            changed = {
                "server": Account((server,)),
                "machine": Meanwhile(1.0),
                "duration_ns": 1_000_000_000,
            }
            writer.append(trial.model_copy(update=changed))
        for cell in made.plan.cells:
            inside = cell.levels["environment"] == "container"
            if inside or counted:
                cost = {"inside page fault": 100_000.0 if inside else 1_000.0}
                writer.append(
                    CauseSession(repeat=0, cell=cell.id, unit_costs_ns=cost, counts={}, mean_ns=1e4)
                )
    found = explain(made, "container/udp")
    faults = [r for r in found.readings if r.name == "page faults of the measured threads"]
    if counted:  # a tenth of the time against a thousandth of it: 0.105 of a logarithm of 0.182
        assert 0.4 < faults[0].share.estimate < 0.8
    else:
        assert faults == []
        assert "page faults of the measured threads" in found.alike


def test_a_workload_without_requests_is_explained_by_what_was_read(tmp_path):
    text = """\
title: What does a container cost in computing?
workload: cpu
factors: {environment: [native, container]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""
    made = records.make(tmp_path / "r", records.Recipe(blocks=0), text)
    workload_statistic = analysis.analyse(made).experiment.statistic
    with made.writing() as writer:
        for block in range(8):
            for position, cell in enumerate(c for c in made.plan.cells if c.replica == 1):
                inside = cell.levels["environment"] == "container"
                stolen = 300_000_000 if inside else 0
                speed = (0.7 if inside else 1.0) * (1 + 0.001 * block)
                values = {workload_statistic: speed * 1e9}
                told = {"seconds": 1.0, "steal_ns": stolen + 1000 * block}
                writer.append(records.ended(block, position, cell.id, values=values, machine=told))
    there = next(c.id for c in made.plan.cells if c.levels["environment"] == "container")
    found = explain(made, there)
    assert found.readings[0].name.startswith("stolen")
    assert found.readings[0].share.estimate == pytest.approx(1.0, abs=0.05)
    assert found.explained
    assert wording.names_of(analysis.analyse(made))


@pytest.mark.parametrize(
    ("asked", "said"),
    [(("absent",), "no cell 'absent'"), (("native/udp",), "with nothing"), (("native/udp", "x"), "no cell 'x'")],  # noqa: E501
)  # fmt: skip
def test_cells_that_are_not_there_are_named(record, asked, said):
    with pytest.raises(UsageError, match=said):
        explain(record, *asked)
