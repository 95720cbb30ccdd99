"""What rows and other parts of claims make of a result: a bound is kept by the whole interval."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import claims
from claims import Claim, Result, Workshop, experiments, judge, migrations
from claims.experiments import Measured, run_shipped
from claims.rows import Wanted
from tare import analysis, experiment, plan, workloads
from tare.analysis.sessions import Sessions
from tare.errors import UsageError
from tare.record import Record, Trial
from tare.stats import paired_ratio
from tare.stats.bounds import Kept

HOME = Path(__file__).parents[1]
NOWHERE = Path("/nowhere")
OURS, PLAIN = "pageshare", "plain"


def workshop(**measured: Any) -> Workshop:
    found = {f"{name}.yaml": one for name, one in measured.items()}
    return Workshop(*[NOWHERE] * 4, lambda _: None, measured=found)


@pytest.fixture(scope="module")
def migrated() -> Workshop:
    """A real result of a migration of each arm."""
    record = Record(HOME / "testdata/results/migration")
    return workshop(real=Measured(record, analysis.analyse(record), Sessions(record)))


def judged(row: Wanted, shop: Workshop) -> Result:
    return judge([row(shop)])


@pytest.mark.parametrize("claim", claims.every(), ids=lambda claim: claim.id)
def test_every_row_finds_its_cells_and_no_two_figures_have_one_name(claim: Claim):
    names = []
    for row in claim.parts:
        if isinstance(row, Wanted):
            assert row.experiment in claim.experiments
            asked = experiment.load(HOME / "experiments" / row.experiment)
            workload = workloads.by_name()[asked.workload]
            assert (row.statistic or asked.statistic) in workload.statistics
            pairs = row.pairs(plan.make(asked))
            names += [(*pair, row.called, row.statistic) for pair in pairs]
    assert len(set(names)) == len(names)


def test_a_row_that_names_no_cells_of_its_experiment_is_refused(migrated: Workshop):
    for row in (Wanted("real.yaml", "web"), Wanted("real.yaml", OURS, "xbzrle")):
        with pytest.raises(UsageError, match=r"compares no .* with"):
            row(migrated)


def test_a_bound_is_kept_or_broken_by_the_whole_interval(migrated: Workshop):
    (bound,) = Wanted("real.yaml", OURS, PLAIN, "wire")(migrated).bounds
    low, high = bound.found.low, bound.found.high
    assert low is not None
    assert high is not None
    assert high < 1  # pageshare saves bytes; else the bounds below would ask something else
    for most, verdict in (
        (high * 1.001, Kept.HOLDS),
        ((low * high) ** 0.5, Kept.INCONCLUSIVE),  # the estimate is not enough
        (low * 0.999, Kept.FAILS),
    ):
        found = judged(Wanted("real.yaml", OURS, PLAIN, "wire", most=most), migrated)
        assert found.verdict is verdict
        other_way = Wanted("real.yaml", PLAIN, OURS, "wire", least=1 / most)
        assert judged(other_way, migrated).verdict is verdict
    name = "pageshare over plain, wire"
    assert found.figure.startswith(f"{name} 0.")
    assert f"(wanted at most {low * 0.999:.4g})" in found.figure
    assert found.data["bounds"][name]["blocks"] == 6
    assert len(found.data[name]["values"]) == 2


def test_without_another_cell_each_of_the_plans_comparisons_is_judged(migrated: Workshop):
    found = Wanted("real.yaml", statistic="wire", most=9.0)(migrated)
    arms = ("multifd+zstd", "references", "pageshare")
    assert {bound.name for bound in found.bounds} == {f"{arm} over plain, wire" for arm in arms}
    (one,) = Wanted("real.yaml", "ref*", statistic="wire")(migrated).bounds
    assert one.name == "references over plain, wire"


def test_a_difference_has_the_unit_of_its_statistic(migrated: Workshop):
    found = judged(Wanted("real.yaml", OURS, PLAIN, "time", most=0.0, difference=True), migrated)
    assert found.verdict is Kept.HOLDS
    assert found.figure.startswith("pageshare over plain, time \N{MINUS SIGN}")
    assert found.figure.endswith("] ms")


def test_what_was_never_measured_keeps_no_bound_and_is_no_figure(migrated: Workshop):
    for row in (
        Wanted("real.yaml", OURS, PLAIN, "beside_source", most=1000.0),
        Wanted("real.yaml", OURS, PLAIN, "beside_source"),
    ):
        found = judged(row, migrated)
        assert found.verdict is Kept.INCONCLUSIVE
        assert "0 blocks give no interval" in found.figure


def test_how_large_a_loss_would_have_been_found_is_said_where_little_may_be_lost(
    migrated: Workshop,
):
    said = "would have been found 80 times in 100"
    assert said in judged(Wanted("real.yaml", OURS, PLAIN, "wire", most=1.05), migrated).figure
    assert said not in judged(Wanted("real.yaml", OURS, PLAIN, "wire", most=0.5), migrated).figure


def test_claims_on_one_experiment_share_its_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    ran: list[str] = []
    record = Record(HOME / "testdata/results/cpu")
    monkeypatch.setattr(experiments, "run_text", lambda _, __, name: ran.append(name) or record)
    (tmp_path / "experiments").mkdir()
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / "experiments" / name).write_text("")
    shop = Workshop(*[tmp_path] * 4, lambda _: None)
    first = run_shipped(shop, "a.yaml")
    assert run_shipped(shop, "a.yaml") is first
    run_shipped(shop, "b.yaml")
    assert ran == ["a", "b"]


def arms(**values: list[dict[str, float]]) -> Workshop:
    """A result of one saturated guest: arm -> its trials' values."""
    trials = {
        arm: [SimpleNamespace(values=of, settings={"guests_cpu_share": SHARE}) for of in each]
        for arm, each in values.items()
    }
    sessions = SimpleNamespace(measured=lambda cell: trials[cell])
    return workshop(saturated=SimpleNamespace(sessions=sessions))


