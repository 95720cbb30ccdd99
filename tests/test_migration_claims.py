"""What the claims on migrations make of a result: a bound holds with its whole interval only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from claims import Workshop, migration
from claims.migration import (
    _counted,
    _extra_cpu,
    _idle,
    _judge,
    _judge_downtime,
    _Limit,
    _Trials,
)
from tare.cell import Cell
from tare.record import Trial
from tare.stats.bounds import Kept

BLOCKS = 8


def trial(cell: str, block: int, values: dict[str, float], **settings: Any) -> Trial:
    return Trial(
        block=block,
        position=0,
        cell=cell,
        session="s",
        started="2026-01-01T00:00:00",
        seconds=1.0,
        status="ok",
        values=values,
        settings=settings,
    )


def result(settings: dict[str, Any] = {}, **arms: dict[str, float]) -> _Trials:  # noqa: B006
    """A result of one guest: arm -> values, a little different in each block."""
    cells = [Cell(id=arm, levels={"guest": "web", "arm": arm}) for arm in arms]
    trials = [
        trial(
            arm,
            block,
            {k: v * (1 + 0.01 * ((block * 7 + len(arm)) % 5)) for k, v in of.items()},
            **settings,
        )
        for arm, of in arms.items()
        for block in range(BLOCKS)
    ]
    plan = SimpleNamespace(cells=cells, blocks=range(BLOCKS))
    found: Any = SimpleNamespace(plan=plan, trials=tuple(trials))
    return _Trials(found)


def test_a_bound_holds_where_the_whole_interval_keeps_it():
    found = result(plain={"wire": 100.0}, pageshare={"wire": 10.0})
    kept = _Limit("wire", "pageshare", "plain", 0.12, {"guest": "web"})
    broken = _Limit("wire", "pageshare", "plain", 0.0999, {"guest": "web"})
    assert _judge(found, (kept,)).result().holds
    judged = _judge(found, (kept, broken)).result()
    assert judged.verdict is not Kept.HOLDS
    assert "(wanted at most 0.0999" in judged.figure
    assert judged.data["bounds"]["web pageshare / plain, wire"]["blocks"] == BLOCKS


def test_an_arm_that_was_never_measured_keeps_no_bound():
    found = result(plain={"wire": 100.0}, pageshare={})
    bound = _Limit("wire", "pageshare", "plain", 1000.0, {"guest": "web"})
    judged = _judge(found, (bound,)).result()
    assert judged.verdict is Kept.UNDECIDED
    assert "0 blocks give no interval" in judged.figure


def test_the_longest_standstill_counts_against_plains_or_the_limit():
    ms = 1e6
    short = result(plain={"downtime": 100 * ms}, pageshare={"downtime": 330 * ms})
    assert _judge_downtime(short, "web").result().holds
    long = result(plain={"downtime": 100 * ms}, pageshare={"downtime": 360 * ms})
    assert _judge_downtime(long, "web").result().verdict is Kept.FAILS
    slow_before = result(plain={"downtime": 400 * ms}, pageshare={"downtime": 420 * ms})
    assert _judge_downtime(slow_before, "web").result().holds


def test_processor_time_beyond_plain_is_of_a_gib():
    found = result(
        plain={"cpu": 1e9, "wire": float(2**30)}, pageshare={"cpu": 2e9, "wire": float(2**30)}
    )
    assert _extra_cpu(found, {"guest": "web"}).found.high == pytest.approx(1.0, rel=0.1)


def test_processor_time_of_memory_that_was_not_moved_is_undecided():
    found = result(plain={"cpu": 1e9}, pageshare={"cpu": 2e9})
    assert _extra_cpu(found, {"guest": "web"}).kept is Kept.UNDECIDED


def test_what_senders_counted_is_summed_and_absent_trials_left_out():
    record = {"proxies": {"send": {"pages_asked": 10, "pages_referenced": 4}}}
    trials = [trial("all", 0, {}, **record), None, trial("all", 2, {}, **record)]
    found = _counted(trials)
    assert (found["pages_asked"], found["pages_referenced"], found["merged_found"]) == (20, 8, 0)


def test_every_claim_on_migrations_can_be_checked():
    ids = [claim.id for claim in migration.CLAIMS]
    assert ids == ["D1", "D2", "D3", "D4", "D5", "D6", "D9"]


def test_claims_on_one_experiment_share_its_run(monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []
    monkeypatch.setattr(migration, "run_shipped", lambda _, name, __: ran.append(name) or object())
    nowhere = Path("/nowhere")
    workshop = Workshop(nowhere, nowhere, nowhere, lambda _: None)
    first = migration._run(workshop, "a.yaml")
    assert migration._run(workshop, "a.yaml") is first
    migration._run(workshop, "b.yaml")
    assert ran == ["a.yaml", "b.yaml"]


def test_what_guests_left_of_their_host_is_said_beside_times():
    shares = {"migrates": 0.25, "stays": 0.125, "peer": 0.9}
    beside = _idle(result({"guests_cpu_share": shares}, plain={"time": 1.0}), "web")
    assert beside.counted
    assert beside.lines == ["web guests leave idle at the source 0.62"]
    assert beside.data["web guests leave idle at the source"] == [0.625] * BLOCKS
