"""Numbers as a careful person writes them: a unit, and no digit that the interval does not bear.

Rounding is the Particle Data Group's: to two digits of the half-width where its leading digits are
100 to 354, to one where they are 355 to 949 (Review of Particle Physics, Introduction, 5.3).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from tare.workloads import Unit

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"
"""Between a number and its unit, and within an interval: neither is torn apart at a line's end."""
TIME_UNITS = ((1e3, 1.0, "ns"), (1e7, 1e3, "\N{MICRO SIGN}s"), (1e10, 1e6, "ms"))
"""Below this many ns, divide by this, and call it that. Microseconds reach to 10 ms, so that most
of what stands side by side has one unit."""
_SECONDS = (1e9, "s")
_MOST_DIGITS = 4
_BARE_DIGITS = 3
_MOST_DECIMALS = 6
"""Of what is beside 1: what is nearer to it is shown as 1."""
_THOUSAND = 1000.0


def micro(text: str) -> str:
    """A text whose times in us have their sign; all else in it is a user's own word."""
    return re.sub(r"(?<=\d) us(?![\w-])", f"{SPACE}\N{MICRO SIGN}s", text)


@dataclass(frozen=True)
class Value:
    """A number with its interval, as text; all parts are rounded alike."""

    number: str
    """Without a unit; an em dash where there is none."""
    low: str | None
    high: str | None
    unit: str

    @property
    def interval(self) -> str:
        """The interval in brackets, or the words that there is none."""
        return "[no interval]" if self.low is None else f"[{self.low},{SPACE}{self.high}]"

    @property
    def bare(self) -> str:
        """The number with its unit, without the interval."""
        return f"{self.number}{SPACE}{self.unit}".strip()

    def __str__(self) -> str:
        if self.low is None:
            return self.bare
        return f"{self.number}{SPACE}{self.interval}{SPACE}{self.unit}".strip()


def fixed(
    estimate: float | None,
    low: float | None = None,
    high: float | None = None,
    unit: str = "",
    *,
    signed: bool = False,
    most: int = _MOST_DIGITS,
) -> Value:
    """Round a number to what its interval bears; to three digits where it has none.

    Args:
        estimate: None is absent, and shown so.
        low: lower end of its interval, or None.
        high: upper end of its interval, or None.
        unit: of all three.
        signed: show a plus sign too.
        most: digits that are never exceeded, however narrow the interval.
    """
    if estimate is None or not math.isfinite(estimate):
        return Value("\N{EM DASH}", None, None, "")
    if low is None or high is None:
        decimals = _decimals(estimate, _BARE_DIGITS)
        return Value(_text(estimate, decimals, signed), None, None, unit)
    half_width = (high - low) / 2.0
    decimals = _decimals(half_width, _error_digits(half_width)) if half_width > 0 else 99
    decimals = min(decimals, _decimals(max(abs(estimate), abs(low), abs(high)), most))
    # What has one sign with its whole interval is no zero, however little is known of it.
    shown = [_decimals(v, 1) if (low > 0 or high < 0) and round(v, decimals) == 0 else decimals
             for v in (estimate, low, high)]  # fmt: skip
    number, least, greatest = (
        _text(value, digits, signed)
        for value, digits in zip((estimate, low, high), shown, strict=True)
    )
    return Value(number, least, greatest, unit)


def time(
    estimate_ns: float | None,
    low_ns: float | None = None,
    high_ns: float | None = None,
    *,
    signed: bool = False,
    like: float | None = None,
) -> Value:
    """Round a time in ns, in the unit that suits its size, or the size of `like`."""
    size = _size(estimate_ns, low_ns, high_ns, signed=signed) if like is None else abs(like)
    divisor, unit = next(((by, name) for below, by, name in TIME_UNITS if size < below), _SECONDS)
    value, low, high = (None if x is None else x / divisor for x in (estimate_ns, low_ns, high_ns))
    return fixed(value, low, high, unit, signed=signed)


