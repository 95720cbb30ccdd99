"""What of a plan cannot run here is said before the first trial, and the rest goes on."""

import os

import pytest

from tare import command, cuts, plan, runner
from tare.errors import UnavailableError
from tare.experiment import Experiment
from tare.workloads import registry
from tare.workloads.migration import arms


def laid_out(workload, **factors):
    asked = Experiment.model_validate(
        {
            "title": "?",
            "workload": workload,
            "factors": factors,
            "baseline": {name: levels[0] for name, levels in list(factors.items())[:1]},
            "blocks": {"min": 12, "max": 12},
        }
    )
    found = registry.by_name()[workload]
    return plan.make(asked, found, seed=1), found


def test_a_workload_with_places_of_its_own_is_asked_whether_they_are_here(monkeypatch):
    monkeypatch.setattr(command, "PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="not installed: qemu-system-x86"):
        runner.preflight(*laid_out("migration", arm=list(arms.BY_NAME)[:2]))


def test_what_only_some_options_make_impossible_is_named_by_them(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made, disk = laid_out("disk", operation=["read", "write"], device=["raw", "nfs"])
    absent = runner.preflight(made, disk)
    assert [one.what for one in absent] == ["nfs"]
    assert "mounted in guests only" in absent[0].why
    left = cuts.without(made, absent)
    assert {cell.levels["device"] for cell in left.cells} == {"raw"}
    assert left.cuts == (f"without nfs: {absent[0].why}",)


def test_processors_that_this_machine_has_not_are_left_out(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    asked = laid_out("request-reply", environment=["native"], placement=["same-core", "client=7"])
    absent = runner.preflight(*asked)
    assert [one.what for one in absent] == ["client=7"]
    assert absent[0].why == "the placement 'client=7' names processor 7; this machine offers 0"
    with pytest.raises(UnavailableError, match="names processor 7"):
        runner.preflight(*laid_out("request-reply", environment=["native"], placement=["client=7"]))


def test_what_is_missing_is_named_once_though_both_arms_of_a_pair_want_it(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made, disk = laid_out("disk", device=["raw", "nfs"], operation=["read"])
    wanting = [visit for visit in made.blocks[0] if visit.plot["device"] == "nfs"]
    assert len(wanting) == 2
    (absent,) = runner.preflight(made, disk)
    assert absent.what == "nfs"
    assert {cell for visit in wanting for cell in visit.cells} == absent.cells


def test_what_can_be_had_nowhere_is_refused_with_the_reason_of_each():
    asked = laid_out("disk", environment=["ssh root@192.0.2.1", "ssh root@192.0.2.2/qemu"])
    with pytest.raises(UnavailableError) as error:
        runner.preflight(*asked)
    assert "192.0.2.1" in error.value.what
    assert "192.0.2.2" in error.value.what
