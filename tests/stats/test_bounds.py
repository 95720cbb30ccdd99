"""Bounds are judged by whole intervals, and adding blocks keeps the chance of an error."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tare.stats import Interval, Method, mean_interval, paired_ratio, proportion
from tare.stats.bounds import LOOKS, Bound, Kept, all_kept, look_blocks, look_confidence
from tare.stats.noise import noise_floor
from tare.stats.unpaired import would_be_found

SURE = 0.99999
"""Of the exact interval of a simulated rate: a test that is right fails once in 100 000 times."""


def interval(low: float | None, high: float | None, n: int = 8) -> Interval:
    estimate = None if low is None or high is None else math.sqrt(low * high)
    return Interval(estimate, low, high, 0.95, Method.SIGN_FLIP, n)


@pytest.mark.parametrize(
    ("low", "high", "kept"),
    [
        (0.97, 1.02, Kept.HOLDS),
        (1.06, 1.30, Kept.FAILS),
        (0.94, 1.12, Kept.INCONCLUSIVE),  # not found slower, and not shown to be no slower
        (None, None, Kept.INCONCLUSIVE),  # nothing was measured
        (math.nan, math.nan, Kept.INCONCLUSIVE),
    ],
)
def test_a_bound_is_kept_or_broken_by_the_whole_interval(
    low: float | None, high: float | None, kept: Kept
) -> None:
    assert Bound("time", interval(low, high), most=1.05).kept is kept


def test_equivalence_is_two_bounds_at_once() -> None:
    assert Bound("time", interval(0.98, 1.02), 0.97, 1.03).kept is Kept.HOLDS
    assert Bound("time", interval(0.90, 0.96), 0.97, 1.03).kept is Kept.FAILS
    assert Bound("time", interval(0.96, 1.02), 0.97, 1.03).kept is Kept.INCONCLUSIVE


def test_of_several_promises_one_broken_breaks_all_and_none_made_is_not_kept() -> None:
    assert all_kept([Kept.HOLDS, Kept.HOLDS]) is Kept.HOLDS
    assert all_kept([Kept.HOLDS, Kept.INCONCLUSIVE]) is Kept.INCONCLUSIVE
    assert all_kept([Kept.INCONCLUSIVE, Kept.FAILS, Kept.HOLDS]) is Kept.FAILS
    assert all_kept([]) is Kept.INCONCLUSIVE


def test_a_cell_that_is_a_fifth_slower_seldom_passes_as_not_slower() -> None:
    """With the noise of C3's grid, where "not found slower" let it pass 77 times in 100."""
    rng, slower = np.random.default_rng(1), 1.2
    tries, passed = 1000, 0
    for _ in range(tries):
        times = slower * np.exp(0.25 * rng.standard_normal(8))
        ratio = paired_ratio(times, np.ones(8)).ratio
        passed += Bound("cell", ratio, most=1.05).kept is Kept.HOLDS
    assert proportion(passed, tries, SURE).low <= 0.025


def normal(centre: float, spread: float, size: int) -> np.ndarray:
    """Values with exactly this geometric mean and spread of the logarithm."""
    z = np.linspace(-1.0, 1.0, size)
    z = (z - z.mean()) / z.std(ddof=1)
    return np.asarray(centre * np.exp(spread * z))


def decided(truth: float, spread: float, blocks: int, *, kept: Kept, tries: int = 1000) -> float:
    """Share of draws that come to a verdict on "at most 1.05"."""
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(tries):
        drawn = truth * np.exp(spread * rng.standard_normal(blocks))
        ratio = paired_ratio(drawn, np.ones(blocks), method=Method.T).ratio
        found += Bound("cell", ratio, most=1.05).kept is kept
    return found / tries


def test_a_loss_of_the_size_that_is_stated_is_found_as_often_as_stated() -> None:
    ratio = paired_ratio(normal(1.0, 0.1, 10), np.ones(10), method=Method.T).ratio
    loss = Bound("cell", ratio, most=1.05).would_be_found
    assert loss is not None
    assert 0.72 <= decided(loss, 0.1, 10, kept=Kept.FAILS) <= 0.88


