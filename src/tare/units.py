"""Quantities with units, as people write them in an experiment file: `64 B`, `100 us`, `3 %`.

Everything inside Tare is in one unit a dimension: bytes, nanoseconds, bits a second, events a
second, plain fractions. Conversion happens here, at the edge, by pint.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from tare.errors import UsageError

if TYPE_CHECKING:
    import pint

# One number and one unit, never an expression: pint would evaluate `9**9**9 s`.
_QUANTITY = re.compile(
    r"\s*(?P<number>[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\W\d_/]*%?(?:/s)?)\s*"
)


_LONGEST = 60
"""Characters of a quantity: the pattern takes a time that is quadratic in them."""
WEEK_NS = 7 * 24 * 3600 * 10**9


_DEFINITIONS = """
nano- = 1e-9 = n-
micro- = 1e-6 = µ- = μ- = u-
milli- = 1e-3 = m-
kilo- = 1e3 = k-
mega- = 1e6 = M-
giga- = 1e9 = G-
kibi- = 1024 = Ki-
mebi- = 1048576 = Mi-
gibi- = 1073741824 = Gi-
second = [time] = s
minute = 60 * second = min
hour = 60 * minute = h
hertz = 1 / second = Hz
bit = [information]
byte = 8 * bit = B
percent = 0.01 = %
""".strip().splitlines()


@cache
def _registry() -> pint.UnitRegistry[float]:
    import pint  # noqa: PLC0415 - takes 0.3 s, which `tare --help` need not pay

    # Only what an experiment may say. pint's own list takes a bit for a plain number, so that 64
    # would be a size of 8 bytes.
    registry: pint.UnitRegistry[float] = pint.UnitRegistry(None, cache_folder=None)
    registry.load_definitions(_DEFINITIONS)
    return registry


def _magnitude(text: object, unit: str, examples: str) -> float:
    match = _QUANTITY.fullmatch(str(text)) if len(str(text)) <= _LONGEST else None
    if match is None:
        raise UsageError(f"cannot read {str(text)[:_LONGEST]!r}: write {examples}")
    written = {"/s": "1/s", "m": "minute"}.get(match["unit"], match["unit"])
    registry = _registry()
    import pint  # noqa: PLC0415 - see _registry

    try:
        value = float(registry.Quantity(float(match["number"]), written).to(unit).magnitude)
    except pint.DimensionalityError as error:
        raise UsageError(f"{str(text)!r} is not {examples}: check its unit") from error
    except pint.UndefinedUnitError as error:
        raise UsageError(f"{str(text)!r} has an unknown unit: write {examples}") from error
    if value == float("inf") or value < 0:
        raise UsageError(f"{str(text)!r} is out of range: write {examples}")
    return value


def size(text: object) -> int:
    """Bytes of a size such as `64 B`, `4 KiB`."""
    return round(_magnitude(text, "byte", "a size such as '64 B' or '4 KiB'"))


def duration(text: object, examples: str = "a duration such as '100 us' or '10 ms'") -> int:
    """Nanoseconds of a duration such as `100 us`, `10 ms`, `5 min`; `5m` is five minutes.

    Args:
        text: as a person wrote it.
        examples: what errors ask for.
    """
    return round(_magnitude(text, "nanosecond", examples))


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
    return round(_magnitude(text, "bit/second", "a rate such as '100 Mbit/s'"))


def frequency(text: object) -> float:
    """Events a second of a frequency such as `1000/s` or `2 kHz`."""
    return _magnitude(text, "1/second", "a frequency such as '1000/s'")


def fraction(text: object) -> float:
    """A plain fraction, above 0 and below 1, of a share such as `3 %` or `0.03`.

    `3` is three times the whole: it is refused, since whoever writes it means 3 %.
    """
    found = _magnitude(text, "dimensionless", "a share such as '3 %'")
    if not 0.0 < found < 1.0:
        raise UsageError(
            f"{str(text)!r} is {100.0 * found:g} %, and has to lie above 0 % and below 100 %: write"
            " a share such as '3 %'"
        )
    return found


def show_duration(nanoseconds: float) -> str:
    """Nanoseconds as a person writes them, with three significant digits: `16.8 us`."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(nanoseconds) >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


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
