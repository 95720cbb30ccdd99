"""The budget by contrast, the closing account, and unit cost times count."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tare.stats.budget import contrast_budget, fieller
from tare.stats.causes import closing_account
from tare.stats.compare import paired_ratio
from tare.stats.noise import noise_floor
from tare.stats.unit_costs import Operation, explain

times = st.floats(100.0, 1e7)
cells = st.lists(st.tuples(times, times, times, times), min_size=1, max_size=12)


def budget(blocks):
    base_floor, env_floor, base_middleware, env_middleware = zip(*blocks, strict=True)
    return contrast_budget(
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
    assert sum(part.time.estimate for part in found.parts) == pytest.approx(
        found.total.estimate, abs=1e-9 * size
    )
    assert sum(part.share.estimate for part in found.parts) == pytest.approx(
        1.0, abs=1e-9 * size / found.total.estimate
    )


def test_each_layer_is_what_switching_it_on_alone_adds():
    found = budget([(7.0, 85.0, 17.0, 448.0)] * 8)
    parts = {part.name: part.time.estimate for part in found.parts}
    assert parts == {"floor": 7.0, "virtualisation": 78.0, "middleware": 10.0, "interaction": 353.0}
    assert found.total.estimate == 448.0


def test_a_part_may_be_negative():
    found = budget([(10.0, 30.0, 20.0, 35.0)] * 8)
    assert found.parts[3].time.estimate == -5.0
    assert found.parts[3].share.high < 0


def test_blocks_that_lack_a_cell_are_dropped_whole():
    found = budget([(7.0, 85.0, 17.0, 448.0), (7.0, None, 17.0, 448.0), (None,) * 4] * 6)
    assert (found.n_used, found.n_dropped) == (6, 6)


def test_no_complete_block_gives_no_figure():
    found = budget([(7.0, None, 17.0, 448.0)])
    assert found.total.estimate is None
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
            hits[part.name] += part.time.low <= truth[part.name] <= part.time.high
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
    found = closing_account({"client": client, "server": server, "waiting": waiting}, response)
    assert found.closes_within(0.05)
    assert found.closure.low < 1.0 < found.closure.high
    assert found.sum.estimate == pytest.approx(sum(line.time.estimate for line in found.lines))
    assert [line.name for line in found.lines] == ["client", "server", "waiting"]


def test_an_account_with_a_hole_or_a_double_entry_does_not_close():
    times = np.random.default_rng(21).normal(5e3, 50, (2, 10))
    assert not closing_account({"client": times[0]}, times.sum(axis=0)).closes_within(0.1)
    twice = closing_account({"client": times[0], "again": times[0]}, times[0])
    assert twice.closure.estimate == pytest.approx(2.0)
    assert not twice.closes_within(0.1)


def test_an_account_that_closes_on_average_alone_does_not_pass():
    ratio = np.array([0.5, 1.5] * 4)
    assert not closing_account({"all": ratio}, np.ones(8)).closes_within(0.1)


def test_an_account_may_have_a_line_named_as_anything():
    found = closing_account({"response": [1.0, 1.0], "line 0": [2.0, 2.0]}, [3.0, 3.0])
    assert found.closure.estimate == pytest.approx(1.0)
    with pytest.raises(ValueError, match="at least one line"):
        closing_account({}, [1.0])


def test_blocks_without_account_are_dropped():
    found = closing_account({"client": [1.0, None, 1.0]}, [1.0, 1.0, 1.0])
    assert (found.n_used, found.n_dropped) == (2, 1)


# --- unit cost times count


def operation(name="send", cost=(100.0, 102.0, 98.0), count=(2.0,), overlaps=(), beside=False):
    return Operation(name, cost, count, overlaps, beside)


def test_costs_times_counts_add_up():
    wake = operation("wake", (50.0, 50.0, 50.0), (4.0, 4.0, 4.0))
    found = explain([operation(), wake], [500.0] * 6)
    assert [line.time.estimate for line in found.lines] == pytest.approx([200.0, 200.0])
    assert found.explained_ns.estimate == pytest.approx(400.0)
    assert found.share.estimate == pytest.approx(0.8)
    assert [line.share for line in found.lines] == pytest.approx([0.4, 0.4])
    assert not found.overlapping


def test_more_than_all_is_shown_and_overlaps_are_named():
    found = explain([operation(overlaps=("wake",)), operation("wake")], [300.0] * 3)
    assert found.share.estimate == pytest.approx(4 / 3)
    assert found.overlapping
    assert found.lines[0].overlaps == ("wake",)


def test_the_interval_carries_both_uncertainties():
    sure = explain([operation()], [500.0] * 3)
    cost = explain([operation(cost=(90.0, 110.0, 100.0))], [500.0] * 3)
    count = explain([operation(count=(1.5, 2.5, 2.0))], [500.0] * 3)
    response = explain([operation()], [400.0, 600.0, 500.0])
    for wider in (cost, count, response):
        assert wider.share.half_width > 2 * sure.share.half_width
    assert sure.share.low < sure.share.estimate < sure.share.high


def test_one_uncertain_cost_has_students_interval():
    costs = [90.0, 110.0, 100.0, 105.0]
    found = explain([operation(cost=costs)], [500.0] * 3).lines[0].time
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
        found = explain(operations, 9000 * (1 + 0.04 * response)).share
        hits += found.low <= truth <= found.high
    assert stats.binom.cdf(hits, tries, 0.93) > 1e-5
    assert stats.binom.sf(hits - 1, tries, 0.97) > 1e-5


def test_what_was_read_in_one_session_alone_has_no_interval():
    found = explain([operation(), operation("user time", (50.0,), (1.0,), beside=True)], [500.0])
    assert found.share.estimate == pytest.approx(0.5)
    assert not found.share.resolved
    assert not found.explained_ns.resolved
    assert not found.lines[1].time.resolved
    assert found.lines[0].time.resolved


def test_a_session_without_the_reading_is_left_out_with_its_response():
    user = operation("user time", (50.0, None, 60.0), (1.0,), beside=True)
    found = explain([user], [500.0, 9000.0, 600.0])
    assert found.share.estimate == pytest.approx(0.1)
    assert found.response_ns.n == 2


def test_at_least_is_said_of_the_whole_interval():
    found = explain([operation(cost=(180.0, 220.0, 200.0))], [480.0, 500.0, 520.0])
    assert found.share.estimate == pytest.approx(0.8)
    assert not found.explains_at_least(0.8)
    assert found.explains_at_least(found.share.low)
    assert not explain([operation()], [500.0]).explains_at_least(0.0)


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
        explain(operations, response)


def test_an_operation_that_costs_nothing_explains_nothing():
    assert explain([operation(count=(0.0,))], [500.0] * 3).share.estimate == 0.0


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
    with pytest.raises(ValueError):
        noise_floor([], alpha=5.0)
