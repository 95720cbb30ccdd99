"""The sign-flip test and its interval, against brute force, scipy and their own symmetries."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tare.stats import signflip

values = st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-3)
differences = st.integers(1, 12).flatmap(lambda n: arrays(np.float64, n, elements=values))


def brute_force_p(d):
    total = abs(d.sum())
    slack = 1e-12 * np.abs(d).sum()
    flipped = [abs(np.dot(signs, d)) for signs in product((1, -1), repeat=d.size)]
    return np.mean(np.array(flipped) >= total - 2 * slack)


@given(differences)
def test_the_p_value_is_that_of_trying_every_sign(d):
    if abs(d.sum()) > 1e-9 * np.abs(d).sum():
        assert signflip.p_value(d) == pytest.approx(brute_force_p(d))
    else:
        assert signflip.p_value(d) == 1.0


@pytest.mark.parametrize("n", [4, 8, 11])
def test_the_p_value_agrees_with_scipy(n):
    d = np.random.default_rng(n).normal(0.5, 1.0, n)
    known = stats.permutation_test(
        (d, np.zeros(n)),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert signflip.p_value(d) == pytest.approx(known.pvalue)


@given(differences)
def test_the_p_value_forgets_sign_order_and_unit(d):
    p = signflip.p_value(d)
    assert signflip.p_value(-d) == pytest.approx(p)
    assert signflip.p_value(d[::-1]) == pytest.approx(p)
    assert signflip.p_value(d * 1024.0) == pytest.approx(p)


@given(differences)
def test_no_p_value_is_below_the_smallest(d):
    assert signflip.smallest_p(d.size) <= signflip.p_value(d) <= 1.0


def test_differences_of_one_sign_reach_the_smallest_p():
    for n in range(1, 25):
        d = np.arange(1.0, n + 1.0)
        assert signflip.p_value(d) == pytest.approx(signflip.smallest_p(n))


def test_no_blocks_and_no_difference_are_not_significant():
    assert signflip.p_value(np.array([])) == 1.0
    assert signflip.smallest_p(0) == 1.0
    for n in (1, 8, 16, 17, 40):
        assert signflip.p_value(np.zeros(n)) == 1.0


@pytest.mark.parametrize("n", [6, 7, 8, 10])
def test_the_interval_holds_just_the_shifts_that_are_not_rejected(n):
    d = np.random.default_rng(n).standard_cauchy(n)
    low, high = signflip.interval(d, 0.95)
    width = high - low
    for shift, kept in (
        (low - 1e-6 * width, False),
        (low + 1e-6 * width, True),
        (high - 1e-6 * width, True),
        (high + 1e-6 * width, False),
    ):
        assert bool(brute_force_p(d - shift) > 0.05) is kept


@given(st.integers(6, 30), st.integers(0, 2**32 - 1), st.floats(-1.5, 1.5))
def test_interval_and_p_value_never_disagree(n, seed, centre):
    d = np.random.default_rng(seed).normal(centre, 1.0, n)
    low, high = signflip.interval(d, 0.95)
    assert (low > 0.0 or high < 0.0) is (signflip.p_value(d) <= 0.05)


@given(st.integers(6, 30), st.integers(0, 2**32 - 1))
def test_the_interval_moves_and_stretches_with_the_data(n, seed):
    d = np.random.default_rng(seed).normal(0.0, 1.0, n)
    low, high = signflip.interval(d, 0.95)
    assert signflip.interval(3.0 * d + 7.0, 0.95) == pytest.approx((3 * low + 7, 3 * high + 7))
    assert signflip.interval(-d, 0.95) == pytest.approx((-high, -low))


def test_five_blocks_have_no_interval_and_six_have_their_range():
    d = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
    assert signflip.interval(d[:5], 0.95) is None
    assert signflip.interval(d, 0.95) == (1.0, 9.0)
    assert signflip.interval(np.array([]), 0.95) is None


def test_the_sampled_test_agrees_with_the_exact_one(monkeypatch):
    d = np.random.default_rng(5).normal(0.5, 1.0, 14)
    exact_p, exact = signflip.p_value(d), signflip.interval(d, 0.95)
    signflip._non_empty.cache_clear()
    monkeypatch.setattr(signflip, "EXACT_BLOCKS", 13)
    try:
        # 65 538 draws: five standard errors of a share of 0.1 are 0.006.
        assert signflip.p_value(d) == pytest.approx(exact_p, abs=0.006)
        assert signflip.interval(d, 0.95) == pytest.approx(exact, abs=0.02)
    finally:
        signflip._non_empty.cache_clear()


def test_the_same_data_give_the_same_answer_every_time():
    d = np.random.default_rng(6).normal(0.3, 1.0, 24)
    assert signflip.p_value(d) == signflip.p_value(d.copy())
    assert signflip.interval(d, 0.95) == signflip.interval(d.copy(), 0.95)


def test_what_is_kept_of_many_blocks_is_small():
    tracemalloc.start()
    try:
        for blocks in range(480, 488):
            signflip.p_value(np.ones(blocks))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 30e6  # 180e6 of indices as wide as a pointer
