"""Warm-up within a session, trends over blocks, modes, and the stopping rule."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from tare.stats import Action, block_trend, decide, session_drift
from tare.stats.modes import two_modes


def correlated(n, phi, rng):
    return signal.lfilter([1.0], [1.0, -phi], rng.normal(size=n + 500))[500:]


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_a_steady_session_is_seldom_called_drifting(phi):
    rng = np.random.default_rng(9)
    small = sum(session_drift(1000 + 10 * correlated(2000, phi, rng)).p < 0.01 for _ in range(400))
    assert stats.binom.sf(small - 1, 400, 0.03) > 1e-4  # at most 3 % at a nominal 1 %


def test_a_session_that_warms_up_is_flagged():
    rng = np.random.default_rng(10)
    samples = 7000 + 3000 * np.exp(-np.arange(4000) / 1500) + 300 * rng.normal(size=4000)
    assert session_drift(samples).flagged


def test_a_change_that_does_not_matter_is_not_flagged_however_sure():
    rng = np.random.default_rng(11)
    samples = 10_000 + rng.normal(0, 20, 100_000)
    samples[50_000:] += 30  # 0.3 %
    found = session_drift(samples)
    assert found.p < 1e-6
    assert not found.flagged


def test_a_few_outliers_are_no_drift():
    samples = 7000 + np.random.default_rng(12).normal(0, 100, 2000)
    samples[-5:] += 1e9
    assert not session_drift(samples).flagged


def test_short_and_constant_sessions():
    assert session_drift(np.arange(63)) is None
    constant = session_drift(np.full(64, 5))
    assert (constant.p, constant.flagged) == (1.0, False)
    assert not session_drift(np.zeros(64)).flagged
    step = session_drift(np.repeat([1.0, 2.0], 50))
    assert step.flagged
    assert step.p == 0.0


def test_a_trend_over_blocks_is_found_with_its_slope():
    values = 100 * 1.02 ** np.arange(12.0)
    found = block_trend(values)
    assert found.flagged
    assert found.percent_per_block == pytest.approx(2.0)


def test_an_absent_block_keeps_its_place_in_the_order():
    values = list(100 * 1.02 ** np.arange(12.0))
    values[5] = None
    assert block_trend(values).percent_per_block == pytest.approx(2.0)


def test_the_trend_test_keeps_its_level():
    rng = np.random.default_rng(13)
    flagged = sum(block_trend(rng.lognormal(9, 0.05, 10)).flagged for _ in range(1000))
    assert stats.binom.sf(flagged - 1, 1000, 0.01) > 1e-4


def test_few_and_equal_blocks_have_no_trend():
    assert block_trend([1.0, 2.0, 3.0, 4.0]).p is None
    equal = block_trend([5.0] * 8)
    assert (equal.percent_per_block, equal.p, equal.flagged) == (0.0, None, False)
    with pytest.raises(ValueError, match="absent one is None"):
        block_trend([0.0] * 8)


# --- modes


def test_two_modes_are_found_where_they_are():
    rng = np.random.default_rng(14)
    slow = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0, 0])
    values = np.where(slow, 58_000, 40_000) * np.exp(rng.normal(0, 0.02, 10))
    found = two_modes(values)
    assert found.flagged
    assert found.low == pytest.approx(40_000, rel=0.03)
    assert found.high == pytest.approx(58_000, rel=0.03)
    assert found.share_high == pytest.approx(0.4)


@pytest.mark.parametrize("cells", [1, 101, 1000])
def test_two_modes_are_told_however_many_cells_they_are_looked_for_in(cells):
    found = two_modes([1.0, 1.01, 1.02, 1.03, 2.0, 2.01, 2.02, 2.03], among=cells)
    assert cells * found.p <= 0.01


def test_one_mode_is_seldom_called_two():
    rng = np.random.default_rng(15)
    flagged = sum(two_modes(rng.lognormal(9, 0.1, 12)).flagged for _ in range(1000))
    assert stats.binom.sf(flagged - 1, 1000, 0.01) > 1e-4


def test_one_session_that_stands_apart_is_no_mode():
    values = np.append(np.exp(np.random.default_rng(16).normal(0, 0.02, 11)), 5.0)
    assert not two_modes(values).flagged


def test_modes_need_eight_sessions_and_forget_the_unit():
    assert two_modes([1.0] * 4 + [2.0] * 3 + [None]) is None
    assert two_modes([3.0] * 9) is None
    values = np.random.default_rng(17).lognormal(0, 0.1, 9)
    assert two_modes(values * 1e6).p == two_modes(values).p
    with pytest.raises(ValueError, match="absent one is None"):
        two_modes([0.0] * 8)


# --- stopping


def rule(widths, blocks, **how):
    settings = {"min_blocks": 8, "max_blocks": 30, "target_percent": 3.0} | how
    return decide(widths, blocks=blocks, **settings)


def test_it_stops_when_every_interval_is_narrow_enough_and_not_before_the_minimum():
    assert rule({"a": 2.0, "b": 3.0}, 8).action is Action.STOP
    assert rule({"a": 2.0, "b": 3.0}, 7).action is Action.CONTINUE
    assert rule({"a": 2.0, "b": 3.1}, 8).action is Action.CONTINUE


def test_at_the_cap_it_says_which_comparisons_stayed_wide():
    found = rule({"a": 2.0, "b": 9.0, "c": None}, 30)
    assert found.action is Action.CAP_REACHED
    assert found.wide == ("b", "c")
    assert found.projected_blocks is None


def test_it_projects_with_the_root_of_the_number_of_blocks():
    found = rule({"a": 6.0}, 8)
    assert found.projected_blocks == pytest.approx(32, abs=1)
    assert rule({"a": 1.0}, 8).projected_blocks == 8


def test_an_interval_that_is_absent_or_nan_is_never_narrow_enough():
    assert rule({"a": None}, 29).action is Action.CONTINUE
    assert rule({"a": float("nan")}, 29).action is Action.CONTINUE


def test_without_a_target_it_runs_to_the_maximum():
    assert rule({"a": 0.1}, 29, target_percent=None).action is Action.CONTINUE
    assert rule({"a": 9.9}, 30, target_percent=None).action is Action.STOP


def test_with_nothing_to_compare_the_minimum_is_enough():
    assert rule({}, 8).action is Action.STOP


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"min_blocks": 0}, "1 <= min <= max"),
        ({"min_blocks": 31}, "1 <= min <= max"),
        ({"target_percent": 0.0}, "half-width must be positive"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(how, says):
    with pytest.raises(ValueError, match=says):
        rule({"a": 1.0}, 8, **how)


@given(
    st.dictionaries(st.text(max_size=3), st.none() | st.floats(0, 1e6), max_size=5),
    st.integers(1, 40),
)
def test_every_run_ends(widths, blocks):
    found = rule(widths, blocks)
    assert (found.action is Action.CONTINUE) <= (blocks < 30)
    assert found.projected_blocks is None or found.projected_blocks >= 8


def test_modes_of_many_sessions_take_little_memory():
    values = np.random.default_rng(18).lognormal(0, 0.1, 397)
    tracemalloc.start()
    try:
        two_modes(values)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 30e6  # 32e6 are the draws alone
