"""What probes print is read, or refused as a trial's error."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import TrialError
from tare.operations import _cost

values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
)


@given(st.text() | values.map(json.dumps) | values.map(lambda v: json.dumps({"batches": v})))
def test_any_output_is_a_finite_cost_or_an_error_of_the_trial(said):
    try:
        found = _cost(said, "syscall")
    except TrialError as error:
        assert "syscall" in str(error)
    else:
        assert math.isfinite(found.mean)
        assert math.isfinite(found.median)


def test_a_disturbed_batch_moves_the_mean_and_not_the_median():
    found = _cost('{"batches": [1.0, 1.0, 1.0, 97.0]}', "syscall")
    assert (found.mean, found.median) == (25.0, 1.0)


def test_no_batches_are_no_cost():
    with pytest.raises(TrialError, match="probe syscall printed no batches"):
        _cost('{"batches": []}', "syscall")
