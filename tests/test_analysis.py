"""What an analysis says of records whose truth is known."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import records
from tare import analysis
from tare.accounting import Account, ThreadTime
from tare.analysis import sessions
from tare.analysis.threads import WAITED
from tare.errors import TareError, UsageError
from tare.record import Record
from tare.stats import Verdict

SMALL = records.TWO_ENVIRONMENTS


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    recipe = records.Recipe(failing=frozenset({(3, "container/udp")}), lost={"qemu/fastdds": 2})
    return records.make(tmp_path_factory.mktemp("whole") / "record", recipe)


@pytest.fixture(scope="module")
def found(whole):
    return analysis.analyse(whole)


def question(found, cell):
    return next(q for q in found.questions if q.cell.id == cell)


def test_an_interval_holds_the_ratio_that_was_put_in(found):
    for cell in ("container/cyclonedds", "qemu/cyclonedds", "qemu/udp"):
        asked = question(found, cell)
        truth = records.response_us(asked.cell) / records.response_us(asked.against)
        assert asked.ratio.ratio.low <= truth <= asked.ratio.ratio.high


def test_verdicts_follow_the_truth(found):
    assert question(found, "qemu/cyclonedds").judgement.verdict is Verdict.SLOWER
    assert question(found, "container/cyclonedds").judgement.verdict is Verdict.EQUIVALENT


def test_what_is_outside_of_the_family_gets_no_verdict(found):
    assert question(found, "qemu/icmp").judgement is None


def test_a_failed_trial_is_absent_and_named(found):
    view = found.view("container/udp")
    assert 3 not in view.sessions
    assert view.failed == 1
    assert question(found, "container/udp").ratio.n_used == 7
    assert [(t.block, t.cell) for t in found.failures] == [(3, "container/udp")]


def test_blocks_in_which_both_cells_failed_are_told_and_forbid_a_promise(tmp_path):
    """A guest that does not boot takes all of its cells with it."""
    both = [f"container/{transport}" for transport in ("udp", "cyclonedds")]
    failing = frozenset((block, cell) for block in range(4) for cell in both)
    text = SMALL.replace("{environment: native}", "{transport: udp}").replace("floor:", "#")
    record = records.make(
        tmp_path / "r", records.Recipe(blocks=10, requests=50, failing=failing), text
    )
    ratio = question(analysis.analyse(record), both[1]).ratio
    assert (ratio.n_used, ratio.n_dropped) == (6, 4)
    assert ratio.ratio.resolved
    assert not ratio.promised.ratio.resolved


def test_lost_requests_are_counted_and_have_no_response_time(found):
    view = found.view("qemu/fastdds")
    assert view.lost == 16
    assert view.requests == 8000
    assert all(session.replies == 998 for session in view.sessions.values())


def test_the_parts_of_a_budget_add_up(found):
    for budget in found.contrasts:
        parts = sum(part.amount.estimate for part in budget.shares.parts)
        assert parts == pytest.approx(budget.shares.whole.estimate)


def test_the_whole_of_a_budget_is_the_mean_of_its_sessions(tmp_path):
    text = SMALL.replace("{min: 8, max: 10}", "{min: 8, max: 8, sessions: 2}")
    recipe = records.Recipe(blocks=8, requests=50, spread=0.5)
    found = analysis.analyse(records.make(tmp_path / "r", recipe, text))
    (budget,) = found.contrasts
    means = found.sessions.mean_responses(budget.cell.id)
    assert budget.shares.whole.estimate == pytest.approx(np.mean(means))


def test_nothing_is_split_that_no_server_answered(found):
    assert {budget.cell.levels["transport"] for budget in found.contrasts} == {
        "cyclonedds",
        "fastdds",
    }


def test_an_account_closes_without_the_guests_own_view(found):
    account = next(a for a in found.threads if a.cell.id == "qemu/udp")
    assert account.shares.together.share.estimate == pytest.approx(0.95, abs=0.001)
    assert account.guest_ns.value > 0


def test_a_wait_that_the_account_itself_fills_is_not_counted_twice(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), SMALL)

    def with_waits(client_wait, server_wait):
        for trial in record.trials():
            threads = [
                ThreadTime("client", "c", 1, 500_000, client_wait, 0, 0),
                ThreadTime("server", "s", 2, 400_000, server_wait, 0, 0),
            ]
            changed = {"client": Account((threads[0],)), "server": Account((threads[1],))}
            with record.writing() as writer:
                writer.append(trial.model_copy(update=changed))
        account = analysis.analyse(record).threads[0]
        return {line.name: line.amount.estimate for line in account.shares.parts}[WAITED]

    assert with_waits(client_wait=0, server_wait=500_000) == 0
    assert with_waits(client_wait=0, server_wait=700_000) == (700_000 - 500_000) / 100


def test_a_wait_that_was_in_one_block_alone_is_shared_among_all(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=8, requests=100), SMALL)
    with record.writing() as writer:
        for trial in record.trials():
            wait = 100_000 if trial.block == 7 else 0
            server = ThreadTime("server", "s", 2, 400_000, wait, 0, 0)
            writer.append(trial.model_copy(update={"server": Account((server,))}))
    account = analysis.analyse(record).threads[0]
    assert (account.waits["server"].value, account.waits["server"].n) == (125.0, 8)
    assert account.waits["server"].low is None
    assert account.cpu_ns.low is not None


def test_several_requests_at_a_time_need_not_close(tmp_path):
    text = SMALL.replace("transport: [udp, cyclonedds]", "clients: [1, 4]")
    text = text.replace("floor: {transport: udp}\n", "")
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), text)
    closes = {a.cell.levels["clients"]: a.closes for a in analysis.analyse(record).threads}
    assert closes == {"1": True, "4": False}


def test_published_figures_stand_beside_ours(found):
    beside = {b.figure.id: b for b in found.beside}
    extra = beside["virtualisation-extra"]
    cyclone = next(o for o in extra.ours if o.cell.id == "qemu/cyclonedds")
    ratio = question(found, "qemu/cyclonedds").others["mean"].ratio.estimate
    assert cyclone.estimate == pytest.approx(100 * (ratio - 1))


def test_late_replies_are_counted_against_each_deadline(tmp_path):
    path = tmp_path / "s.parquet"
    records.write_samples(path, np.array([10_000, 30_000, 20_000, 99_000], dtype=np.int64), lost=1)
    session = analysis.summarise_session(path, (20_000, 50_000))
    assert session.late == (2, 1)
    assert (session.requests, session.lost, session.replies) == (4, 1, 3)


def test_percentiles_are_of_requests_and_lost_ones_are_the_longest(tmp_path):
    """Else a session gets faster by losing its slow requests."""
    path = tmp_path / "samples.parquet"
    rest = np.random.default_rng(1).permutation(np.arange(1, 971))
    responses = np.concatenate([np.arange(971, 1001), rest])  # the first are lost
    records.write_samples(path, responses, lost=30)
    session = analysis.summarise_session(path)
    for found in (session.value, lambda name: session.summary.percentile(float(name[1:])).value):
        assert [found(f"p{p}") for p in (50, 90, 99)] == [500.0, 900.0, None]
    assert [
        q for q, share in zip(session.quantiles, sessions.GRID, strict=True) if share == 0.97
    ] == [970.0]
    assert (session.summary.n, session.summary.max_ns) == (970, 970.0)
    assert session.summary.mean_ns == responses[30:].mean()
    records.write_samples(path, responses, lost=600)
    assert analysis.summarise_session(path).value("p50") is None


def test_a_session_that_lost_requests_has_the_percentile_that_its_requests_resolve(tmp_path):
    """The worst sessions must not be the ones that are left out."""
    path = tmp_path / "samples.parquet"
    responses = np.random.default_rng(1).permutation(np.arange(1, 301))
    records.write_samples(path, np.concatenate([[300], responses[responses < 300]]), lost=1)
    p99 = analysis.summarise_session(path).summary.percentile(99.0)
    assert p99.value == 297.0
    assert p99.high is None, "it is the lost one's"


def test_what_is_no_environment_is_not_split_into_virtualisation(tmp_path):
    text = """\
