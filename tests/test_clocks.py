import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import clocks
from tare.errors import TrialError

GOOD = {
    "batches": [30.0, 20.0, 25.0],
    "resolution_ns": 20,
}


def test_medians_of_batches_and_the_mean_of_nothing() -> None:
    clock = clocks._clock(lambda *_: "a line before\n" + json.dumps(GOOD) + "\n")
    assert (clock.read_ns, clock.resolution_ns, clock.timer_late_ns) == (25.0, 20.0, 25.0)


@pytest.mark.parametrize("lost", [False, True])
def test_a_null_response_is_told_by_its_stamps_and_not_by_how_long_all_of_them_took(
    lost: bool, tmp_path: Path
) -> None:
    golden = (Path(__file__).parents[1] / "testdata/echo/closed.bin").read_bytes()
    header, kept = golden[:24], [golden[64:96], golden[128:160]]  # the second of three is lost
    records = [golden[64:96], golden[96:128]] if lost else kept
    written = header + struct.pack("<Q", 2) + golden[32:64] + b"".join(records)

    def run(argv: Sequence[str], _: float) -> str:
        Path(argv[-1]).write_bytes(written)
        return ""

    if lost:
        with pytest.raises(TrialError, match="has lost requests"):
            clocks._null_response_ns(run, tmp_path / "out")
        return
    stamps = [struct.unpack("<qq", record[16:]) for record in kept]
    mean = sum(received - sent for sent, received in stamps) / 2
    assert clocks._null_response_ns(run, tmp_path / "out") == mean


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
        ({"batches": [float("nan")]}, "times that cannot be"),
    ],
)
def test_a_figure_that_is_missing_is_never_made_up(broken: dict[str, object], says: str) -> None:
    with pytest.raises(TrialError, match=says):
        clocks._clock(lambda *_: json.dumps({**GOOD, **broken}))
