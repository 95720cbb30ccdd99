"""Jain's index against its definition and its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.stats.fairness import jain_index

shares = st.lists(st.floats(0.0, 1e12), min_size=1, max_size=20).filter(any)


@given(shares)
def test_the_index_lies_between_one_over_n_and_one(values):
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


@given(shares, st.floats(1e-6, 1e6))
def test_the_unit_does_not_matter(values, factor):
    assert jain_index([v * factor for v in values]) == pytest.approx(jain_index(values))


def test_known_splits():
    assert jain_index([5.0, 5.0]) == 1.0
    assert jain_index([1.0, 0.0]) == 0.5
    assert jain_index([3.0, 1.0]) == pytest.approx(0.8)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [-1.0, 2.0], [float("inf"), 1.0]])
def test_what_is_no_split_is_refused(values):
    says = "finite, not negative and not all zero" if values else "at least one share"
    with pytest.raises(ValueError, match=says):
        jain_index(values)