title: A neighbour
factors: {interference: [none, host cpu 50 %], transport: [udp, cyclonedds]}
baseline: {interference: none}
floor: {transport: udp}
blocks: {min: 8, max: 8}
"""
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=50), text)
    assert analysis.analyse(record).contrasts == ()


def test_a_percentile_that_some_session_cannot_resolve_is_not_printed(tmp_path):
    path = tmp_path / "s.parquet"
    ramp = np.linspace(10_000, 20_000, 400).astype(np.int64)
    records.write_samples(path, ramp)
    session = analysis.summarise_session(path)
    assert session.value("p99") == pytest.approx(19_900, rel=0.01)
    assert not session.resolves("p99"), "a ramp is worth a handful of samples"


def test_a_session_that_drifts_keeps_its_median(tmp_path):
    path = tmp_path / "s.parquet"
    records.write_samples(path, np.repeat(np.array([10_000, 20_000], dtype=np.int64), 500))
    session = analysis.summarise_session(path)
    assert session.summary.percentile(50.0).value is None
    assert session.value("p50") == 10_000


def test_samples_of_several_clients_are_put_in_the_order_of_time(tmp_path):
    ramp = np.arange(1, 201, dtype=np.int64) * 100
    sent = np.arange(200, dtype=np.int64) * 1_000_000
    order = np.concatenate([np.arange(0, 200, 2), np.arange(1, 200, 2)])
    columns = {"intended_ns": sent[order], "sent_ns": sent[order]}
    table = pa.table({**columns, "received_ns": (sent + ramp)[order]})
    pq.write_table(table, tmp_path / "s.parquet")
    assert analysis.summarise_session(tmp_path / "s.parquet").summary.jitter_ns == 100


def test_open_loop_counts_from_the_intended_send(tmp_path):
    columns = {"intended_ns": [0, 1000], "sent_ns": [50, 1300], "received_ns": [500, 2000]}
    pq.write_table(pa.table(columns), tmp_path / "s.parquet")
    session = analysis.summarise_session(tmp_path / "s.parquet")
    assert session.summary.max_ns == 1000


def columns_with(**changed):
    return {"intended_ns": [0, 10], "sent_ns": [0, 10], "received_ns": [5, 15]} | changed


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (columns_with(received_ns=[5, 3]), "backwards"),
        (columns_with(sent_ns=[0, 5]), "backwards"),
        (columns_with(sent_ns=[0, None]), "lacks the time"),
        (columns_with(sent_ns=["a", "b"]), "64-bit"),
        ({"intended_ns": [1]}, "64-bit"),
        ({name: pa.array([], pa.int64()) for name in columns_with()}, "no request"),
    ],
)
def test_samples_that_cannot_be_a_measurement_are_refused(tmp_path, columns, said):
    path = tmp_path / "s.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(UsageError, match=said) as caught:
        analysis.summarise_session(path)
    assert str(path) in str(caught.value)


def test_a_missing_sample_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"gone\.parquet"):
        analysis.summarise_session(tmp_path / "gone.parquet")


@settings(
    deadline=None,
    derandomize=True,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_damaged_samples_give_one_clear_error(tmp_path, data):
    good = tmp_path / "good.parquet"
    if not good.exists():
        responses = records.draw_responses(np.random.default_rng(5), 9e3, 300, 0.1)
        records.write_samples(good, responses, lost=3)
    damaged = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    path = tmp_path / "damaged.parquet"
    path.write_bytes(damaged[:cut] if data.draw(st.booleans()) else damaged)
    sessions._summarise.cache_clear()
    try:
        found = analysis.summarise_session(path)
    except TareError as error:
        assert str(path) in error.what
    else:
        assert found.requests >= found.replies


def test_sessions_are_read_once_however_often_they_are_asked_for(tmp_path, monkeypatch):
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), SMALL)
    reads = []
    read = sessions._read
    monkeypatch.setattr(sessions, "_read", lambda path: reads.append(path) or read(path))
    analysis.half_widths(record)
    watched = {c.cell for c in record.plan.watched} | {c.against for c in record.plan.watched}
    assert len(reads) == sum(1 for trial in record.trials() if trial.cell in watched)
    analysis.half_widths(record)
    analysis.analyse(record)
    assert len(reads) == len(set(reads)) == sum(1 for t in record.trials() if t.samples)


def test_a_trial_measured_again_is_read_again(tmp_path):
    path = tmp_path / "s.parquet"
    records.write_samples(path, np.full(100, 5000, dtype=np.int64))
    assert analysis.summarise_session(path).value("p50") == 5000
    records.write_samples(path, np.full(101, 7000, dtype=np.int64))
    assert analysis.summarise_session(path).value("p50") == 7000


def test_half_widths_are_those_of_the_family_and_absent_before_there_are_blocks(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), SMALL)
    widths = analysis.half_widths(record)
    assert set(widths) == {c.id for c in record.plan.family}
    assert set(widths.values()) == {None}


def test_a_run_that_has_only_begun_can_be_analysed(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=0), SMALL)
    found = analysis.analyse(record)
    assert found.complete_blocks == 0
    assert all(q.judgement.verdict is Verdict.NOT_MEASURED for q in found.questions)


def test_so_many_blocks_more_end_an_inconclusive_verdict(tmp_path):
    def questions(folder, blocks):
        recipe = records.Recipe(blocks=blocks, requests=50, spread=0.02)
        text = SMALL.replace("max: 10", f"max: {blocks}")
        return analysis.analyse(records.make(tmp_path / folder, recipe, text)).questions

    open_ = [q for q in questions("few", 8) if q.blocks_more is not None]
    assert open_
    assert all(q.judgement.verdict is Verdict.INCONCLUSIVE for q in open_)
    more = max(q.blocks_more for q in open_)
    later = {q.comparison.id: q for q in questions("more", 8 + more)}
    assert all(later[q.comparison.id].judgement.verdict is not Verdict.INCONCLUSIVE for q in open_)
    assert all(q.blocks_more is None for q in later.values())


def test_published_figures_stand_only_beside_experiments_that_replay_the_papers(tmp_path):
    recipe = records.Recipe(blocks=2, requests=50)
    assert analysis.analyse(records.make(tmp_path / "a", recipe)).beside
    text = records.EXPERIMENT.replace("replays: A\n", "")
    assert not analysis.analyse(records.make(tmp_path / "b", recipe, text)).beside


def test_a_result_is_read_where_its_processors_are_not(tmp_path, monkeypatch):
    text = SMALL.replace("factors:\n", "factors:\n  placement: [client=6 server=7]\n")
    record = records.make(tmp_path / "r", records.Recipe(blocks=1, requests=100), text)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    found = analysis.analyse(record)
    assert {view.cell.levels["placement"] for view in found.cells} == {"client=6 server=7"}


def test_an_incomplete_block_does_not_count_as_complete(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), SMALL)
    lines = (record.folder / "trials.ndjson").read_bytes().splitlines(keepends=True)
    (record.folder / "trials.ndjson").write_bytes(b"".join(lines[:-1]))
    assert analysis.analyse(Record(record.folder)).complete_blocks == 1


def test_in_open_loop_the_lateness_of_the_clients_timer_is_part_of_the_floor(tmp_path):
    text = SMALL.replace("transport: [udp, cyclonedds]", "mode: [closed, open 1000/s]")
    text = text.replace("floor: {transport: udp}\n", "")
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=100), text)
    read = sessions.Sessions(record)
    floors = {
        cell.levels["mode"]: sessions.instrument_floor([(read, cell.id)])
        for cell in record.plan.cells
    }
    assert floors == {"closed": 60.0, "open 1000/s": 20_000.0}


def test_a_margin_below_the_instruments_floor_is_refused(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(requests=200), SMALL)
    coarse = tmp_path / "coarse"
    shutil.copytree(record.folder, coarse)
    text = (coarse / "trials.ndjson").read_text().replace('"floor_ns":60.0', '"floor_ns":5000.0')
    (coarse / "trials.ndjson").write_text(text)
    verdicts = {q.judgement.verdict for q in analysis.analyse(Record(coarse)).questions}
    assert verdicts == {Verdict.BELOW_INSTRUMENT}
