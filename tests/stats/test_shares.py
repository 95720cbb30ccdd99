"""The budget by contrast, the closing account, and unit cost times count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tare.stats.bounds import Bound, Kept
from tare.stats.compare import paired_ratio
from tare.stats.noise import noise_floor
from tare.stats.operations import Operation, costs_of
from tare.stats.shares import by_contrast, fieller, shares_of

times = st.floats(100.0, 1e7)
cells = st.lists(st.tuples(times, times, times, times), min_size=1, max_size=12)


def budget(blocks):
    base_floor, env_floor, base_middleware, env_middleware = zip(*blocks, strict=True)
    return by_contrast(
        base_floor=base_floor,
        env_floor=env_floor,
        base_middleware=base_middleware,
        env_middleware=env_middleware,
    )


# --- by contrast


@given(cells)
def test_the_parts_sum_to_the_total_and_their_shares_to_one(blocks):
    found = budget(blocks)
    size = max(map(max, blocks))
    assert sum(part.amount.estimate for part in found.parts) == pytest.approx(
        found.whole.estimate, abs=1e-9 * size
    )
    assert sum(part.share.estimate for part in found.parts) == pytest.approx(
        1.0, abs=1e-9 * size / found.whole.estimate
    )


def test_each_layer_is_what_switching_it_on_alone_adds():
    found = budget([(7.0, 85.0, 17.0, 448.0)] * 8)
    parts = {part.name: part.amount.estimate for part in found.parts}
    assert parts == {"floor": 7.0, "virtualisation": 78.0, "middleware": 10.0, "interaction": 353.0}
    assert found.whole.estimate == 448.0


def test_a_part_may_be_negative():
    found = budget([(10.0, 30.0, 20.0, 35.0)] * 8)
    assert found.parts[3].amount.estimate == -5.0
    assert found.parts[3].share.high < 0


def test_blocks_that_lack_a_cell_are_dropped_whole():
    found = budget([(7.0, 85.0, 17.0, 448.0), (7.0, None, 17.0, 448.0), (None,) * 4] * 6)
    assert found.n_used == 6


def test_no_complete_block_gives_no_figure():
    found = budget([(7.0, None, 17.0, 448.0)])
    assert found.whole.estimate is None
    assert all(part.share.estimate is None for part in found.parts)


def test_the_intervals_of_the_parts_cover():
    rng = np.random.default_rng(18)
    truth = {"floor": 7.0, "virtualisation": 78.0, "middleware": 10.0, "interaction": 353.0}
    hits = dict.fromkeys([*truth, *(f"share of {name}" for name in truth)], 0)
    for _ in range(400):
        weather = rng.normal(1.0, 0.05, 10)
        noise = rng.normal(1.0, 0.03, (4, 10))
        found = budget(
            list(zip(*(np.array([[7.0], [85], [17], [448]]) * noise * weather), strict=True))
        )
        for part in found.parts:
            share = truth[part.name] / 448
            hits[part.name] += part.amount.low <= truth[part.name] <= part.amount.high
            hits[f"share of {part.name}"] += part.share.low <= share <= part.share.high
    for what, count in hits.items():
        assert stats.binom.cdf(count, 400, 0.93) > 1e-5, what
        assert stats.binom.sf(count - 1, 400, 0.98) > 1e-5, what


# --- Fieller


def test_fieller_holds_the_shares_that_student_does_not_reject():
    rng = np.random.default_rng(19)
    whole = rng.normal(10, 1, 9)
    part = 0.3 * whole + rng.normal(0, 0.5, 9)
    found = fieller(part, whole)
    for end in (found.low, found.high):
        assert stats.ttest_1samp(part - end * whole, 0.0).pvalue == pytest.approx(0.05)
    assert found.estimate == pytest.approx(part.mean() / whole.mean())


def test_a_whole_that_might_be_zero_bounds_no_share():
    assert not fieller(np.array([1.0, 2.0, 1.5]), np.array([-5.0, 5.0, 1.0])).resolved
    assert fieller(np.array([1.0]), np.array([0.0])).estimate is None
    assert fieller(np.array([]), np.array([])).n == 0
    assert not fieller(np.array([1.0]), np.array([2.0])).resolved


# --- the closing account


def test_an_account_that_holds_everything_closes():
    rng = np.random.default_rng(20)
    client, server, waiting = rng.normal([[3e3], [4e3], [1e3]], 100, (3, 10))
    response = (client + server + waiting) * rng.normal(1.0, 0.01, 10)
    found = shares_of({"client": client, "server": server, "waiting": waiting}, response)
    assert found.together.share.within(0.95, 1.05)
    assert found.together.share.excludes(1.0) is False
    parts = sum(part.amount.estimate for part in found.parts)
    assert found.together.amount.estimate == pytest.approx(parts)
    assert [part.name for part in found.parts] == ["client", "server", "waiting"]


def test_an_account_with_a_hole_or_a_double_entry_does_not_close():
    times = np.random.default_rng(21).normal(5e3, 50, (2, 10))
    hole = shares_of({"client": times[0]}, times.sum(axis=0))
    assert not hole.together.share.within(0.9, 1.1)
    twice = shares_of({"client": times[0], "again": times[0]}, times[0])
    assert twice.together.share.estimate == pytest.approx(2.0)
    assert not twice.together.share.within(0.9, 1.1)


def test_an_account_that_closes_on_average_alone_does_not_pass():
    ratio = np.array([0.5, 1.5] * 4)
    assert not shares_of({"all": ratio}, np.ones(8)).together.share.within(0.9, 1.1)


def test_an_account_may_have_a_line_named_as_anything():
    found = shares_of({"whole": [1.0, 1.0], "part 0": [2.0, 2.0]}, [3.0, 3.0])
    assert found.together.share.estimate == pytest.approx(1.0)
    with pytest.raises(ValueError, match="at least one part"):
        shares_of({}, [1.0])


def test_blocks_without_account_are_dropped():
    found = shares_of({"client": [1.0, None, 1.0]}, [1.0, 1.0, 1.0])
    assert found.n_used == 2


# --- unit cost times count


def operation(name="send", cost=(100.0, 102.0, 98.0), count=(2.0,), overlaps=(), beside=False):
    return Operation(name, cost, count, overlaps, beside)


def test_costs_times_counts_add_up():
    wake = operation("wake", (50.0, 50.0, 50.0), (4.0, 4.0, 4.0))
    found = costs_of([operation(), wake], [500.0] * 6)
    assert [part.amount.estimate for part in found.parts] == pytest.approx([200.0, 200.0])
    assert found.together.amount.estimate == pytest.approx(400.0)
    assert found.together.share.estimate == pytest.approx(0.8)
    assert [part.share.estimate for part in found.parts] == pytest.approx([0.4, 0.4])
    assert not any(part.overlaps for part in found.parts)


def test_more_than_all_is_shown_and_overlaps_are_named():
    found = costs_of([operation(overlaps=("wake",)), operation("wake")], [300.0] * 3)
    assert found.together.share.estimate == pytest.approx(4 / 3)
    assert [part.overlaps for part in found.parts] == [("wake",), ()]


def test_the_interval_carries_both_uncertainties():
    sure = costs_of([operation()], [500.0] * 3)
    cost = costs_of([operation(cost=(90.0, 110.0, 100.0))], [500.0] * 3)
    count = costs_of([operation(count=(1.5, 2.5, 2.0))], [500.0] * 3)
    response = costs_of([operation()], [400.0, 600.0, 500.0])
    sure, *wider = (found.together.share for found in (sure, cost, count, response))
    for share in wider:
        assert share.high - share.low > 2 * (sure.high - sure.low)
    assert sure.low < sure.estimate < sure.high


def test_one_uncertain_cost_has_students_interval():
    costs = [90.0, 110.0, 100.0, 105.0]
    found = costs_of([operation(cost=costs)], [500.0] * 3).parts[0].amount
    known = stats.t.interval(0.95, 3, np.mean(costs), stats.sem(costs))
    assert (found.low, found.high) == pytest.approx((2 * known[0], 2 * known[1]))


def drawn(rng, correlation, size):
    """Two rows of standard normals that hang together."""
    one, other = rng.standard_normal((2, size))
    return one, correlation * one + math.sqrt(1 - correlation**2) * other


@pytest.mark.parametrize("correlation", [-0.8, -0.4, 0.0, 0.4, 0.8])
def test_the_interval_of_the_explained_share_covers_however_its_parts_hang_together(correlation):
    """Costs with each other and with counts, by counting session; user time with the response."""
    rng, tries, hits = np.random.default_rng(22), 2000, 0
    truth = (2 * 1000 + 3 * 1200 + 1500) / 9000
    for _ in range(tries):
        send, wake = drawn(rng, correlation, 6)
        counts = correlation * send + math.sqrt(1 - correlation**2) * rng.standard_normal(6)
        user, response = drawn(rng, correlation, 10)
        operations = [
            operation("send", 1000 * (1 + 0.05 * send), 2 * (1 + 0.04 * counts)),
            operation("wake", 1200 * (1 + 0.05 * wake), 3 * (1 + 0.04 * counts)),
            operation("user time", 1500 * (1 + 0.15 * user), beside=True, count=(1.0,)),
        ]
        found = costs_of(operations, 9000 * (1 + 0.04 * response)).together.share
        hits += found.low <= truth <= found.high
    assert stats.binom.cdf(hits, tries, 0.93) > 1e-5
    assert stats.binom.sf(hits - 1, tries, 0.97) > 1e-5


def test_what_was_read_in_one_session_alone_has_no_interval():
    found = costs_of([operation(), operation("user time", (50.0,), (1.0,), beside=True)], [500.0])
    assert found.together.share.estimate == pytest.approx(0.5)
    assert not found.together.share.resolved
    assert not found.together.amount.resolved
    assert not found.parts[1].amount.resolved
    assert found.parts[0].amount.resolved


def test_a_session_without_the_reading_is_left_out_with_its_response():
    user = operation("user time", (50.0, None, 60.0), (1.0,), beside=True)
    found = costs_of([user], [500.0, 9000.0, 600.0])
    assert found.together.share.estimate == pytest.approx(0.1)
    assert found.whole.n == 2


def test_at_least_is_said_of_the_whole_interval():
    found = costs_of([operation(cost=(180.0, 220.0, 200.0))], [480.0, 500.0, 520.0])
    assert found.together.share.estimate == pytest.approx(0.8)
    alone = costs_of([operation()], [500.0]).together.share
    share = found.together.share
    for of, least, kept in ((share, 0.8, False), (share, share.low, True), (alone, 0.0, False)):
        assert (Bound("explained", of, least=least).kept is Kept.HOLDS) is kept


@pytest.mark.parametrize(
    ("operations", "response", "says"),
    [
        ([], [1.0], "at least one operation"),
        ([operation(), operation()], [1.0], "twice"),
        ([operation(overlaps=("nap",))], [1.0], "not in the list"),
        ([operation(cost=(5.0,))], [1.0], "needs 2"),
        ([operation(cost=(5.0, math.nan))], [1.0], "missing"),
        ([operation(count=(-1.0,))], [1.0], "negative"),
        ([operation(count=())], [1.0], "needs 1"),
        ([operation(count=(1.0, 2.0))], [1.0], "3 costs and 2 counts"),
        ([operation(), operation("wake", (1.0, 2.0))], [1.0], "different numbers of sessions"),
        ([operation("u", (1.0, 2.0), beside=True)], [1.0], "lengths differ"),
        ([operation()], [None], "positive mean response"),
        ([operation()], [0.0], "positive mean response"),
    ],
)
def test_what_cannot_be_explained_is_refused(operations, response, says):
    with pytest.raises(ValueError, match=says):
        costs_of(operations, response)


def test_an_operation_that_costs_nothing_explains_nothing():
    assert costs_of([operation(count=(0.0,))], [500.0] * 3).together.share.estimate == 0.0


# --- the noise floor


def test_the_noise_floor_is_what_the_pairs_show():
    rng = np.random.default_rng(23)
    pairs = [paired_ratio(*np.exp(rng.normal(0, 0.03, (2, 40)))) for _ in range(30)]
    found = noise_floor(pairs)
    assert found.sd_percent == pytest.approx(100 * math.expm1(0.03 * math.sqrt(2)), rel=0.1)
    assert found.half_width_percent == max(pair.half_width_percent for pair in pairs)
    assert found.largest_percent <= found.half_width_percent * 2.5
    assert found.false_positives.of == found.pairs == 30
    assert found.false_positives.count == sum(pair.p <= 0.05 for pair in pairs)


def test_the_detectable_effect_is_found_as_often_as_it_says():
    rng = np.random.default_rng(24)

    def pair(effect):
        a, b = np.exp(rng.normal(0, 0.03, (2, 12)))
        return paired_ratio(effect * a, b)

    detectable = noise_floor([pair(1.0) for _ in range(50)]).detectable_percent
    found = sum(pair(1 + detectable / 100).p <= 0.05 for _ in range(600))
    assert 0.70 < found / 600 < 0.90


def test_few_pairs_bound_the_false_positive_rate_loosely():
    pairs = [paired_ratio([1.0, 1.1] * 4, [1.1, 1.0] * 4)] * 2
    assert noise_floor(pairs).false_positive_upper == pytest.approx(1 - 0.05**0.5)


def test_pairs_that_cannot_be_found_different_are_no_evidence_of_few_false_positives():
    few = paired_ratio([1.0, 1.1, 1.2, 1.0, 1.0], [1.1, 1.0, 1.0, 1.2, 1.1])
    enough = paired_ratio([1.0, 1.1] * 3, [1.1, 1.0] * 3)
    found = noise_floor([few, few, enough])
    assert found.pairs == 3
    assert (found.false_positives.count, found.false_positives.of) == (0, 1)
    alone = noise_floor([few])
    assert alone.sd_percent is not None
    assert (alone.false_positives.share, alone.false_positive_upper) == (None, 1.0)


def test_no_pairs_know_nothing():
    found = noise_floor([paired_ratio([1.0], [1.0])])
    assert (found.pairs, found.sd_percent, found.false_positive_upper) == (0, None, 1.0)
    with pytest.raises(ValueError, match="is 5"):
        noise_floor([], alpha=5.0)
