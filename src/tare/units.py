"""Quantities with units, as people write them in an experiment file: `64 B`, `100 us`, `3 %`.

Everything inside Tare is in one unit a dimension: bytes, nanoseconds, bits a second, events a
second, plain fractions. Conversion happens here, at the edge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from tare.errors import UsageError

# One number and one unit, never an expression.
_QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d_/]*%?(?:/s)?)\s*"
)


_LONGEST = 60
"""Characters of a quantity: the pattern takes a time that is quadratic in them."""
WEEK_NS = 7 * 24 * 3600 * 10**9


_MULTIPLES = {
    "": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}  # fmt: skip
_TIME = {
    "ns": 1.0,
    **dict.fromkeys(("us", "µs", "μs"), 1e3),  # the sign for micro, and the Greek letter
    "ms": 1e6,
    **dict.fromkeys(("s", "second", "seconds"), 1e9),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60e9),
    **dict.fromkeys(("h", "hour", "hours"), 3600e9),
}
_SIZE = {
    prefix + unit: multiple * size
    for prefix, multiple in _MULTIPLES.items()
    for unit, size in (("B", 1.0), ("bit", 1 / 8))
}
_BIT_RATE = {f"{unit}/s": 8 * size for unit, size in _SIZE.items()}
_FREQUENCY = {"/s": 1.0, "Hz": 1.0, "kHz": 1e3, "MHz": 1e6, "GHz": 1e9}
_SHARE = {"": 1.0, "%": 0.01}
_KNOWN = _TIME.keys() | _SIZE.keys() | _BIT_RATE.keys() | _FREQUENCY.keys() | _SHARE.keys()


COLUMNS: Mapping[str, str] = {
    "ns": "_ns",
    "B": "_bytes",
    "B/s": "_bytes_per_s",
    "bit/s": "_bits_per_s",
    "1/s": "_per_s",
    "1": "",
}
"""Unit -> what stands behind the name of a column in it."""


def _magnitude(text: object, units: Mapping[str, float], examples: str) -> float:
    match = _QUANTITY.fullmatch(str(text)) if len(str(text)) <= _LONGEST else None
    if match is None:
        raise UsageError(f"cannot read {str(text)[:_LONGEST]!r}: write {examples}")
    unit = match["unit"]
    if unit not in _KNOWN:
        raise UsageError(f"{str(text)!r} has an unknown unit: write {examples}")
    if unit not in units:
        raise UsageError(f"{str(text)!r} is not {examples}: check its unit")
    value = float(match["number"]) * units[unit]
    if value == float("inf") or value < 0:
        raise UsageError(f"{str(text)!r} is out of range: write {examples}")
    return value


def size(text: object) -> int:
    """Bytes of a size such as `64 B`, `4 KiB`."""
    return round(_magnitude(text, _SIZE, "a size such as '64 B' or '4 KiB'"))


def duration(text: object, examples: str = "a duration such as '100 us' or '10 ms'") -> int:
    """Nanoseconds of a duration such as `100 us`, `10 ms`, `5 min`; `5m` is five minutes.

    Args:
        text: as a person wrote it.
        examples: what errors ask for.
    """
    return round(_magnitude(text, _TIME, examples))


def seconds(text: object) -> float:
    """Seconds of a time that a person allows, such as `5m`."""
    return duration(text, "a time such as '5m' or '90 s'") / 1e9


def deadline(text: object) -> int:
    """Nanoseconds of a duration above 0, up to a week."""
    found = duration(text)
    if found > WEEK_NS:
        raise UsageError(f"{str(text)!r} is more than a week: write a duration such as '10 ms'")
    if found == 0:
        raise UsageError(f"{str(text)!r} leaves no time at all: write a duration such as '10 ms'")
    return found


def bit_rate(text: object) -> int:
    """Bits a second of a rate such as `100 Mbit/s`."""
    return round(_magnitude(text, _BIT_RATE, "a rate such as '100 Mbit/s'"))


def frequency(text: object) -> float:
    """Events a second of a frequency such as `1000/s` or `2 kHz`."""
    return _magnitude(text, _FREQUENCY, "a frequency such as '1000/s'")


def fraction(text: object) -> float:
    """A plain fraction, above 0 and below 1, of a share such as `3 %` or `0.03`.

    `3` is three times the whole: it is refused, since whoever writes it means 3 %.
    """
    found = share(text)
    if not 0.0 < found < 1.0:
        raise UsageError(
            f"{str(text)!r} is {100.0 * found:g} %, and has to lie above 0 % and below 100 %: write"
            " a share such as '3 %'"
        )
    return found


def share(text: object) -> float:
    """A plain fraction of a share such as `3 %` or `0.03`; it may be nothing, or more than all."""
    return _magnitude(text, _SHARE, "a share such as '3 %'")


def scale(unit: str) -> tuple[Literal["ns", "B", "B/s", "1/s", "1"], float]:
    """The unit that a unit is a multiple of, here, and the multiple; `ms` is 1e6 ns.

    Raises:
        UsageError: it is none.
    """
    if unit in ("1", "1/s"):
        return ("1/s", 1.0) if "/" in unit else ("1", 1.0)
    if unit in _TIME:
        return "ns", _TIME[unit]
    if unit in _SIZE:
        return "B", _SIZE[unit]
    if unit in _BIT_RATE:
        return "B/s", _BIT_RATE[unit] / 8
    if unit in _FREQUENCY:
        return "1/s", _FREQUENCY[unit]
    raise UsageError(
        f"{unit!r} is no unit: write one such as ns, ms, s, B, MB, MB/s, 1/s, kHz or 1"
    )


def show_duration(nanoseconds: float) -> str:
    """Nanoseconds as a person writes them, with three significant digits: `16.8 us`."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(nanoseconds) >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def minutes(seconds: float) -> str:
    """A duration as a person plans with it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def exact_duration(nanoseconds: int) -> str:
    """Nanoseconds in the largest unit that keeps it whole, no digit lost: `100 us`."""
    for factor, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if nanoseconds % factor == 0 and nanoseconds:
            return f"{nanoseconds // factor} {unit}"
    return f"{nanoseconds} ns" if nanoseconds else "0 us"


def exact_size(size: int) -> str:
    """Write a size in the largest unit that loses nothing; `size` reads it back."""
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size and not size % (1 << bits):
            return f"{size >> bits} {unit}"
    return f"{size} B"