SHARE = {"migrates": 0.25, "stays": 0.125, "peer": 0.9}
MS = 1e6


@pytest.mark.parametrize(
    ("plain", "ours", "verdict"),
    [
        ([100], [250, 330], Kept.HOLDS),
        ([100], [250, 360], Kept.FAILS),
        ([380, 400], [420], Kept.HOLDS),
        ([100], [], Kept.FAILS),
    ],
)
def test_the_longest_standstill_counts_against_plains_or_the_limit(
    plain: list[int], ours: list[int], verdict: Kept
):
    shop = arms(
        plain=[{"downtime": ms * MS} for ms in plain],
        pageshare=[{"downtime": ms * MS} for ms in ours],
    )
    assert migrations.downtime("saturated.yaml", "spin", shop).counted is verdict


def test_what_guests_left_of_their_host_is_said_beside_times():
    beside = migrations.idle("saturated.yaml", "spin", arms(plain=[{}, {}]))
    assert beside.line == "spin guests leave idle at the source 0.62"
    assert beside.data == {"spin guests leave idle at the source": [0.625, 0.625]}
    assert beside.counted is Kept.HOLDS


@pytest.mark.parametrize("moved", [True, False])
def test_processor_time_beyond_plain_is_of_a_gib_that_was_moved(moved: bool):
    trials = [SimpleNamespace(values={"wire": 2.0 * 2**30} if moved else {})]
    sessions = SimpleNamespace(measured=lambda cell: trials if cell == "random/plain" else [])
    took = paired_ratio([5e9, 5.1e9, 4.9e9, 5e9] * 2, [1e9] * 8)
    measured = SimpleNamespace(sessions=sessions, ratio=lambda *_: took)
    (bound,) = migrations.extra_processor_time("cpu.yaml", workshop(cpu=measured)).bounds
    if moved:
        assert bound.found.estimate == pytest.approx(2.0, rel=0.01)
        assert bound.kept is Kept.FAILS
    else:
        assert bound.kept is Kept.INCONCLUSIVE


def test_what_senders_counted_is_summed():
    record = {"proxies": {"send": {"pages_asked": 10, "pages_referenced": 4}}}
    one = Trial(
        block=0, position=0, cell="all", session="s", started="2026-01-01T00:00:00", seconds=1.0,
        status="ok", settings=record,
    )  # fmt: skip
    found = migrations._counted([one, one])
    assert (found["pages_asked"], found["pages_referenced"], found["merged_found"]) == (20, 8, 0)