def test_the_blocks_that_are_asked_for_decide_as_often_as_stated() -> None:
    ratio = paired_ratio(normal(1.0, 0.1, 10), np.ones(10), method=Method.T).ratio
    bound = Bound("cell", ratio, most=1.05)
    assert bound.kept is Kept.INCONCLUSIVE
    assert bound.blocks_more is not None
    assert 0.72 <= decided(1.0, 0.1, 10 + bound.blocks_more, kept=Kept.HOLDS) <= 0.88


def test_at_another_confidence_the_interval_is_as_wide_as_student_has_it() -> None:
    bound = Bound("one of six", interval(1.01, 1.05), most=1.0)
    assert bound.kept is Kept.FAILS
    assert bound.at(0.95) is bound
    strict = bound.at(1 - 0.05 / 6)
    assert strict.kept is Kept.INCONCLUSIVE
    assert strict.blocks_more is not None
    assert strict.blocks_more > 1


def test_an_interval_wider_than_a_number_can_tell_is_none() -> None:
    wild = interval(1e-5, 9e5, n=2)
    strict = Bound("one of 65", wild, most=1.0).at(1 - 0.05 / 65)
    assert (strict.found.estimate, strict.found.low, strict.found.high) == (3.0, None, None)
    assert strict.kept is Kept.INCONCLUSIVE

    logs = mean_interval(np.array([-90.0, 90.0]), method=Method.T)
    assert (logs.exponential.estimate, logs.exponential.low, logs.exponential.high) == (
        1,
        None,
        None,
    )
    floor = noise_floor([paired_ratio([math.exp(-90), math.exp(90)], [1.0, 1.0])])
    assert (floor.half_width_percent, floor.detectable_percent) == (None, None)
    assert would_be_found(np.array([1e-99, 1e99]), np.array([1e99, 1e-99]), 1e-3) is None


def test_no_number_of_blocks_is_named_where_none_would_decide() -> None:
    assert Bound("on the bound", interval(0.9, 1.225), most=1.05).blocks_more is None
    assert Bound("missing", interval(None, None), most=1.05).blocks_more is None
    assert Bound("decided", interval(0.9, 1.0), most=1.05).blocks_more == 0


def false_decisions(confidence: float, tries: int = 2000) -> tuple[int, int, int]:
    """(kept, broken, tries) of a figure that lies on its bound, judged anew as blocks are added."""
    rng = np.random.default_rng(3)
    kept = broken = 0
    for _ in range(tries):
        drawn = rng.standard_normal(14)
        for look in range(1, LOOKS + 1):
            blocks = look_blocks(8, 14, look)
            mean = mean_interval(drawn[:blocks], confidence)
            verdict = Bound("on the bound", mean, most=0.0, ratio=False).kept
            if verdict is not Kept.INCONCLUSIVE:
                kept += verdict is Kept.HOLDS
                broken += verdict is Kept.FAILS
                break
    return kept, broken, tries


def test_adding_blocks_until_it_decides_errs_no_more_often_than_one_look() -> None:
    kept, broken, tries = false_decisions(look_confidence(0.95))
    assert proportion(kept, tries, SURE).low <= 0.025
    assert proportion(broken, tries, SURE).low <= 0.025
    assert proportion(kept + broken, tries, SURE).low <= 0.05


def test_looking_again_at_the_level_of_one_look_would_err_more_often() -> None:
    """What the test above would not pass."""
    kept, broken, tries = false_decisions(0.95)
    assert proportion(kept + broken, tries, SURE).low > 0.05


def test_looks_lie_evenly_between_the_fewest_blocks_and_the_most() -> None:
    assert [look_blocks(8, 32, look) for look in range(1, LOOKS + 1)] == [8, 16, 24, 32]
    assert [look_blocks(8, 8, look) for look in range(1, LOOKS + 1)] == [8] * LOOKS
