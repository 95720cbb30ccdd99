"""What rows and other parts of claims make of a result: a bound is kept by the whole interval."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import claims
import records
import workshops
from claims import Claim, Result, Workshop, commands, experiments, judge, migrations
from claims.experiments import Measured, run_shipped
from claims.rows import Wanted
from tare import analysis, environments, experiment, plan, workloads
from tare.environments import Site
from tare.errors import TrialError, UsageError
from tare.record import Record
from tare.stats import paired_ratio
from tare.stats.bounds import Bound, Kept

HOME = Path(__file__).parents[1]
NOWHERE = Path("/nowhere")
OURS, PLAIN = "pageshare", "plain"


@pytest.fixture(scope="module")
def migrated() -> Workshop:
    """A real result of a migration of each arm."""
    record = Record(HOME / "testdata/results/migration")
    return workshops.bare(real=Measured(record, analysis.analyse(record)))


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
        assert "no verdict follows from 0 blocks" in found.figure


def short(blocks: int, lost: int) -> list[float | None]:
    """A column of which the last blocks are lost."""
    return [0.1 + 0.01 * (block % 3) for block in range(blocks - lost)] + [None] * lost


@pytest.mark.parametrize(
    ("blocks", "lost", "confidence", "verdict"),
    [
        (5, 0, 0.95, Kept.INCONCLUSIVE),
        (6, 0, 0.95, Kept.HOLDS),
        (7, 0, 0.9875, Kept.INCONCLUSIVE),
        (8, 0, 0.9875, Kept.HOLDS),
        (8, 1, 0.95, Kept.HOLDS),
        (8, 2, 0.95, Kept.INCONCLUSIVE),
        (8, 6, 0.95, Kept.INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("difference", [False, True])
def test_no_verdict_follows_from_blocks_too_few_nor_where_many_lack_a_side(
    blocks: int, lost: int, confidence: float, verdict: Kept, difference: bool
):
    found = paired_ratio(short(blocks, lost), [1.0] * blocks, confidence).promised
    one = found.difference if difference else found.ratio
    assert one.estimate is not None
    assert Bound("x", one, most=0.4, ratio=not difference).kept is verdict


def test_rows_are_judged_by_what_a_promise_is(migrated: Workshop, monkeypatch: pytest.MonkeyPatch):
    sessions = migrated.measured["real.yaml"].sessions
    monkeypatch.setattr(sessions, "tried", lambda *_, statistic: (short(8, 6), [1.0] * 8))
    found = judged(Wanted("real.yaml", OURS, PLAIN, "wire", most=0.4), migrated)
    assert found.verdict is Kept.INCONCLUSIVE
    assert "no verdict follows from 2 blocks" in found.figure


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
    shop = workshops.bare(tmp_path)
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
    measured = {arm: [one for one in of if one.values] for arm, of in trials.items()}
    sessions = SimpleNamespace(measured=measured.__getitem__, trials_of=trials.__getitem__)
    return workshops.bare(saturated=SimpleNamespace(sessions=sessions))


def test_memcacheds_floor_is_what_was_drawn_and_the_web_guests_bytes(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(migrations, "drawn_bytes", lambda: 30e6)
    columns = {"memcached/pageshare": [48e6, 49e6, 47e6, 48e6] * 2, "web/pageshare": [10e6] * 8}
    sessions = SimpleNamespace(tried=lambda *cells, statistic: [columns[cell] for cell in cells])
    shop = workshops.bare(testbed=SimpleNamespace(sessions=sessions))
    found = migrations.beside_floor("testbed.yaml", shop)
    (bound,) = found.bounds
    assert bound.found.estimate == pytest.approx(1.2, rel=0.001)
    assert bound.kept is Kept.FAILS
    assert "30.0 MB drawn at random" in found.line


SHARE = {"migrates": 0.25, "stays": 0.125, "peer": 0.9}
MS = 1e6


@pytest.mark.parametrize(
    ("plain", "ours", "verdict"),
    [
        ([100], [250, 330], Kept.HOLDS),
        ([100], [250, 360], Kept.FAILS),
        ([380, 400], [420], Kept.HOLDS),
        ([100], [], Kept.INCONCLUSIVE),
        ([100], [250, None], Kept.INCONCLUSIVE),
        ([100], [360, None], Kept.FAILS),
    ],
)
def test_the_longest_standstill_counts_against_plains_or_the_limit(
    plain: list[int], ours: list[int | None], verdict: Kept
):
    """A trial that failed may have been the longest."""
    shop = arms(
        plain=[{"downtime": ms * MS} for ms in plain],
        pageshare=[{} if ms is None else {"downtime": ms * MS} for ms in ours],
    )
    assert migrations.downtime("saturated.yaml", "spin", shop).counted is verdict


def test_what_guests_left_of_their_host_is_said_beside_times():
    beside = migrations.idle("saturated.yaml", "spin", arms(plain=[{"wire": 1.0}] * 2))
    assert beside.line == "spin guests leave idle at the source 0.62"
    assert beside.data == {"spin guests leave idle at the source": [0.625, 0.625]}
    assert beside.counted is Kept.HOLDS


@pytest.mark.parametrize("moved", [True, False])
def test_processor_time_beyond_plain_is_of_a_gib_that_was_moved(moved: bool):
    trials = [SimpleNamespace(values={"wire": 2.0 * 2**30} if moved else {})]
    sessions = SimpleNamespace(measured=lambda cell: trials if cell == "random/plain" else [])
    took = paired_ratio([5e9, 5.1e9, 4.9e9, 5e9] * 2, [1e9] * 8)
    measured = SimpleNamespace(sessions=sessions, ratio=lambda *_: took)
    (bound,) = migrations.extra_processor_time("cpu.yaml", workshops.bare(cpu=measured)).bounds
    if moved:
        assert bound.found.estimate == pytest.approx(2.0, rel=0.01)
        assert bound.kept is Kept.FAILS
    else:
        assert bound.kept is Kept.INCONCLUSIVE


@pytest.mark.parametrize(
    ("absent", "fails", "verdict"),
    [
        ((), (), Kept.HOLDS),
        (("uml",), (), Kept.INCONCLUSIVE),
        ((), ("uml",), Kept.FAILS),
        (("uml",), ("qemu",), Kept.FAILS),
    ],
)
def test_commands_in_an_environment_that_is_not_here_decide_nothing(
    monkeypatch: pytest.MonkeyPatch,
    absent: tuple[str, ...],
    fails: tuple[str, ...],
    verdict: Kept,
):
    def kind(name: str) -> Any:
        here = SimpleNamespace(available=name not in absent, detail="no")
        return SimpleNamespace(availability=lambda: here)

    @contextmanager
    def bench(_program: Any, place: str, *_: Any, **__: Any) -> Iterator[Any]:
        if place in fails:
            raise TrialError("it printed nothing")
        yield lambda: 1e6

    monkeypatch.setattr(environments, "by_name", lambda: {p: kind(p) for p in commands._PLACES})
    monkeypatch.setattr(environments, "named", kind)
    site = Site(*[NOWHERE] * 3, *[None] * 3)  # type: ignore[arg-type]
    monkeypatch.setattr(commands, "site_for", lambda place, *_: nullcontext((place, site)))
    monkeypatch.setattr(commands, "_bench", bench)
    found = commands.everywhere(workshops.bare())
    assert found.counted is verdict
    assert all(f"not tried, {name}: no" in found.line for name in absent)


@pytest.mark.parametrize("measured", [0, 1, 2])
def test_an_ablation_that_was_not_measured_whole_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, measured: int
):
    counts = dict.fromkeys(migrations._COUNTED, 1)
    given = iter([counts] * (2 * measured) + [dict.fromkeys(migrations._COUNTED, 0)] * 4)
    monkeypatch.setattr(migrations, "_counted", lambda _: next(given))
    took = SimpleNamespace(ratio=paired_ratio([1.0, 2.0], [1.0, 1.0]).ratio)
    sessions = SimpleNamespace(measured=lambda _: [])
    shop = workshops.bare(
        **{"migration-ablation": SimpleNamespace(sessions=sessions, ratio=lambda *_: took)}
    )
    verdict = Kept.HOLDS if measured == 2 else Kept.INCONCLUSIVE
    assert migrations.ablation(shop).counted is verdict


def test_what_senders_counted_is_summed():
    record = {"proxies": {"send": {"pages_asked": 10, "pages_referenced": 4}}}
    one = records.ended(0, 0, "all", settings=record)
    found = migrations._counted([one, one])
    assert (found["pages_asked"], found["pages_referenced"], found["merged_found"]) == (20, 8, 0)