def ratio(estimate: float | None, low: float | None = None, high: float | None = None) -> Value:
    """Round a ratio. Of one that may be nearly anything, no end is beyond a thousand either way."""
    found = fixed(estimate, low, high, "\N{MULTIPLICATION SIGN}")
    if estimate is None or low is None or high is None or found.low is None or found.high is None:
        return found
    # The verdict is on which side of 1 the ends lie: what is not 1 is not shown as 1.
    found = replace(
        found,
        number=_beside_one(estimate, found.number) if low > 1 or high < 1 else found.number,
        low=_beside_one(low, found.low),
        high=_beside_one(high, found.high),
    )
    if high < low * _THOUSAND**2:
        return found
    least = f"<{1 / _THOUSAND:g}" if low < 1 / _THOUSAND else found.low
    return replace(found, low=least, high=f">{_THOUSAND:g}" if high > _THOUSAND else found.high)


def _beside_one(value: float, shown: str) -> str:
    decimals = _decimals(value - 1.0, 1)
    if value == 1.0 or float(shown) != 1.0 or decimals > _MOST_DECIMALS:
        return shown
    return _text(value, decimals, signed=False)


def share(estimate: float | None, low: float | None = None, high: float | None = None) -> Value:
    """Round a share of 1 as percent."""
    value, least, most = (None if x is None else 100.0 * x for x in (estimate, low, high))
    return fixed(value, least, most, "%", most=_BARE_DIGITS)


def percent(
    estimate: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    signed: bool = False,
) -> Value:
    """Round a number of percent."""
    return fixed(estimate, low, high, "%", signed=signed)


def quantity(
    unit: Unit,
    estimate: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    signed: bool = False,
    like: float | None = None,
) -> Value:
    """Round a number of some unit, with a decimal prefix that suits its size, or `like`'s."""
    if unit == "ns":
        return time(estimate, low, high, signed=signed, like=like)
    size = _size(estimate, low, high, signed=signed) if like is None else abs(like)
    divisor, prefix = next((p for p in _PREFIXES if size >= p[0]), _PREFIXES[-1])
    if unit == "1":
        divisor, prefix = 1.0, ""
    shown = {"B": f"{prefix}B", "B/s": f"{prefix}B/s", "1/s": f"{prefix}/s", "1": ""}[unit]
    value, least, most = (None if x is None else x / divisor for x in (estimate, low, high))
    return fixed(value, least, most, shown, signed=signed)


def _size(estimate: float | None, low: float | None, high: float | None, *, signed: bool) -> float:
    """What a unit must suit: a difference may be about zero, and its interval wide all the same."""
    parts = (estimate, low, high) if signed else (estimate,)
    return max(abs(part or 0.0) for part in parts)


def mark(unit: Unit, value: float) -> str:
    """A number of some unit at an axis, as short as it can be."""
    ladder = _TIMES if unit == "ns" else _PREFIXES if unit != "1" else ()
    divisor, prefix = next((step for step in ladder if abs(value) >= step[0]), (1.0, ""))
    shown = "" if unit in ("ns", "1") else unit.removeprefix("1")
    text = f"{value / divisor:.6g}"
    return f"{text}{SPACE}{prefix}{shown}" if value and unit != "1" else text


_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "\N{MICRO SIGN}s"), (1.0, "ns"))
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def memory(size: float | None) -> str:
    """Bytes as MiB."""
    return fixed(None if size is None else size / 2**20, unit="MiB").bare


def count(number: int) -> str:
    """A whole number with thin spaces between its thousands."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _error_digits(half_width: float) -> int:
    """How many digits of a half-width are worth printing."""
    leading = float(f"{half_width:.5e}".partition("e")[0])
    return 1 if 3.545 <= leading < 9.495 else 2


def _decimals(value: float, digits: int) -> int:
    """Decimal places that show so many significant digits of a value."""
    # Rounded before its exponent is taken: 9.96 with two digits is 10.
    return digits - 1 - int(f"{value:.{digits - 1}e}".partition("e")[2]) if value else 0


def _text(value: float, decimals: int, signed: bool) -> str:
    shown = round(value, decimals)
    text = f"{abs(shown):.{max(decimals, 0)}f}"
    if shown < 0:
        return MINUS + text
    return "+" + text if signed and shown > 0 else text
