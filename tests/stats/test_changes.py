"""What a difference can be put down to, on numbers whose truth is known."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from tare.stats.operations import product_change
from tare.stats.shares import changes_of

times = st.floats(1.0, 1e6)


def sessions(mean, spread, n, seed):
    return list(np.random.default_rng(seed).normal(mean, spread, n))


def test_parts_of_a_difference_take_their_true_shares_the_largest_first():
    parts = {
        "small": (sessions(20, 0.5, 12, 1), sessions(10, 0.5, 12, 2)),
        "none": (sessions(50, 0.5, 12, 3), sessions(50, 0.5, 12, 4)),
        "large": (sessions(90, 0.5, 12, 5), sessions(60, 0.5, 12, 6)),
    }
    here = np.sum([part[0] for part in parts.values()], axis=0)
    there = np.sum([part[1] for part in parts.values()], axis=0)
    found = changes_of(parts, (here, there))
    assert [part.name for part in found.parts] == ["large", "small", "none"]
    assert found.whole.excludes(0.0)
    assert found.together.share.estimate == pytest.approx(1.0)
    large, small, none = found.parts
    assert large.share.low < 0.75 < large.share.high
    assert small.share.low < 0.25 < small.share.high
    assert not none.amount.excludes(0.0)


def test_what_is_missing_stays_missing():
    here, there = sessions(100, 1, 10, 1), sessions(60, 1, 10, 2)
    half = [value / 2 for value in here], [value / 2 for value in there]
    share = changes_of({"half": half}, (here, there)).together.share
    assert share.estimate == pytest.approx(0.5)


def test_without_an_effect_nothing_is_found():
    here, there = sessions(100, 1, 10, 1), sessions(100, 1, 10, 2)
    found = changes_of({"all": (here, there)}, (here, there))
    assert not found.whole.excludes(0.0)


def test_a_block_that_lacks_a_part_is_left_out_whole():
    here, there = [3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0, 4.0]
    found = changes_of({"part": ([1.0, None, 1.0, 1.0], [0.0] * 4)}, (here, there))
    assert found.n_used == 3


def test_an_effect_of_no_parts_is_refused():
    with pytest.raises(ValueError, match="at least one part"):
        changes_of({}, ([1.0, 2.0], [1.0, 2.0]))


sides = st.lists(st.tuples(times, times), min_size=2, max_size=5)


@given(sides, sides)
def test_cost_and_count_make_up_the_whole_change(here, there):
    (c1, n1), (c0, n0) = (map(list, zip(*side, strict=True)) for side in (here, there))
    found = product_change((c1, c0), (n1, n0))
    both = found.by_cost.estimate + found.by_count.estimate
    whole = np.mean(c1) * np.mean(n1) - np.mean(c0) * np.mean(n0)
    size = max(np.mean(c1) * np.mean(n1), np.mean(c0) * np.mean(n0))
    assert both == pytest.approx(whole, abs=1e-9 * size)
    assert found.change.estimate == pytest.approx(whole, abs=1e-9 * size)


def test_a_count_that_does_not_change_adds_nothing():
    found = product_change(([10.0, 12.0], [1.0, 2.0]), ([3.0, 3.0], [3.0]))
    assert found.by_count.estimate == 0.0
    assert found.by_cost.estimate == pytest.approx(28.5)


def test_one_repeat_has_no_interval():
    assert not product_change(([10.0], [1.0]), ([3.0], [3.0])).change.resolved


@pytest.mark.parametrize("costs", [([], [1.0]), ([1.0], [float("nan")])])
def test_costs_that_were_not_measured_are_refused(costs):
    with pytest.raises(ValueError, match="finite repeats"):
        product_change(costs, ([1.0], [1.0]))


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.8])
@pytest.mark.parametrize("paired", [False, True])
def test_the_interval_of_a_change_covers_however_cost_and_count_hang_together(correlation, paired):
    rng, tries, hits = np.random.default_rng(29), 1000, 0
    rest = np.sqrt(1 - correlation**2)
    for _ in range(tries):
        here, other, there, again = rng.standard_normal((4, 8))
        if paired:  # blocks that both share, counts that are exact
            costs = 12 * (1 + 0.05 * here), 10 * (1 + 0.05 * (correlation * here + rest * there))
            counts = [1.0], [1.0]
            truth = 2.0
        else:
            costs = 12 * (1 + 0.05 * here), 10 * (1 + 0.05 * there)
            counts = tuple(
                3 * (1 + 0.05 * (correlation * one + rest * two))
                for one, two in ((here, other), (there, again))
            )
            truth = 6.0
        change = product_change(costs, counts, paired=paired).change
        hits += change.low <= truth <= change.high
    assert scipy.stats.binom.cdf(hits, tries, 0.93) > 1e-5
    assert scipy.stats.binom.sf(hits - 1, tries, 0.97) > 1e-5


def test_blocks_that_only_one_side_has_are_left_out_of_a_paired_change():
    costs = ([2.0, None, 4.0, 3.0], [1.0, 9.0, None, 1.0])
    assert product_change(costs, ([1.0], [1.0]), paired=True).change.estimate == pytest.approx(1.5)
