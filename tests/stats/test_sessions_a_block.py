"""Several sessions of a cell in a block: how many, and what they say together.

Bounds on rates leave room for the luck of the draw: at most one seed in 10 000 would fail them.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rates import at_least, at_most

from tare.stats import paired_ratio
from tare.stats.repetition import GUESS, Spread, allot, even, mean_log, spread
from tare.stats.simulate import BIMODAL, NORMAL, RARE_MODE
from tare.stats.simulate_repeated import repeated_runs

PAIR = ("container", "native")
values = st.floats(0.1, 1e6)
blocks = st.lists(st.lists(values, max_size=5), min_size=1, max_size=8)


@pytest.mark.parametrize("sessions", [NORMAL, BIMODAL, RARE_MODE])
@pytest.mark.parametrize("blocks", [8, 12])
def test_unequal_repetition_makes_no_more_false_findings_and_intervals_cover(sessions, blocks):
    found = repeated_runs(sessions, blocks, failing=0.05, runs=400)
    assert at_most(found.false_positives, 0.05)
    assert at_least(found.covered, 0.94)
    assert at_most(found.covered, 0.98)
    assert found.sessions > 3  # else nothing was repeated, and nothing shown


def test_repeated_sessions_hold_an_effect_that_was_put_in():
    found = repeated_runs(NORMAL, 8, effect=1.05, runs=400)
    assert at_least(found.covered, 0.94)
    assert not at_most(found.false_positives, 0.5)  # and find it


def test_means_of_unlike_numbers_would_find_what_is_not_there():
    """Why `even` takes as many sessions of either cell."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(400):
        one = RARE_MODE.draw(np.zeros((8, 1)), rng)
        many = RARE_MODE.draw(np.zeros((8, 8)), rng)
        found += paired_ratio(one[:, 0], np.exp(np.log(many).mean(axis=1))).p <= 0.05
    assert found / 400 > 0.12


def test_a_block_counts_as_many_sessions_of_either_cell_and_the_first_ones():
    one, other = even([[2.0, 8.0, 100.0], [], [3.0]], [[4.0, 4.0], [5.0], []])
    assert one == [pytest.approx(4.0), None, 3.0]
    assert other == [pytest.approx(4.0), 5.0, None]


@given(st.data(), blocks)
def test_what_is_drawn_anew_in_any_order_pairs_the_same_way_round(data, a):
    b = data.draw(st.lists(st.lists(values, max_size=5), min_size=len(a), max_size=len(a)))
    one, other = even(a, b)
    assert even(b, a) == (other, one)
    for drawn, value in zip(a, one, strict=True):
        assert (value is None) == (not drawn)


def test_one_session_is_its_own_mean_to_the_last_bit():
    assert mean_log([0.1 + 0.2]) == 0.1 + 0.2
    assert mean_log([]) is None
    assert mean_log([1.0, 4.0]) == pytest.approx(2.0)


def test_the_spread_of_drawn_sessions_is_found_by_level():
    rng = np.random.default_rng(3)
    starts = 0.05 * rng.standard_normal((2, 400, 1))
    a, b = np.exp(starts + 0.1 * rng.standard_normal((2, 400, 4)))
    found = spread(a.tolist(), b.tolist())
    assert found.within == pytest.approx(2 * 0.1**2, rel=0.1)
    assert found.between == pytest.approx(2 * 0.05**2, rel=0.25)


def test_no_spread_is_told_from_single_sessions_or_from_one_block():
    assert spread([[1.0], [2.0]], [[1.0, 2.0], [2.0, 3.0]]) is None
    assert spread([[1.0, 2.0]], [[1.0, 2.0]]) is None
    assert spread([[1.0, 1.0]] * 3, [[2.0, 2.0]] * 3) is None


def test_the_variance_between_settings_up_is_never_taken_for_none():
    found = spread([[1.0, 2.0]] * 3, [[1.0, 2.0]] * 3)
    assert found.between > 0


def test_dear_settings_up_and_cheap_sessions_are_repeated_and_the_other_way_round_not():
    costs = {"native": 0.1, "container": 0.1}
    assert min(allot(costs, 20.0, {PAIR: GUESS}, most=12).values()) > 4
    assert set(allot(costs, 0.01, {PAIR: GUESS}, most=12).values()) == {1}
    slow = {"native": 10.0, "container": 10.0}
    assert set(allot(slow, 2.0, {PAIR: GUESS}, most=12).values()) == {1}


def test_numbers_are_kalibera_and_jones_where_one_comparison_has_the_block_to_itself():
    """Their equation: the root of (cost of the level above / cost) times (variance / above's)."""
    found = allot({"native": 0.1, "container": 0.3}, 10.0, {PAIR: Spread(4.0, 1.0)}, most=100)
    assert set(found.values()) == {round(math.sqrt(10.0 / 0.4 * 4.0 / 1.0))}


def test_variance_between_settings_up_leaves_nothing_to_repeat_for():
    costs = {"native": 0.1, "container": 0.1}
    few = allot(costs, 5.0, {PAIR: Spread(0.1, 10.0)}, most=12)
    many = allot(costs, 5.0, {PAIR: Spread(10.0, 0.1)}, most=12)
    assert set(few.values()) == {1}
    assert set(many.values()) == {12}


def test_a_cell_that_cannot_be_repeated_holds_its_comparison_at_one_session():
    pairs = {("qemu", "native"): GUESS, PAIR: GUESS}
    found = allot({"native": 0.1, "container": 0.1}, 20.0, pairs, most=12)
    assert found["native"] == found["container"] > 1
    alone = allot({"native": 0.1}, 20.0, {("qemu", "native"): GUESS}, most=12)
    assert alone == {"native": 1}


def test_both_cells_of_a_comparison_have_as_many_sessions():
    costs = {"native": 0.1, "container": 0.4, "gvisor": 3.0}
    pairs = {PAIR: GUESS, ("gvisor", "native"): GUESS}
    found = allot(costs, 8.0, pairs, most=12)
    assert found["native"] == found["container"] >= found["gvisor"]


@pytest.mark.parametrize(("cells", "fixed"), [(5, 8.0), (10, 21.0)])
def test_a_baseline_too_dear_for_one_comparison_is_repeated_for_all_of_them(cells, fixed):
    pairs = {(f"c{i}", "native"): GUESS for i in range(cells)}
    costs = dict.fromkeys([c for pair in pairs for c in pair], 1.0)

    def block(sessions):
        """Half of the loss for each comparison: how wide its interval is in equal time."""
        return GUESS.of(sessions) * (fixed + sessions * len(costs))

    found = allot(costs, fixed, pairs, most=12)
    assert set(found.values()) == {min(range(1, 13), key=block)} != {1}


def test_a_block_is_kept_within_its_time():
    costs = {"native": 1.0, "container": 1.0}
    found = allot(costs, 30.0, {PAIR: GUESS}, most=12, most_seconds=37.0)
    assert sum(found.values()) + 30.0 <= 37.0
    assert found["native"] == 3
