import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import TrialError
from tare.workloads import echo_samples

GOLDEN = sorted((Path(__file__).parents[1] / "testdata" / "echo").glob("*.bin"))


def file(records: list[tuple[int, int, int, int, int]], mode: int = 1, **change: int) -> bytes:
    fields = {"version": 1, "header": 64, "record": 32, "clock": 1, "count": len(records)} | change
    head = struct.pack("<8sIIIIQIIII16x", b"TAREECHO", *fields.values(), 64, 1, mode, 0)
    return head + b"".join(struct.pack("<IIqqq", *r) for r in records)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.name)
def test_the_golden_files_are_read(path):
    assert len(echo_samples.parse(path.read_bytes()).records) > 0


def test_there_are_golden_files():
    assert GOLDEN


def test_a_lost_request_is_absent_in_parquet_not_minus_one(tmp_path):
    found = echo_samples.parse(file([(0, 0, 10, 11, 20), (0, 1, 30, 31, -1)]))
    echo_samples.to_parquet(found, tmp_path / "s.parquet")
    column = pq.read_table(tmp_path / "s.parquet")["received_ns"]
    assert column.to_pylist() == [20, None]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends after 0 bytes"),
        (b"NOTECHO!" + bytes(56), "begins with"),
        (file([], version=2), "version 2"),
        (file([], mode=0), "contradicts"),
        (file([], record=16), "contradicts"),
        (file([(0, 0, 1, 1, 2)])[:-1], "promises 1 samples"),
        (file([], count=2**60), "promises"),
    ],
)
def test_a_damaged_file_is_refused_in_words(data, message):
    with pytest.raises(TrialError, match=message):
        echo_samples.parse(data)


@given(st.binary(max_size=200), st.integers(0, 70))
def test_no_bytes_do_worse_than_a_trial_error(noise, cut):
    for data in (noise, file([(0, 0, 1, 1, 2)])[:cut] + noise):
        with suppress(TrialError):
            echo_samples.parse(data)


@given(
    st.lists(
        st.tuples(*[st.integers(0, 2**31 - 1)] * 2, *[st.integers(-1, 2**62)] * 3), max_size=20
    )
)
def test_records_come_back_as_they_were(records):
    found = echo_samples.parse(file(records))
    assert [tuple(map(int, r)) for r in found.records] == records
    assert np.all(found.records["client"] >= 0)
