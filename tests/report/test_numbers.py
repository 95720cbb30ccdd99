"""Numbers carry a unit and no digit that their interval does not bear."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tare.report import numbers

STEADY = settings(deadline=None, derandomize=True, max_examples=300)
SIZES = st.floats(1e-6, 1e12)


def plain(value):
    return str(value).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("estimate", "low", "high", "said"),
    [
        (26.7431, 24.9312, 28.5123, "26.7 [24.9, 28.5] \N{MULTIPLICATION SIGN}"),
        (1.00034, 0.99412, 1.01234, "1.000 [0.994, 1.012] \N{MULTIPLICATION SIGN}"),
        (52.3, 17.2, 213.4, "52 [17, 213] \N{MULTIPLICATION SIGN}"),
        (1234.5, 900.0, 1600.0, "1230 [900, 1600] \N{MULTIPLICATION SIGN}"),
        (3.0, None, None, "3.00 \N{MULTIPLICATION SIGN}"),
        (3.0, 3.0, 3.0, "3.000 [3.000, 3.000] \N{MULTIPLICATION SIGN}"),
        (None, None, None, "\N{EM DASH}"),
        (math.inf, None, None, "\N{EM DASH}"),
    ],
)
def test_a_ratio_is_rounded_to_what_its_interval_bears(estimate, low, high, said):
    assert plain(numbers.ratio(estimate, low, high)) == said


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (0.0, "0 ns"),
        (87.0, "87.0 ns"),
        (6900.0, "6.90 µs"),
        (448_000.0, "448 µs"),
        (1_094_000.0, "1090 µs"),
        (33_600_000.0, "33.6 ms"),
        (2.5e10, "25.0 s"),
    ],
)
def test_a_time_has_the_unit_of_its_size(ns, said):
    assert plain(numbers.time(ns)) == said


def test_a_small_part_can_take_the_unit_of_its_whole():
    assert plain(numbers.time(-30.0, -90.0, 40.0, signed=True, like=17e3)) == (
        "\N{MINUS SIGN}0.03 [\N{MINUS SIGN}0.09, +0.04] µs"
    )


def test_a_number_never_breaks_from_its_unit_or_its_interval():
    assert " " not in str(numbers.time(6900.0, 6800.0, 7000.0))


def value_of(text):
    return float(text.replace("\N{MINUS SIGN}", "-").replace("+", ""))


@STEADY
@given(low=SIZES, below=SIZES, above=SIZES)
def test_rounding_moves_nothing_by_a_sixth_of_the_half_width(low, below, above):
    estimate, high = low + below, low + below + above
    shown = numbers.fixed(estimate, low, high, most=12)
    for text, value in ((shown.number, estimate), (shown.low, low), (shown.high, high)):
        assert abs(value_of(text) - value) <= (high - low) / 12 + 1e-9 * high


@STEADY
@given(estimate=SIZES, share=st.floats(1e-9, 0.9))
def test_an_interval_never_earns_more_than_four_digits(estimate, share):
    shown = numbers.fixed(estimate, estimate * (1 - share), estimate * (1 + share))
    digits = shown.high.replace(".", "").lstrip("0")
    assert len(digits.rstrip("0") or "0") <= 4


@STEADY
@given(st.one_of(st.none(), st.floats(-1e15, 1e15)), st.one_of(st.none(), st.floats(-1e15, 1e15)))
def test_any_number_can_be_shown(estimate, end):
    assert str(numbers.fixed(estimate, end, end))


def test_thousands_are_set_apart():
    assert numbers.count(1234567) == "1\u202f234\u202f567"


def test_what_is_certainly_positive_is_never_shown_as_zero():
    assert str(numbers.ratio(7.0, 0.03, 470_000_000.0)).startswith("7")
    assert numbers.fixed(7.0, 0.03, 470_000_000.0).low == "0.03"
    assert numbers.fixed(0.2, -30.0, 31.0).number == "0", "a difference may well be none"


def test_what_is_certainly_negative_is_never_shown_as_zero():
    assert numbers.fixed(-7.0, -30.0, -0.03).high == "\N{MINUS SIGN}0.03"


def test_an_end_beside_one_is_never_shown_as_one():
    """It is what tells slower from inconclusive."""

    def said(*parts):
        return plain(numbers.ratio(*parts))

    assert said(1.37, 1.04, 1.80).startswith("1.4 [1.04, 1.8]")
    assert said(1.37, 0.96, 1.80).startswith("1.4 [0.96, 1.8]")
    assert said(1.37, 1.0, 1.80).startswith("1.4 [1.0, 1.8]")
    assert said(1.0003, 1.0003, 1.0003).startswith("1.0003 [1.0003, 1.0003]")
    assert said(1.0, 1 - 1e-9, 1 + 1e-9).startswith("1.000 [1.000, 1.000]")


def test_a_difference_about_zero_has_the_unit_of_its_interval():
    shown = str(numbers.time(20.0, -7100.0, 8200.0, signed=True)).replace("\N{NO-BREAK SPACE}", " ")
    assert shown == "0 [\N{MINUS SIGN}7, +8] \N{MICRO SIGN}s"


@pytest.mark.parametrize(
    ("unit", "value", "said"),
    [
        ("ns", 0.0, "0"),
        ("ns", 500.0, "500 ns"),
        ("ns", 2e6, "2 ms"),
        ("B", 4096e3, "4.096 MB"),
        ("1/s", 2e3, "2 k/s"),
        ("1", 1e6, "1e+06"),
    ],
)
def test_a_mark_of_an_axis_is_as_short_as_it_can_be(unit, value, said):
    assert numbers.mark(unit, value).replace("\N{NO-BREAK SPACE}", " ") == said


def test_a_ratio_that_may_be_nearly_anything_is_written_short():
    assert numbers.ratio(1.0, 7e-34, 2.9e33).interval == f"[<0.001,{numbers.SPACE}>1000]"
    assert numbers.ratio(1.2e-4, 0.9e-4, 1.5e-4).low == "0.000090"


def test_only_a_time_in_us_has_its_sign_and_no_word_of_a_users():
    assert (
        numbers.micro("100 us, at 2.5 us") == "100\N{NO-BREAK SPACE}µs, at 2.5\N{NO-BREAK SPACE}µs"
    )
    for words in ("select name from users", "region us-east-1", "top 5 users", "zone 1 us-east"):
        assert numbers.micro(words) == words
