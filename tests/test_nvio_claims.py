"""What the claims on nvio and walks make of what they find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from claims import Workshop, by_id
from claims.run_times import Outcome, judge
from claims.small_pieces import gain, not_slower
from tare import process
from tare.cell import Cell
from tare.stats import paired_ratio
from tare.stats.bounds import Bound, Kept


class Asked:
    """A question that has a ratio."""

    def __init__(self, ours: list[float], plain: list[float]) -> None:
        self.ratio = paired_ratio(ours, plain)
        self.cell = Cell(id="nvio/write", levels={})


def test_a_gain_is_the_ratio_the_other_way_round() -> None:
    found = gain(Asked([1.0, 1.1, 0.9, 1.0, 1.05, 0.95], [4.0] * 6))  # type: ignore[arg-type]
    assert found.estimate == pytest.approx(4.0, rel=0.02)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 4.0 < found.high
    assert Bound("gain", found, least=3.5).kept is Kept.HOLDS
    assert Bound("gain", found, least=4.0).kept is Kept.UNDECIDED  # the estimate is not enough


def test_what_was_not_found_slower_is_not_shown_to_be_no_slower() -> None:
    noisy = Asked([0.8, 1.3, 1.1, 0.9, 1.25, 0.85, 1.2, 1.0], [1.0] * 8)
    assert not_slower(noisy).kept is Kept.UNDECIDED  # type: ignore[arg-type]
    close = Asked([1.0, 1.01, 0.99, 1.02, 0.98, 1.01, 1.0, 0.99], [1.0] * 8)
    assert not_slower(close).kept is Kept.HOLDS  # type: ignore[arg-type]
    absent = Asked([1.0], [1.0])
    assert not_slower(absent).kept is Kept.UNDECIDED  # type: ignore[arg-type]


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
    workshop = Workshop(Path("/home"), Path("/build"), Path("/cache"), lambda _: None)
    found = by_id("C8").check(workshop)
    assert found.holds is holds
    assert "exact with cells of 1, 2, 8 bytes" in found.figure


def outcome(verdict: str, predicted_s: float, plain_s: float, cached_s: float) -> Outcome:
    """A workload whose runs take a second beside its I/O."""
    times = {
        name: {"low": value * 0.9, "median": value, "high": value * 1.1}
        for name, value in (("cached_seconds", 1 + predicted_s), ("cached_io_seconds", predicted_s))
    }
    return Outcome(
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
    outcomes: list[Outcome], holds: bool
) -> None:
    assert judge(outcomes, {}).holds is holds
    assert not judge(outcomes, {"other": "no ground"}).holds
