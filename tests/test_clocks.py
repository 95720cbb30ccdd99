import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import clocks
from tare.errors import TrialError

GOOD = {
    "batches": [30.0, 20.0, 25.0],
    "resolution_ns": 20,
    "start_ns": 1000,
    "end_ns": 61_000,
    "counters": {"received": 1000},
}


def test_medians_of_batches_and_the_mean_of_nothing() -> None:
    clock = clocks._clock(lambda *_: "a line before\n" + json.dumps(GOOD) + "\n")
    assert (clock.read_ns, clock.resolution_ns, clock.timer_late_ns) == (25.0, 20.0, 25.0)
    assert clock.null_response_ns == 60.0


keys = st.text() | st.sampled_from(sorted(GOOD))
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
)


@given(st.text() | values.map(json.dumps))
def test_whatever_a_probe_prints_is_read_or_spoils_the_trial(output: str) -> None:
    try:
        clocks._clock(lambda *_: output)
    except TrialError as error:
        assert error.what


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"batches": []}, "something else than times"),
        ({"resolution_ns": None}, "something else than times"),
        ({"counters": {"received": 0}}, "something else than times"),
        ({"batches": [float("nan")]}, "times that cannot be"),
    ],
)
def test_a_figure_that_is_missing_is_never_made_up(broken: dict[str, object], says: str) -> None:
    with pytest.raises(TrialError, match=says):
        clocks._clock(lambda *_: json.dumps({**GOOD, **broken}))
