"""A run goes on where it began, and is refused, in words, where it cannot be shown to be there."""

import pytest

from tare.cli.plan import refuse_if_changed
from tare.errors import UsageError
from tare.experiment import Experiment
from tare.plan import Plan
from tare.record import Record

BEGAN = {
    "cpu": {"affinity": [0, 1], "governor": None},
    "kernel": {"clock_source": "tsc", "same_page_merging": "0"},
    "packages": {"mpich": "4.0"},
    "programs": {"nvio/nvio": "00"},
    "tare": {"commit": "a"},
}


def begun(folder, workload="mpi-io"):
    asked = Experiment(title="t", workload=workload, factors={}, baseline={})
    plan = Plan(
        experiment=asked, seed=1, cells=(), comparisons=(), blocks=(), min_blocks=2, session={}
    )
    return Record.create(folder, "title: t\n", plan, BEGAN)


@pytest.fixture
def record(tmp_path):
    return begun(tmp_path / "r")


def refusal(record, **changed):
    with pytest.raises(UsageError) as caught:
        refuse_if_changed(record, {**BEGAN, **changed})
    return caught.value.what


def test_what_cannot_change_a_figure_may_differ(record):
    kernel = {**BEGAN["kernel"], "same_page_merging": "1"}
    refuse_if_changed(record, {**BEGAN, "kernel": kernel, "tare": {"commit": "b"}})


@pytest.mark.parametrize("workload", ["request-reply", "cpu", "migration"])
def test_a_program_that_the_workload_cannot_run_may_be_another(record, workload, tmp_path):
    changed = {**BEGAN, "programs": {"nvio/nvio": "11"}}
    refuse_if_changed(begun(tmp_path / "other", workload), changed)
    refusal(record, programs=changed["programs"])


def test_what_calibrates_every_session_may_not_be_another(record):
    for instrument in ("echo/echo-null", "probe/probe"):
        assert instrument in refusal(record, programs={**BEGAN["programs"], instrument: "11"})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"cpu": {"affinity": [2, 3], "governor": None}}, "cpu.affinity"),
        ({"kernel": {"clock_source": "hpet", "same_page_merging": "0"}}, "kernel.clock_source"),
        ({"packages": {"mpich": "4.1"}}, "packages.mpich"),
        ({"programs": {"nvio/nvio": "11"}}, "programs.nvio/nvio"),
        ({"programs": {}}, "programs.nvio/nvio"),
    ],
)
def test_another_machine_and_another_build_are_refused_by_name(record, changed, named):
    assert f"since it began, {named} changed;" in refusal(record, **changed)


def test_what_an_older_record_does_not_tell_is_not_said_to_have_changed(record):
    said = refusal(record, programs={"nvio/nvio": "00", "walks/walks-mpich": "22"})
    assert "its record does not tell programs.walks/walks-mpich;" in said
    assert "changed" not in said
