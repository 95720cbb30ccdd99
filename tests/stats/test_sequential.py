"""The sign-flip test looked at after every block: its error, what it finds, and when.

Where a bound is of draws, at most one seed in 10 000 would fail it; where it is of all sign
vectors, there is nothing left to luck.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tare.stats import signflip
from tare.stats.sequential import Looks, blocks_to_find, bound, cautious, needed, rejected_at

LOOKS = Looks(least=6, most=10, alpha=0.05)
MAGNITUDES = {
    "alike": np.ones(10),
    "growing": np.arange(1.0, 11.0),
    "one is huge": np.array([1.0, 1.1, 0.9, 1.2, 0.8, 1.05, 40.0, 1.15, 0.95, 1.3]),
    "two modes": np.array([0.01, 0.37, 0.02, 0.36, 0.38, 0.03, 0.37, 0.02, 0.01, 0.38]),
}


def all_signs(magnitudes, looks):
    """What every way to set the signs would have given: how often it is rejected, by when."""
    vectors = itertools.product((1.0, -1.0), repeat=magnitudes.size)
    return [rejected_at((np.array(v) * magnitudes)[:, None], looks) for v in vectors]


@pytest.mark.parametrize("magnitudes", MAGNITUDES.values(), ids=MAGNITUDES)
def test_over_all_signs_and_looks_the_error_is_never_above_the_declared_one(magnitudes):
    found = all_signs(magnitudes, LOOKS)
    for blocks in range(LOOKS.least, LOOKS.most + 1):
        by_then = sum(at is not None and at <= blocks for at in found) / len(found)
        assert by_then <= LOOKS.spent(blocks)


def test_nearly_all_of_the_error_is_put_to_use():
    found = all_signs(MAGNITUDES["growing"], LOOKS)
    assert sum(at is not None for at in found) / len(found) > 0.9 * LOOKS.alpha


def test_a_fixed_test_that_is_repeated_errs_far_more_often():
    """Why the error has to be spent: the very same looks at a fixed level."""
    vectors = itertools.product((1.0, -1.0), repeat=10)
    false = 0
    for vector in vectors:
        values = np.array(vector) * MAGNITUDES["growing"]
        looks = (values[:n] for n in range(LOOKS.least, 11))
        false += any(v.sum() > 0 and signflip.p_value(v) <= 2 * LOOKS.alpha for v in looks)
    assert false / 1024 > 1.5 * LOOKS.alpha


def test_replicas_are_flipped_as_a_whole():
    """What a build has is in all its blocks: the error is of builds, however many the blocks."""
    builds = np.array([1.0, 0.3, 2.0, 0.7, 0.2, 1.1, 0.5, 0.9])
    blocks = np.linspace(0.9, 1.1, 12)[:, None]
    looks = Looks(4, 12, 0.05)
    found = [
        rejected_at(blocks * np.array(signs) * builds, looks)
        for signs in itertools.product((1.0, -1.0), repeat=8)
    ]
    assert 0 < sum(at is not None for at in found) / len(found) <= 0.05
    assert rejected_at(blocks * builds, looks) is not None


def test_beyond_what_can_be_enumerated_the_error_holds_too():
    looks, rng = Looks(8, 24, 0.05), np.random.default_rng(7)
    false = sum(rejected_at(rng.standard_t(2.5, (24, 1)), looks) is not None for _ in range(1500))
    assert stats.binom.sf(false - 1, 1500, 0.05) > 1e-4
    assert stats.binom.cdf(false, 1500, 0.03) > 1e-4  # and it is not merely blind


def test_what_is_clear_ends_at_the_first_look_and_what_is_faster_never():
    rng = np.random.default_rng(8)
    slower = 0.1 + 0.001 * rng.standard_normal((30, 1))
    assert rejected_at(slower, Looks(8, 30, 0.05)) == 8
    assert rejected_at(-slower, Looks(8, 30, 0.05)) is None
    assert rejected_at(slower[:7], Looks(8, 30, 0.05)) is None


def test_blocks_without_a_value_do_not_count():
    slower = np.full((12, 1), 0.1)
    slower[[0, 3]] = np.nan
    assert rejected_at(slower, Looks(8, 30, 0.05)) == 8
    assert rejected_at(slower[:9], Looks(8, 30, 0.05)) is None
    assert rejected_at(np.full((5, 1), np.nan), Looks(2, 5, 0.05)) is None


def test_nothing_ties_its_way_out():
    """Equal versions whose times are equal to the last digit are no finding."""
    assert rejected_at(np.zeros((30, 1)), Looks(8, 30, 0.05)) is None


@pytest.mark.parametrize("stopped", [False, True])
def test_the_bound_holds_however_early_the_run_was_stopped(stopped):
    looks, rng, above = Looks(8, 20, 0.05), np.random.default_rng(9), 0
    for _ in range(120):
        drawn = 0.05 + 0.04 * rng.standard_normal((20, 1))
        end = (rejected_at(drawn, looks) if stopped else None) or 20
        found = bound(drawn[:end], looks)
        assert found is not None
        above += found > 0.05
    assert stats.binom.sf(above - 1, 120, 0.05) > 1e-4
    assert above > 0


def test_a_bound_agrees_with_the_test_and_needs_blocks():
    rng = np.random.default_rng(10)
    drawn, looks = 0.05 + 0.04 * rng.standard_normal((20, 1)), Looks(8, 20, 0.05)
    found = bound(drawn, looks)
    assert found is not None
    assert rejected_at(drawn - found + 1e-6, looks) is not None
    assert rejected_at(drawn - found - 1e-6, looks) is None
    assert bound(drawn[:4], looks) is None
    assert bound(np.full((3, 1), np.nan), looks) is None


@pytest.mark.parametrize("effect", [0.6, 1.0])
def test_what_is_said_to_be_found_by_a_block_is_found_as_often(effect):
    looks, rng = Looks(8, 30, 0.05), np.random.default_rng(11)
    blocks = blocks_to_find(effect, looks, 0.8)
    reach = needed(30, looks, 0.8)
    assert (blocks is None) == (effect < reach)
    blocks = blocks or 30
    ended = [rejected_at(effect + rng.standard_normal((30, 1)), looks) for _ in range(400)]
    share = sum(at is not None and at <= blocks for at in ended) / 400
    assert share == pytest.approx(0.8, abs=0.08)


def test_more_is_needed_of_fewer_blocks_and_too_few_find_nothing():
    looks = Looks(8, 30, 0.05)
    assert needed(8, looks, 0.8) > needed(15, looks, 0.8) > needed(30, looks, 0.8)
    assert needed(3, Looks(3, 3, 0.05), 0.8) == math.inf


def test_a_cautious_spread_is_seldom_too_small():
    rng = np.random.default_rng(12)
    drawn = rng.standard_normal((2000, 8)).std(axis=1, ddof=1)
    small = sum(cautious(float(spread), 8) < 1.0 for spread in drawn)
    assert stats.binom.sf(small - 1, 2000, 0.05) > 1e-4
    assert stats.binom.cdf(small, 2000, 0.05) > 1e-4
