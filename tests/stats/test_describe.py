"""Summaries of one session, of a cell over its sessions, and of deadlines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal, stats

from tare.stats import (
    PERCENTS,
    across,
    clustered_proportion,
    deadline_view,
    percentiles,
    proportion,
    samples_needed,
    summarise,
    upper_bound,
)
from tare.stats.effective import effective_samples, long_run_variance

sessions = st.lists(st.integers(0, 10**9), min_size=1, max_size=400).map(np.array)


def correlated(n, phi, rng):
    """A first-order autoregression: n samples are worth n (1 - phi) / (1 + phi)."""
    return signal.lfilter([1.0], [1.0, -phi], rng.normal(size=n + 2000))[2000:]


# --- percentiles


@pytest.mark.parametrize(
    ("percent", "needed"), [(50, 6), (90, 29), (99, 299), (99.9, 2995), (99.99, 29956)]
)
def test_a_percentile_needs_so_many_samples(percent, needed):
    assert samples_needed(percent) == needed
    p = percent / 100
    assert p**needed + (1 - p) ** needed <= 0.05 < p ** (needed - 1) + (1 - p) ** (needed - 1)


def test_low_and_high_percentiles_need_the_same():
    assert samples_needed(1.0) == samples_needed(99.0)


@pytest.mark.parametrize(
    ("percent", "confidence", "says"),
    [(0, 0.95, "percentile"), (100, 0.95, "percentile"), (50, 1.0, "confidence")],
)
def test_no_number_of_samples_resolves_an_extreme(percent, confidence, says):
    with pytest.raises(ValueError, match=says):
        samples_needed(percent, confidence)


def test_a_percentile_that_the_samples_cannot_resolve_has_no_value():
    samples = np.random.default_rng(0).permutation(np.arange(1000))
    resolved = {entry.percent: entry.resolved for entry in summarise(samples).percentiles}
    assert resolved == {50.0: True, 90.0: True, 99.0: True, 99.9: False, 99.99: False}
    p999 = summarise(samples).percentile(99.9)
    assert (p999.value, p999.low, p999.high) == (None, None, None)


def test_samples_that_repeat_each_other_do_not_resolve_a_percentile():
    rng = np.random.default_rng(1)
    independent = rng.permutation(1000)
    repeated = np.repeat(rng.permutation(100), 10)
    assert summarise(independent).percentile(99.0).resolved
    assert not summarise(repeated).percentile(99.0).resolved


def test_resolution_counts_how_lateness_clusters_not_how_the_bulk_does():
    rng = np.random.default_rng(2)
    samples = rng.integers(0, 1000, 4000)
    samples[1000:1060] += 10_000  # one burst holds every late reply
    found = {entry.percent: entry for entry in summarise(samples).percentiles}
    assert found[99.0].effective < 400
    assert found[50.0].effective > 5 * found[99.0].effective


@given(sessions)
def test_percentiles_are_observed_values_in_order(samples):
    values = [entry.value for entry in summarise(samples).percentiles if entry.resolved]
    assert values == sorted(values)
    assert set(values) <= set(samples.astype(float))
    for entry in summarise(samples).percentiles:
        if entry.resolved:
            assert entry.low <= entry.value <= entry.high


@given(sessions)
def test_the_median_is_the_sample_median(samples):
    p50 = summarise(samples).percentile(50.0)
    if p50.resolved:
        assert p50.value == np.quantile(samples, 0.5, method="inverted_cdf")


@pytest.mark.parametrize(
    ("n", "percent"), [(6, 50), (25, 50), (29, 90), (60, 90), (299, 99), (368, 99), (900, 99)]
)
def test_order_statistics_cover_the_quantile_as_promised(n, percent):
    """Exactly, from the binomial distribution: no sampling."""
    # Samples above the quantile stand far apart, so that all n count; their values are the ranks.
    below_or_at = math.ceil(n * percent / 100)
    above = np.linspace(1, n - 2, n - below_or_at).round().astype(int)
    ranks = np.zeros(n, dtype=int)
    ranks[above] = np.arange(below_or_at + 1, n + 1)
    ranks[ranks == 0] = np.arange(1, below_or_at + 1)
    assert effective_samples((ranks <= below_or_at).astype(float)) == n
    (entry,) = percentiles(ranks, [percent])
    below = stats.binom(n, percent / 100)
    covered = below.cdf(entry.high - 1) - below.cdf(entry.low - 1)
    assert covered >= 0.95 - 1e-12


def test_correlated_samples_widen_the_interval_and_it_still_covers():
    rng = np.random.default_rng(3)
    covered = []
    for _ in range(400):
        (p50,) = percentiles(correlated(2000, 0.8, rng), [50.0])
        covered.append(p50.low <= 0.0 <= p50.high)
    count = int(sum(covered))
    # Would be about 48 % if the samples were taken as independent.
    assert stats.binom.sf(count - 1, 400, 0.98) > 1e-6
    assert stats.binom.cdf(count, 400, 0.90) > 1e-6


# --- effective samples


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.99])
def test_effective_samples_of_an_autoregression_are_known(phi):
    rng = np.random.default_rng(4)
    n = 100_000
    found = np.mean([effective_samples(correlated(n, phi, rng)) for _ in range(5)])
    assert found / n == pytest.approx((1 - phi) / (1 + phi), rel=0.25)


def test_samples_that_repel_each_other_are_not_worth_more_than_they_are():
    series = np.tile([1.0, -1.0], 500) + np.random.default_rng(5).normal(0, 0.1, 1000)
    assert effective_samples(series) == 1000


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300).map(np.array))
def test_effective_samples_lie_between_one_and_all(series):
    assert 1.0 <= effective_samples(series) <= series.size
    assert long_run_variance(series) >= 0.0


def test_nothing_and_no_variation():
    assert effective_samples(np.array([])) == 0.0
    for n in (1, 3, 10, 1000):
        assert effective_samples(np.full(n, 0.1)) == n  # whose mean is not 0.1


# --- summaries


def test_a_summary_holds_the_ordinary_figures():
    rng = np.random.default_rng(6)
    samples = rng.integers(5000, 9000, 500)
    found = summarise(samples, duration_ns=2e9)
    assert found.n == 500
    assert (found.min_ns, found.max_ns) == (samples.min(), samples.max())
    assert found.mean_ns == pytest.approx(samples.mean())
    assert found.jitter_ns == pytest.approx(np.abs(np.diff(samples)).mean())
    assert found.throughput_per_s == pytest.approx(250.0)
    assert found.percentile(50.0).value == np.quantile(samples, 0.5, method="inverted_cdf")


def test_jitter_ignores_slow_drift_that_the_standard_deviation_counts():
    samples = np.arange(10_000)
    assert summarise(samples).jitter_ns == 1.0
    assert samples.std() > 2800


def test_no_samples_are_absent_and_not_zero():
    found = summarise(np.array([], dtype=np.int64), duration_ns=1e9)
    assert found.n == 0
    assert found.min_ns is found.mean_ns is found.max_ns is found.jitter_ns is None
    assert found.throughput_per_s is None
    assert [entry.value for entry in found.percentiles] == [None] * len(PERCENTS)


def test_an_unknown_percentile_names_those_that_there_are():
    with pytest.raises(KeyError, match="p95"):
        summarise(np.arange(10)).percentile(95.0)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([1.0, math.nan], "finite"),
        ([5, -1, 3], "negative"),
        ([[1, 2]], "one-dimensional"),
    ],
)
def test_what_is_no_response_time_is_refused(samples, says):
    with pytest.raises(ValueError, match=says):
        summarise(np.array(samples))


def test_a_session_without_duration_is_refused():
    with pytest.raises(ValueError, match="duration"):
        summarise(np.arange(3), duration_ns=0)


@given(sessions)
def test_summarising_leaves_the_samples_alone(samples):
    before = samples.copy()
    summarise(samples)
    assert (samples == before).all()


@given(sessions)
def test_float_and_integer_samples_give_one_summary(samples):
    assert summarise(samples.astype(np.float64)) == summarise(samples)


# --- over sessions


def test_sessions_are_estimated_on_the_log_scale():
    values = np.random.default_rng(7).lognormal(9, 0.1, 10)
    found = across(values)
    known = stats.t.interval(0.95, 9, np.log(values).mean(), stats.sem(np.log(values)))
    assert found.value == pytest.approx(stats.gmean(values))
    assert (found.low, found.high) == pytest.approx(tuple(np.exp(known)))
    assert (found.min, found.max, found.n) == (values.min(), values.max(), 10)


def test_absent_sessions_are_left_out_and_not_zero():
    found = across([100.0, None, math.nan, 100.0])
    assert (found.value, found.n) == (pytest.approx(100.0), 2)
    nothing = across([None, None])
    assert (nothing.value, nothing.max, nothing.n) == (None, None, 0)
    one = across([5.0])
    assert (one.value, one.low, one.high) == (pytest.approx(5.0), None, None)


def test_a_session_of_zero_is_refused():
    with pytest.raises(ValueError, match="absent one is None"):
        across([1.0, 0.0])


# --- proportions and deadlines


@given(st.integers(0, 60), st.integers(1, 60))
def test_the_interval_of_a_share_is_scipys_exact_one(count, of):
    if count > of:
        with pytest.raises(ValueError, match="does not lie between 0 and"):
            proportion(count, of)
        return
    known = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    found = proportion(count, of)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))
    assert upper_bound(count, of) == pytest.approx(
        stats.binomtest(count, of, alternative="less").proportion_ci(0.95).high
    )


def test_of_nothing_no_share_is_known():
    assert (proportion(0, 0).share, proportion(0, 0).low, proportion(0, 0).high) == (None, 0.0, 1.0)
    assert upper_bound(0, 0) == 1.0


def test_late_replies_that_cluster_in_one_session_widen_the_interval():
    spread, clustered = (
        clustered_proportion(late, [1000] * 8) for late in ([10] * 8, [80] + [0] * 7)
    )
    assert spread.share == clustered.share == 0.01
    assert spread.effective == 8000
    assert clustered.effective < 100
    assert clustered.high > 5 * spread.high


def test_clustered_shares_cover_where_independence_would_not():
    rng = np.random.default_rng(8)
    covered = naive = 0
    for _ in range(500):
        rates = rng.beta(2.0, 18.0, 12)  # sessions differ: 10 % on average
        late = rng.binomial(500, rates)
        found, plain = clustered_proportion(late, [500] * 12), proportion(int(late.sum()), 6000)
        covered += found.low <= 0.1 <= found.high
        naive += plain.low <= 0.1 <= plain.high
    assert naive < 250
    assert covered > 440


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8))
def test_clustering_never_narrows(counts):
    late = [min(pair) for pair in counts]
    of = [max(pair) for pair in counts]
    found, plain = clustered_proportion(late, of), proportion(sum(late), sum(of))
    assert found.low <= plain.low + 1e-9
    assert found.high >= plain.high - 1e-9
    assert found.effective <= plain.effective


@pytest.mark.parametrize(
    ("late", "of", "says"),
    [
        ([1, 2], [3], "one number a session"),
        ([4], [3], "outside 0 to"),
        ([-1], [3], "outside 0 to"),
        ([[1]], [[2]], "one number a session"),
    ],
)
def test_contradicting_counts_are_refused(late, of, says):
    with pytest.raises(ValueError, match=says):
        clustered_proportion(late, of)


def test_a_deadline_shows_what_it_leaves_and_what_misses_it():
    view = deadline_view(
        10e6,
        p50_ns=[5e6, 5e6, None],
        p99_ns=[8e6, None, None],
        replies=[100, 100],
        late=[0, 4],
        lost=[0, 6],
    )
    assert view.p50_share.value == pytest.approx(0.5)
    assert (view.p99_share.value, view.p99_share.n) == (pytest.approx(0.8), 1)
    assert (view.late.count, view.late.of) == (4, 200)
    assert (view.missed.count, view.missed.of) == (10, 206)


def test_a_deadline_of_nothing_is_refused():
    with pytest.raises(ValueError, match="deadline"):
        deadline_view(0, p50_ns=[1.0], p99_ns=[1.0], replies=[1], late=[0], lost=[0])
