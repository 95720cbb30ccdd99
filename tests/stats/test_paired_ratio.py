"""Paired ratios, verdicts and families."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from tare.stats import (
    Method,
    Verdict,
    family_resolvable,
    holm,
    judge,
    judge_family,
    mean_interval,
    paired_ratio,
)

positive = st.floats(1.0, 1e9)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=14)


def draw(n, ratio=1.0, spread=0.01, seed=0):
    rng = np.random.default_rng(seed)
    b = 7000.0 * np.exp(rng.normal(0, 0.1, n))
    return b * ratio * np.exp(rng.normal(0, spread, n)), b


# --- the estimate


@given(pairs, st.sampled_from(list(Method)))
def test_swapping_the_cells_inverts_the_ratio(blocks, method):
    assume(method is not Method.BOOTSTRAP_T)  # its resamples are drawn, mirrored only on average
    a, b = np.array(blocks).T
    one, other = paired_ratio(a, b, method=method), paired_ratio(b, a, method=method)
    assert one.ratio.estimate == pytest.approx(1.0 / other.ratio.estimate)
    assert one.p == pytest.approx(other.p)
    if one.ratio.resolved:
        assert one.ratio.low == pytest.approx(1.0 / other.ratio.high)
        assert one.ratio.high == pytest.approx(1.0 / other.ratio.low)
        assert one.difference.low == pytest.approx(-other.difference.high, abs=1e-3)


@given(pairs)
def test_the_unit_does_not_matter_to_the_ratio(blocks):
    a, b = np.array(blocks).T
    nanoseconds, microseconds = paired_ratio(a, b), paired_ratio(a / 1024, b / 1024)
    assert microseconds.ratio.estimate == pytest.approx(nanoseconds.ratio.estimate)
    assert microseconds.p == pytest.approx(nanoseconds.p)
    assert microseconds.a.estimate == pytest.approx(nanoseconds.a.estimate / 1024)


@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_the_blocks_does_not_matter(blocks, random):
    shuffled = random.sample(blocks, len(blocks))
    one, other = paired_ratio(*np.array(blocks).T), paired_ratio(*np.array(shuffled).T)
    assert other.ratio.estimate == pytest.approx(one.ratio.estimate)
    assert other.p == pytest.approx(one.p)
    if one.ratio.resolved:
        assert other.ratio.low == pytest.approx(one.ratio.low)


@given(pairs, st.data())
def test_an_absent_trial_drops_its_block_and_nothing_else(blocks, data):
    where = data.draw(st.integers(0, len(blocks)))
    a, b = (list(column) for column in zip(*blocks, strict=True))
    a.insert(where, None)
    b.insert(where, 5.0)
    whole, holed = paired_ratio(*np.array(blocks).T), paired_ratio(a, b)
    assert holed.ratio == whole.ratio
    assert holed.p == whole.p
    assert (holed.n_used, holed.n_dropped) == (len(blocks), 1)


def test_a_block_absent_in_both_cells_is_dropped_as_well():
    assert paired_ratio([1.0, None], [1.0, math.nan]).n_dropped == 1


def test_what_a_block_adds_to_both_cells_cancels():
    a, b = draw(10, 1.2)
    weather = np.exp(np.random.default_rng(1).normal(0, 2.0, 10))
    assert paired_ratio(a * weather, b * weather).ratio.low == pytest.approx(
        paired_ratio(a, b).ratio.low
    )


def test_the_t_interval_is_scipys():
    a, b = draw(9, 1.1)
    known = stats.ttest_1samp(np.log(a / b), 0.0).confidence_interval(0.95)
    ratio = paired_ratio(a, b, method=Method.T).ratio
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(known.low), math.exp(known.high)))


def test_absolute_values_stand_beside_the_ratio():
    a, b = draw(12, 1.5)
    result = paired_ratio(a, b)
    assert result.a.estimate == pytest.approx(stats.gmean(a))
    assert result.b.estimate == pytest.approx(stats.gmean(b))
    assert result.difference.estimate == pytest.approx((a - b).mean())
    assert result.a.low < result.a.estimate < result.a.high


def test_the_half_width_is_the_percentage_on_the_log_scale():
    a, b = draw(8)
    result = paired_ratio(a, b)
    assert 1 + result.half_width_percent / 100 == pytest.approx(
        math.sqrt(result.ratio.high / result.ratio.low)
    )


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        ([1.0, 0.0], [1.0, 1.0], "not 0"),
        ([1.0, -3.0], [1.0, 1.0], "positive"),
        ([1.0, math.inf], [1.0, 1.0], "infinite in block 1"),
        ([1.0], [1.0, 1.0], "lengths differ"),
        ([[1.0]], [1.0], "shape"),
    ],
)
def test_what_is_no_measurement_is_refused(a, b, says):
    with pytest.raises(ValueError, match=says):
        paired_ratio(a, b)


def test_a_confidence_outside_of_0_to_1_is_refused():
    with pytest.raises(ValueError, match="confidence"):
        paired_ratio([1.0, 2.0], [1.0, 2.0], confidence=95.0)
    with pytest.raises(ValueError, match="finite"):
        mean_interval(np.array([1.0, math.nan]))


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_few_blocks_name_the_method_they_could_bear(n, method):
    a, b = draw(n, 2.0)
    result = paired_ratio(a, b, method=method)
    assert result.n_used == n
    assert (result.ratio.estimate is None) is (n == 0)
    assert result.ratio.resolved is (n >= 2)
    if n in (2, 3):
        assert result.ratio.method is Method.T
    assert result.p >= 2.0 / 2 ** max(n, 1)


@pytest.mark.parametrize("method", list(Method))
def test_equal_blocks_give_an_interval_without_width(method):
    ratio = paired_ratio([3.0] * 8, [2.0] * 8, method=method).ratio
    assert (ratio.low, ratio.estimate, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert ratio.low <= ratio.estimate <= ratio.high


# --- Holm and what a family can resolve


def test_holm_matches_the_worked_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_between_the_plain_p_and_bonferroni_and_keeps_the_order(p):
    adjusted = holm(p)
    for plain, own in zip(p, adjusted, strict=True):
        assert plain <= own <= min(1.0, plain * len(p)) + 1e-15
    for i, j in zip(np.argsort(p)[:-1], np.argsort(p)[1:], strict=True):
        assert adjusted[i] <= adjusted[j] + 1e-15


def test_a_test_that_failed_is_not_significant_and_makes_no_other_easier():
    with_failure = holm([0.01, math.nan, 0.02])
    assert with_failure == pytest.approx((0.03, 1.0, 0.04))
    assert with_failure[0] > holm([0.01, 0.02])[0]


@pytest.mark.parametrize("p", [-0.1, 1.1])
def test_a_p_value_outside_of_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([p])


@pytest.mark.parametrize(
    ("blocks", "comparisons", "resolvable", "needed"),
    [(5, 1, False, 6), (6, 1, True, 6), (6, 2, False, 7), (8, 6, True, 8), (8, 7, False, 9)],
)
def test_a_family_needs_enough_blocks(blocks, comparisons, resolvable, needed):
    found = family_resolvable(blocks, comparisons)
    assert (found.resolvable, found.blocks_needed) == (resolvable, needed)
    assert found.threshold == pytest.approx(0.05 / comparisons)


def test_a_p_value_just_at_the_threshold_is_enough():
    assert family_resolvable(5, 1, alpha=0.0625).resolvable


def test_six_blocks_go_down_to_the_p_that_the_design_names():
    assert family_resolvable(6, 1).smallest_p == pytest.approx(0.03125)


@given(st.integers(6, 20), st.integers(1, 20))
def test_resolvable_is_just_what_a_perfect_result_achieves(blocks, comparisons):
    perfect = paired_ratio(np.full(blocks, 2.0), np.full(blocks, 1.0)).p
    significant = min(holm([perfect] + [1.0] * (comparisons - 1))) <= 0.05 + 1e-12
    assert family_resolvable(blocks, comparisons).resolvable is significant


@pytest.mark.parametrize(
    ("blocks", "comparisons", "alpha", "says"),
    [(-1, 1, 0.05, "blocks"), (6, 0, 0.05, "at least one comparison"), (6, 1, 1, "alpha")],
)
def test_nonsense_families_are_refused(blocks, comparisons, alpha, says):
    with pytest.raises(ValueError, match=says):
        family_resolvable(blocks, comparisons, alpha)


def test_a_family_too_large_for_any_number_of_blocks_says_so():
    assert family_resolvable(30, 10_000_000).blocks_needed is None


# --- verdicts


def verdict(ratio, n=8, spread=0.01, p=None, **how):
    result = paired_ratio(*draw(n, ratio, spread))
    return judge(result, result.p if p is None else p, **how).verdict


def test_a_clear_effect_is_slower_or_faster():
    assert verdict(1.1) is Verdict.SLOWER
    assert verdict(0.9) is Verdict.FASTER


def test_for_a_rate_more_is_faster():
    assert verdict(1.1, above_below=(Verdict.FASTER, Verdict.SLOWER)) is Verdict.FASTER
    assert verdict(0.9, above_below=(Verdict.FASTER, Verdict.SLOWER)) is Verdict.SLOWER


def test_nothing_found_is_inconclusive_and_not_equivalent():
    up_and_down = paired_ratio([1.2, 1 / 1.2] * 4, [1.0] * 8)
    assert judge(up_and_down, up_and_down.p).verdict is Verdict.INCONCLUSIVE
    assert judge(up_and_down, up_and_down.p, margin=0.03).verdict is Verdict.INCONCLUSIVE


def test_an_interval_within_the_margin_is_equivalent_even_where_it_is_significant():
    assert verdict(1.01, spread=0.002) is Verdict.SLOWER
    assert verdict(1.01, spread=0.002, margin=0.03) is Verdict.EQUIVALENT


def test_the_margin_is_as_far_below_as_above():
    assert verdict(1 / 1.029, spread=0.0001, margin=0.03) is Verdict.EQUIVALENT
    assert verdict(1 / 1.0305, spread=0.0001, margin=0.03) is Verdict.FASTER  # above 1 - 0.03


def test_significance_is_that_of_the_family():
    assert verdict(1.1, p=0.06) is Verdict.INCONCLUSIVE


def test_nan_is_never_a_finding():
    assert verdict(1.1, p=math.nan) is Verdict.INCONCLUSIVE


def test_five_blocks_are_never_a_finding():
    assert verdict(10.0, n=5) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_below_six_blocks_nothing_is_equivalent_however_narrow_students_interval_is(n):
    few = paired_ratio(*draw(n, 1.0, spread=1e-5))
    assert few.ratio.within(1 / 1.03, 1.03)
    said = judge(few, few.p, margin=0.03)
    assert said.verdict is Verdict.INCONCLUSIVE
    assert said.reason == f"{n} complete blocks are too few for a verdict"
    assert verdict(1.0, n=6, spread=1e-5, margin=0.03) is Verdict.EQUIVALENT


def test_a_comparison_that_is_not_paired_has_the_interval_that_its_maker_declares():
    few = replace(paired_ratio(*draw(4, 1.0, spread=1e-5)), paired=False)
    assert judge(few, few.p, margin=0.03).verdict is Verdict.EQUIVALENT


def test_no_blocks_are_not_measured_rather_than_inconclusive():
    assert judge(paired_ratio([None], [1.0]), 0.0).verdict is Verdict.NOT_MEASURED


def test_an_effect_below_the_instrument_is_refused():
    # 7 us * 1 % is 70 ns
    assert verdict(1.01, spread=0.001, floor=60.0) is Verdict.SLOWER
    assert verdict(1.01, spread=0.001, floor=200.0) is Verdict.BELOW_INSTRUMENT


def test_equivalence_within_a_margin_that_the_instrument_cannot_see_is_refused():
    # 7 us * 3 % is 210 ns
    assert verdict(1.0, spread=0.001, margin=0.03, floor=100.0) is Verdict.EQUIVALENT
    assert verdict(1.0, spread=0.001, margin=0.03, floor=300.0) is Verdict.BELOW_INSTRUMENT


@pytest.mark.parametrize("how", [{"margin": 0.0}, {"margin": math.nan}, {"floor": -1.0}])
def test_nonsense_limits_are_refused(how):
    with pytest.raises(ValueError, match=next(iter(how))):
        verdict(1.0, **how)


def test_a_failed_comparison_stays_in_its_family():
    good = paired_ratio(*draw(6, 1.5))
    failed = paired_ratio([None] * 6, [1.0] * 6)
    assert good.p == pytest.approx(0.03125)
    assert judge_family({"good": good})["good"].verdict is Verdict.SLOWER
    together = judge_family({"good": good, "failed": failed})
    assert together["good"].verdict is Verdict.INCONCLUSIVE
    assert together["failed"].verdict is Verdict.NOT_MEASURED
    assert together["good"].adjusted_p == pytest.approx(0.0625)


@given(pairs, st.floats(0, 1))
def test_slower_means_that_the_interval_lies_above_1(blocks, p):
    result = paired_ratio(*np.array(blocks).T)
    said = judge(result, p)
    if said.verdict is Verdict.SLOWER:
        assert result.ratio.low > 1.0
        assert said.adjusted_p <= 0.05
    mirrored = judge(paired_ratio(*np.array(blocks).T[::-1]), p)
    opposite = {Verdict.SLOWER: Verdict.FASTER, Verdict.FASTER: Verdict.SLOWER}
    assert mirrored.verdict is opposite.get(said.verdict, said.verdict)


def test_results_are_frozen():
    result = paired_ratio([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(AttributeError, match="cannot assign to field 'p'"):
        result.p = 0.0
    assert replace(result, p=0.5).p == 0.5
