"""Where values lie along an axis, and where it is marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from tare.report import numbers
from tare.workloads import Unit

_PAD = 4.0
"""Percent of the axis that stay free at either end."""
_APART = 17.0
"""Percent of the axis between two marks, so that their labels do not meet on a telephone; and the
more, the longer the labels."""
_LETTER = 3.3
_FAR = 25.0
_REACH = 30.0
"""An interval is drawn so many times beyond the outermost estimates at most; its text has it."""
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Axis:
    """A line of 100 percent, on which values have their place.

    Args:
        values: everything that is to be seen; of a logarithmic axis those above zero count.
        label: a marked value -> its text.
        log: whether equal ratios are equal distances.
        marks: the values that may be marked, where they are few and known.
        upright: whether labels stand above each other, where their length does not matter.
    """

    def __init__(
        self,
        values: Iterable[float | None],
        label: Callable[[float], str],
        *,
        log: bool = True,
        marks: Sequence[float] = (),
        upright: bool = False,
    ) -> None:
        self._log = log
        seen = [v for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
        least, most = min(seen, default=1.0), max(seen, default=1.0)
        # Equal, but for rounding; of days since 1970 a millionth is half an hour.
        if math.isclose(least, most, rel_tol=1e-6 if log else 1e-9):
            least, most = (least / 1.1, most * 1.1) if log else (least - 0.5, most + 0.5)
        low, high = self._scaled(least), self._scaled(most)
        spare = (high - low) * _PAD / (100.0 - 2.0 * _PAD)
        self._low, self._length = low - spare, high - low + 2.0 * spare
        self.marks = tuple(
            (self.at(value), label(value)) for value in self._marked(marks, label, upright=upright)
        )
        """Place in percent and text of each mark."""

    def at(self, value: float) -> float:
        """Place of a value in percent; what lies outside is put at the end."""
        if self._log and value <= 0.0:
            return 0.0
        place = 100.0 * (self._scaled(value) - self._low) / self._length
        return round(min(max(place, 0.0), 100.0), 2)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def _marked(
        self, known: Sequence[float], label: Callable[[float], str], *, upright: bool
    ) -> list[float]:
        ends = (self._low, self._low + self._length)
        least, most = (10.0**end for end in ends) if self._log else ends
        best: list[float] = []
        for values in [known[::n] for n in range(1, len(known))] or self._ladder(least, most):
            fits = [value for value in values if least <= value <= most]
            gaps = [b - a for a, b in pairwise(sorted(self.at(value) for value in fits))]
            longest = 0 if upright else max((len(label(value)) for value in fits), default=0)
            if min(gaps, default=0.0) >= max(_APART, _LETTER * longest):
                if len(fits) > 2:
                    return fits
                best = best or fits
        return best or fits

    def _ladder(self, least: float, most: float) -> Iterator[list[float]]:
        """Ways to mark a range, the finest first: 1, 2, 5, ..., decades, or equal steps."""
        if self._log:
            powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                yield [digit * 10.0**power for power in powers for digit in digits]
            for every in (2, 3, 4, 6):
                yield [10.0**power for power in powers if power % every == 0]
        finest = math.floor(math.log10((most - least) / 10.0))
        for power in range(finest, finest + 3):
            for step in _STEPS:
                size = step * 10.0**power
                first, last = math.ceil(least / size), math.floor(most / size)
                yield [round(n * size, 12) for n in range(first, last + 1)]


def within_reach(inner: Sequence[float], ends: Iterable[float], *, log: bool = True) -> list[float]:
    """What an axis has to show: all estimates, and of intervals without end a part.

    Args:
        inner: estimates, and what else is seen whole; at least one.
        ends: of intervals.
        log: whether the axis is logarithmic.
    """
    reach = _REACH * max(abs(value) for value in inner)
    least, most = (min(inner) / _REACH, max(inner) * _REACH) if log else (-reach, reach)
    return [*inner, *(min(max(end, least), most) for end in ends)]


def plain(value: float) -> str:
    """A number as a mark's text."""
    return f"{value:.6g}".replace("-", numbers.MINUS)


def share(value: float) -> str:
    """A share of 1 as a mark's text."""
    return f"{plain(100.0 * value)}{numbers.SPACE}%"


def written(unit: Unit) -> Callable[[float], str]:
    """How marks of a unit are written."""
    return lambda value: numbers.mark(unit, value)
