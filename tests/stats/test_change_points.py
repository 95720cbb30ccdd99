"""Change points on series whose truth is known; bounds are binomial, and seeds fixed."""

import numpy as np
import pytest
from scipy import stats

from tare.history.query import ALPHA, FEWEST_RUNS
from tare.stats.change_points import FEWEST, change_points

_SURE = 1e-4


def most(share, of):
    """What a count exceeds once in ten thousand times where its share is no larger."""
    return stats.binom.ppf(1.0 - _SURE, of, share)


def least(share, of):
    return stats.binom.ppf(_SURE, of, share)


def normal(rng, n):
    return rng.normal(0.0, 0.03, n)


def heavy(rng, n):
    return 0.03 * rng.standard_cauchy(n)


def modes(rng, n):
    # Fast DDS starts in one of two modes.
    return np.where(rng.random(n) < 0.4, np.log(58 / 40), 0.0) + rng.normal(0.0, 0.02, n)


def tied(rng, n):
    return rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("draw", [normal, heavy, modes, tied])
@pytest.mark.parametrize("runs", [12, 40, 300, 1000])
def test_a_series_without_a_change_shows_one_at_most_as_often_as_declared(draw, runs):
    rng, alpha, series = np.random.default_rng(7), 0.05, 600
    false = sum(bool(change_points(draw(rng, runs), alpha)) for _ in range(series))
    assert false <= most(alpha, series)
    # Nor is it bought by never finding any.
    assert false >= least(alpha / 4, series)


@pytest.mark.parametrize(("before", "after"), [(10, 10), (40, 10), (10, 40)])
def test_ten_percent_are_found_where_runs_spread_by_three(before, after):
    rng, series = np.random.default_rng(8), 300
    found, near, more = 0, 0, 0
    for _ in range(series):
        values = normal(rng, before + after)
        values[before:] += np.log(1.1)
        changes = change_points(values, 0.01)
        found += bool(changes)
        near += any(abs(change.at - before) <= 1 for change in changes)
        more += len(changes) > 1
    assert found >= least(0.98, series)
    assert near >= least(0.9, series)
    # The two parts are tested once each.
    assert more <= most(2 * 0.01, series)


@pytest.mark.parametrize(("before", "after"), [(56, 4), (95, 5), (980, 20)])
def test_a_change_that_few_runs_have_seen_is_placed_at_the_first_of_them(before, after):
    rng, found, placed = np.random.default_rng(12), 0, 0
    for _ in range(20):
        values = rng.normal(0.0, 0.01, before + after)
        values[before:] += 0.2
        changes = [change.at for change in change_points(values, 0.01)]
        found += bool(changes)
        placed += before in changes
    assert placed == found >= 10


def test_a_change_of_few_numbers_each_of_which_is_rare_is_one():
    """Counts, as of bytes: no stretch of runs has more of the new level than of the old one."""
    after = [0, 1, 0, 0, 1, 0, 1] * 4 + [0, 1]
    changes = change_points(np.array([0.0] * 30 + after), 0.01)
    assert [change.at for change in changes] == [31]


def test_a_tenth_of_outliers_seldom_misplaces_a_change():
    rng, series, near = np.random.default_rng(13), 100, 0
    for _ in range(series):
        values = rng.normal(0.0, 0.01, 60) + 0.5 * (rng.random(60) < 0.1)
        values[30:] += 0.05
        near += any(abs(change.at - 30) <= 1 for change in change_points(values, 0.01))
    assert near >= least(0.9, series)


def test_one_run_that_stands_apart_is_no_change():
    rng = np.random.default_rng(9)
    false = 0
    for _ in range(200):
        values = normal(rng, 40)
        values[rng.integers(40)] += 3.0
        false += bool(change_points(values, 0.01))
    assert false <= most(0.01, 200)


@pytest.mark.parametrize(("runs", "found"), [(FEWEST_RUNS - 1, 0), (FEWEST_RUNS, 1)])
def test_a_step_that_leaves_no_doubt_is_found_from_twelve_runs_on(runs, found):
    values = np.arange(float(runs)) % 3
    values[runs // 2 :] += 100.0
    assert len(change_points(values, ALPHA)) == found


def test_every_change_of_ten_thousand_runs_is_found_in_its_place():
    rng = np.random.default_rng(10)
    values = normal(rng, 10_000)
    for first in (1000, 1400, 7000):
        values[first:] += np.log(1.1)
    assert [change.at for change in change_points(values, 0.01)] == pytest.approx(
        [1000, 1400, 7000], abs=3
    )


def test_the_same_series_gives_the_same_answer():
    values = modes(np.random.default_rng(11), 60)
    values[30:] += 0.1
    assert change_points(values, 0.05) == change_points(values, 0.05)


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [1.0, 2.0] * (FEWEST - 1)])
def test_too_few_runs_or_runs_that_are_all_alike_have_no_change(values):
    assert change_points(np.array(values), 0.5) == ()
