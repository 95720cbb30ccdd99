from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import units
from tare.errors import UsageError


@pytest.mark.parametrize(
    ("parse", "written", "value"),
    [
        (units.size, "64 B", 64),
        (units.size, "4 KiB", 4096),
        (units.duration, "100 us", 100_000),
        (units.duration, "100 µs", 100_000),
        (units.duration, "5m", 300_000_000_000),
        (units.duration, "0 us", 0),
        (units.bit_rate, "100 Mbit/s", 100_000_000),
        (units.frequency, "1000/s", 1000.0),
        (units.frequency, "2 kHz", 2000.0),
        (units.fraction, "3 %", 0.03),
        (units.fraction, 0.03, 0.03),
        (units.fraction, "99.9 %", 0.999),
        (units.deadline, "100 us", 100_000),
    ],
)
def test_quantities_are_read_as_people_write_them(parse, written, value):
    assert parse(written) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "written"),
    [
        (units.size, "64"),
        (units.size, "64 us"),
        (units.size, "-3 B"),
        (units.size, None),
        (units.duration, "9**9**9 s"),
        (units.duration, "__import__('os')"),
        (units.duration, "1e400 s"),
        (units.duration, "nan s"),
        (units.fraction, "3 s"),
        (units.fraction, "0 %"),
        (units.fraction, "100 %"),
        (units.fraction, 3),
        (units.deadline, "0 ms"),
        (units.deadline, "0.1 ns"),
        (units.frequency, "3 bit/s"),
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(parse, written):
    with pytest.raises(UsageError, match=r"such as|out of range"):
        parse(written)


@given(st.text(max_size=30))
def test_no_text_does_worse_than_a_usage_error(text):
    for parse in (units.size, units.duration, units.bit_rate, units.frequency):
        with suppress(UsageError):
            assert parse(text) >= 0
    for parse in (units.fraction, units.deadline):
        with suppress(UsageError):
            assert parse(text) > 0


@given(st.integers(0, 10**13))
def test_an_exact_duration_reads_back_as_itself(nanoseconds):
    assert units.duration(units.exact_duration(nanoseconds)) == nanoseconds
