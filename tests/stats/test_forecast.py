"""Prediction intervals cover, and scores count what they say."""

import numpy as np
import pytest

from tare.stats.forecast import prediction_factor, score


def test_an_interval_covers_new_environments_about_as_often_as_it_says():
    rng = np.random.default_rng(7)
    groups, members, trials = 7, 6, 2000
    covered = 0
    for _ in range(trials):
        centres = rng.normal(0.0, 0.2, groups + 1)
        errors = centres[:-1, None] + rng.normal(0.0, 0.1, (groups, members))
        factor = prediction_factor(errors.ravel(), groups, 0.90)
        covered += abs(centres[-1] + rng.normal(0.0, 0.1)) <= np.log(factor)
    # 0.90 and a little more: 4 standard errors below is 0.873.
    assert covered / trials >= 0.873


def test_errors_all_to_one_side_widen_the_interval_as_much_as_scatter():
    one_sided = prediction_factor([0.3] * 10, 5)
    scattered = prediction_factor([0.3, -0.3] * 5, 5)
    assert one_sided == pytest.approx(scattered)


@pytest.mark.parametrize(
    ("missed", "groups", "says"),
    [
        ([], 5, "finite errors"),
        ([0.1], 1, "at least two groups"),
        ([float("nan")], 3, "finite errors"),
    ],
)
def test_an_interval_without_ground_is_refused(missed, groups, says):
    with pytest.raises(ValueError, match=says):
        prediction_factor(missed, groups)


def test_scores_count_errors_and_coverage():
    found = score([100, 100, 100, 100], [100, 130, 250, 80], [(90, 140)] * 4)
    assert found.n == 4
    assert found.within_two == 0.75
    assert found.covered == 0.5
    assert found.median_error == pytest.approx((1 - 100 / 130 + 0.25) / 2)


@pytest.mark.parametrize(
    ("predicted", "measured"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
)
def test_what_cannot_be_scored_is_refused(predicted, measured):
    says = "positive, finite values" if len(measured) < 2 else "as many as each other"
    with pytest.raises(ValueError, match=says):
        score(predicted, measured)
