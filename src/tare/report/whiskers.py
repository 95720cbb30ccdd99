"""Intervals of ratios as lines of text, one below the other on one logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from tare.report import numbers
from tare.report.figures.axis import within_reach
from tare.stats import Interval

_LEAST, _MOST = 12, 40  # columns
_BEGIN, _END = (
    "\N{BOX DRAWINGS LIGHT VERTICAL AND RIGHT}",
    "\N{BOX DRAWINGS LIGHT VERTICAL AND LEFT}",
)


@dataclass(frozen=True)
class Ruler:
    """From the lowest to the highest end of all intervals, with 1 and the margin on it.

    As far as figures reach, too: what goes on beyond it ends in an arrow.
    """

    low: float
    high: float
    margin: float

    @classmethod
    def over(cls, ratios: Iterable[Interval], margin: float) -> Ruler:
        """Make the axis that all of some ratios lie on."""
        every = list(ratios)
        inner = [1.0 / (1.0 + margin), 1.0 + margin]
        inner += (r.estimate for r in every if r.estimate is not None)
        ends = (end for r in every for end in (r.low, r.high) if end is not None)
        seen = within_reach(inner, ends)
        return cls(min(seen), max(seen), margin)

    def column(self, ratio: float, width: int) -> int:
        """Where a ratio stands among so many columns."""
        within = min(max(ratio, self.low), self.high)
        share = math.log(within / self.low) / math.log(self.high / self.low)
        return round(share * (width - 1))


@dataclass(frozen=True)
class _OnAxis:
    axis: Ruler

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_LEAST, _MOST)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.drawn(min(options.max_width, _MOST))

    def drawn(self, width: int) -> Text:
        """Draw it in so many columns."""
        raise NotImplementedError


@dataclass(frozen=True)
class Whisker(_OnAxis):
    """One interval: `├──●──┤`, over a bar at 1 and dots as far as the margin goes."""

    ratio: Interval
    style: str = ""

    def drawn(self, width: int) -> Text:
        """Draw it in so many columns; empty where there is no estimate."""
        line = [" "] * width
        for column in self._span(1.0 / (1.0 + self.axis.margin), 1.0 + self.axis.margin, width):
            line[column] = "\N{MIDDLE DOT}"
        line[self.axis.column(1.0, width)] = "\N{BOX DRAWINGS LIGHT VERTICAL}"
        shown = Text("".join(line), "dim")
        if self.ratio.estimate is None:
            return shown
        marked: list[int] = []
        if self.ratio.low is not None and self.ratio.high is not None:
            marked = list(self._span(self.ratio.low, self.ratio.high, width))
            for column in marked:
                line[column] = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
            goes_on = self.ratio.low < self.axis.low, self.ratio.high > self.axis.high
            line[marked[0]] = "\N{LEFTWARDS ARROW}" if goes_on[0] else _BEGIN
            line[marked[-1]] = "\N{RIGHTWARDS ARROW}" if goes_on[1] else _END
        marked.append(self.axis.column(self.ratio.estimate, width))
        line[marked[-1]] = "\N{BLACK CIRCLE}"
        shown = Text("".join(line), "dim")
        shown.stylize(f"not dim {self.style}", min(marked), max(marked) + 1)
        return shown

    def _span(self, low: float, high: float, width: int) -> Iterator[int]:
        yield from range(self.axis.column(low, width), self.axis.column(high, width) + 1)


@dataclass(frozen=True)
class Ticks(_OnAxis):
    """The axis itself: its ends and 1, as far as they do not cover each other."""

    def drawn(self, width: int) -> Text:
        """Draw it in so many columns."""
        line = [" "] * width
        for ratio in (1.0, self.axis.high, self.axis.low):
            label = "1" if ratio == 1.0 else numbers.ratio(ratio).number
            at = min(max(0, self.axis.column(ratio, width) - len(label) // 2), width - len(label))
            around = line[max(0, at - 1) : at + len(label) + 1]
            if all(character == " " for character in around):
                line[at : at + len(label)] = label
        return Text("".join(line), "dim")
