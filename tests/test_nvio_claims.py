"""What the claims on nvio and walks make of what they find."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any, cast

import pytest

import workshops
from claims import by_id
from claims.darshan_logs import Advised, judged
from claims.run_times import GRIDS, Calibrated, Compared, compared
from tare import process
from tare.stats.bounds import Kept


def bench(vnni: bool, product_s: float, planes: tuple[int, int] = (1, 1)) -> str:
    """What `walks bench` prints of one case whose raw product takes 10 ms."""
    case = {
        "planes": planes, "pairs": planes[0] * planes[1], "cells": [1, 2, 8],
        "raw_gemm_s": [0.010] * 8, "raw_matmul_s": [0.012] * 8, "product_s": [product_s] * 8,
    }  # fmt: skip
    return json.dumps({"onednn": "3", "vnni": vnni, "threads": 2, "cases": [case]})


@pytest.mark.parametrize(
    ("planes", "product_s", "holds"),
    [
        ((1, 1), 0.0110, True),
        ((1, 1), 0.0112, False),
        ((2, 1), 0.028, True),
        ((2, 1), 0.029, False),
    ],
)
def test_a_product_is_judged_by_its_planes(
    planes: tuple[int, int], product_s: float, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Said:
        stdout = ""

    def run(command: object, _timeout_s: float) -> Said:
        said = Said()
        said.stdout = bench("ONEDNN_MAX_CPU_ISA" not in str(command), product_s, planes)
        return said

    monkeypatch.setattr(process, "run", run)
    shop = workshops.bare()
    found = by_id("C8").check(shop)
    assert found.holds is holds
    assert "exact with cells of 1, 2, 8 bytes" in found.figure


@pytest.mark.parametrize("vnni", [False, True])
def test_a_product_that_ran_one_way_alone_is_not_shown_both_ways(
    vnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(stdout=bench(vnni, 0.011))
    monkeypatch.setattr(process, "run", lambda _command, _timeout_s: said)
    found = by_id("C8").check(workshops.bare())
    assert found.verdict is Kept.INCONCLUSIVE


def latencies(idle: float, ratios: dict[str, float]) -> str:
    """What `nvio-bench latency` prints of one client; ratios that are not given hold."""
    run: dict[str, Any] = {"clients": 1, "idle_manager_share": idle}
    for side in (f"{way}_over_{what}" for way in ("read", "write") for what in ("copy", "echo")):
        run[side] = {"low": 0.1, "median": ratios.get(side, 1.1), "high": 9.0, "rounds": 6}
    return json.dumps({"runs": [run]})


@pytest.mark.parametrize(
    ("idle", "ratios", "verdict"),
    [
        (0.009, [{}], Kept.HOLDS),
        (0.01, [{}], Kept.FAILS),
        (0, [{"read_over_copy": 2.3}, {"read_over_copy": 2.4}], Kept.HOLDS),
        (0, [{"read_over_copy": 2.6}, {"read_over_copy": 2.7}], Kept.FAILS),
        (0, [{"write_over_copy": 2.6}], Kept.FAILS),
        (0, [{"write_over_copy": 2.3}, {"write_over_copy": 2.6}], Kept.INCONCLUSIVE),
        (0, [{"read_over_echo": 1.4}], Kept.FAILS),
    ],
)
def test_what_is_cached_is_judged_by_ratios_over_starts_of_the_program(
    idle: float, ratios: list[dict[str, float]], verdict: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = cycle(SimpleNamespace(stdout=latencies(idle, of_one)) for of_one in ratios)
    monkeypatch.setattr(process, "run", lambda _command, _timeout_s: next(starts))
    found = by_id("C2").check(workshops.bare())
    assert found.verdict is verdict
    assert "1 clients write over a copy of shared memory" in found.figure


def scaled(**differing: Any) -> str:
    """What `nvio-bench scale` prints of eight jobs at each number of nodes."""
    jobs = []
    for repeat in range(8):
        for nodes in (4, 8, 16, 32, 64):
            job = {"nodes": nodes, "most_sockets": 256 // nodes + nodes - 1} | differing
            job |= {"open_s": 0.01 * (1 + repeat / 100), "sync_s": 0.01}
            if nodes == 64:
                job["open_s"] *= differing.get("grown", 2.0)
            lost = {"silence_s": 12, "killed_s": 0.1, "killed_error": 5, "stopped_error": 5}
            if repeat == 7:
                job["lost"] = lost | {"stopped_s": differing.get("after_s", 10.0)}
            jobs.append(job)
    return json.dumps({"jobs": jobs})


@pytest.mark.parametrize(
    ("differing", "verdict"),
    [
        ({}, Kept.HOLDS),
        ({"most_sockets": 256}, Kept.FAILS),  # a connection for each rank of the job
        ({"grown": 3.5}, Kept.FAILS),
        ({"after_s": 12.5}, Kept.FAILS),
    ],
)
def test_a_job_of_many_nodes_is_judged_by_counts_growth_and_lost_nodes(
    differing: dict[str, Any], verdict: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = SimpleNamespace(stdout=scaled(**differing))
    monkeypatch.setattr(process, "run", lambda _command, _timeout_s: said)
    found = by_id("C10").check(workshops.bare())
    assert found.verdict is verdict


def outcome(verdict: str, predicted_s: float, plain_s: float, cached_s: float) -> Compared:
    """A workload whose runs take a second beside its I/O."""
    times = {
        name: {"low": value * 0.9, "median": value, "high": value * 1.1}
        for name, value in (("cached_seconds", 1 + predicted_s), ("cached_io_seconds", predicted_s))
    }
    return Compared(
        "write",
        {**times, "verdict": verdict},
        plain=((1 + plain_s, plain_s),) * 3,
        cached=((1 + cached_s, cached_s),) * 3,
    )


@pytest.mark.parametrize(
    ("outcomes", "holds"),
    [
        ([outcome("use", 1.1, 6.0, 1.0)], True),
        ([outcome("use", 1.5, 6.0, 1.0)], False),  # predicted half as long again
        ([outcome("makes no difference", 1.0, 6.0, 1.0)], False),  # the wrong advice
        ([outcome("do not use", 6.0, 1.0, 6.0)], True),
        (
            [outcome("use", 1.0, 6.0, 1.0), outcome("makes no difference", 1.0, 1.0, 1.1)],
            True,  # no effect: no advice is wrong
        ),
        ([], False),
    ],
)
def test_predicted_run_times_are_judged_by_error_and_advice(
    outcomes: list[Compared], holds: bool
) -> None:
    assert compared(outcomes, {}).counted is Kept.counted(holds)
    assert compared(outcomes, {"other": "no ground"}).counted is Kept.FAILS


def scattered(verdict: str) -> Compared:
    """Plain takes 1.1 to 1.5 times as long as nvio: over 20 % in the median, not as a whole."""
    one = outcome(verdict, 1.0, 1.0, 1.0)
    return replace(
        one,
        plain=((2.2, 1.2), (2.6, 1.6), (2.6, 1.6), (2.6, 1.6), (3.0, 2.0)),
        cached=one.cached[:1] * 5,
    )


@pytest.mark.parametrize(
    ("verdict", "counted", "said"),
    [("makes no difference", Kept.INCONCLUSIVE, "undecided in 1"), ("use", Kept.HOLDS, "in 0")],
)
def test_advice_is_wrong_only_where_the_whole_interval_is_an_effect(
    verdict: str, counted: Kept, said: str
) -> None:
    sure = outcome("use", 1.1, 6.0, 1.0)
    found = compared([sure, scattered(verdict)], {})
    assert found.counted is counted
    assert "right in 1 of 1" in found.line
    assert said in found.line


def test_advice_that_may_be_harmful_is_undecided_even_if_it_looks_better() -> None:
    one = outcome("use", 1.0, 1.0, 1.0)
    wide = replace(one, plain=((1.2, 0.2), (2.0, 1.0), (3.6, 2.6)))
    assert wide.effect.estimate is not None
    assert wide.effect.estimate > 1.0
    assert wide.right is Kept.INCONCLUSIVE


def test_runs_are_added_until_an_effect_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.2, 2.0, 2.6, 2.0] * 5 + [2.0, 2.0] * 20)
    calibrated = Calibrated("throttled", *[cast("Any", None)] * 3)
    monkeypatch.setattr(Calibrated, "times", lambda *_: (next(times), 1.0))
    found = calibrated.compared(GRIDS["throttled"][0], outcome("use", 1.0, 1.0, 1.0).predicted)
    assert len(found.plain) == len(found.cached) > 10
    assert found.small is Kept.HOLDS


@pytest.mark.parametrize(
    ("wrong", "refused", "lacking", "holds"),
    [
        (0, 0, "it has no DXT", True),
        (1, 0, "it has no DXT", True),
        (2, 0, "it has no DXT", False),  # eight of ten
        (0, 2, "it has no DXT", False),  # no advice is not right
        (0, 0, None, False),  # predicted what nobody can know
    ],
)
def test_advice_from_darshan_logs_is_counted(
    wrong: int, refused: int, lacking: str | None, holds: bool
) -> None:
    right, other = outcome("use", 1.1, 6.0, 1.0), outcome("do not use", 1.1, 6.0, 1.0)
    asked = [right] * (10 - wrong - refused) + [other] * wrong
    found = judged(
        [Advised(one, one.predicted) for one in asked],
        {str(i): "no ground" for i in range(refused)},
        {"no DXT": lacking},
    )
    assert found.counted is Kept.counted(holds)
    assert f"right for {10 - wrong - refused} of 10" in found.line
