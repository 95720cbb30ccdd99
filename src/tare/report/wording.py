"""What things are called: levels in plain words, and a sentence for each verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tare import environments, transports
from tare.analysis import Analysis, Question
from tare.analysis.cells import CellView
from tare.cell import Cell
from tare.report import numbers
from tare.report.numbers import Value
from tare.stats import Interval, Ratio, Verdict
from tare.workloads import Statistic, Unit

UNADJUSTED = {"interaction": "interaction (unadjusted)"}
"""Parts of a budget that are shown by another name: a contrast of four cells, without a verdict."""

_STATISTICS = {
    "p50": "median (p50)",
    "mean": "mean",
    "min": "minimum",
    "p90": "90th percentile (p90)",
    "p99": "99th percentile (p99)",
    "max": "maximum",
}


@dataclass(frozen=True)
class Label:
    """Where a cell stands in tables and figures."""

    environment: str
    """Its level of the baseline's factor, such as "QEMU guest (TCG)"."""
    series: str
    """What travels, such as "Cyclone DDS"; one colour and shape each."""
    panel: str
    """The other varied levels; empty where there are none."""
    tells: bool = True
    """Whether the series tells this cell from others."""

    @property
    def full(self) -> str:
        """What tells the cell from others, in one line."""
        return what(self.environment, self.series if self.tells else "", self.panel)

    @property
    def rest(self) -> str:
        """All but the environment."""
        return what(self.series, self.panel)

    @property
    def apart(self) -> str:
        """All but the series."""
        return what(self.environment, self.panel)


def what(*parts: str) -> str:
    """What there is of several names, in one line."""
    return ", ".join(part for part in parts if part)


class Names:
    """Plain words for the cells of one plan: only what varies is said again and again."""

    def __init__(
        self,
        views: Iterable[CellView],
        baseline: Mapping[str, str],
        subjects: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        views = tuple(views)
        self._subjects = subjects
        cells = [view.cell for view in views]
        levels: dict[str, list[str]] = {}
        for cell in cells:
            for name, level in cell.levels.items():
                levels.setdefault(name, []).append(level)
        self._main = next(iter(baseline), "environment")
        varied = [name for name, found in levels.items() if len(set(found)) > 1]
        rest = [name for name in varied if name != self._main]
        # A factor that not every cell has belongs to those that have it: DDS and its reception.
        partial = [name for name in rest if len(levels[name]) < len(cells)]
        partial = [name for name in partial if len(set(levels[name])) > 1]
        lead = "transport" if "transport" in rest else next(iter(rest), None)
        self._series = ([lead] if lead else []) + [n for n in partial if n != lead]
        self._panel = [n for n in rest if n not in self._series]
        if lead is None:
            fixed: list[str] = [n for n in ("transport", "environment") if n in levels]
            self._series = [name for name in fixed if name != self._main][:1]
        self._accelerators = {
            (view.cell.id): view.accelerator for view in views if view.accelerator
        }
        self.constant = {
            name: found[0]
            for name, found in levels.items()
            if name not in varied and len(found) == len(cells)
        }
        """Levels that all cells share, said once."""

    def place(self, cell: Cell) -> Label:
        """Where a cell stands."""
        named = self._listed(cell, self._series)
        # Where no level names the series, what is measured does.
        series = named or self._subjects.get(cell.id, "")
        panel = self._listed(cell, self._panel)
        return Label(self.main(cell)[0], series, panel, tells=bool(named))

    def main(self, cell: Cell) -> tuple[str, str]:
        """The baseline's factor as a heading, and as an adverbial phrase."""
        level = cell.levels.get(self._main, "")
        if self._main != "environment":
            shown = self.level(self._main, level)
            undisturbed = self._main == "interference" and level == "none"
            phrase = shown if undisturbed else f"with {shown}"
            return shown, _PHRASES.get((self._main, level), phrase)
        row, mark = environments.row(level), self._mark(cell)
        return row.heading + mark, row.phrase + mark

    def here(self, cell: Cell) -> str:
        """Where it was measured, with a space before it; empty where the subject says so."""
        heading, phrase = self.main(cell)
        said = self._main != "environment" and heading in self._subjects.get(cell.id, "")
        return "" if said else f" {phrase}"

    def subject(self, cell: Cell) -> str:
        """What the answer is about: "A response through Cyclone DDS (512 B)"."""
        subject = self._subjects.get(cell.id, "It")
        # A level that the subject names already is not said twice.
        said = [
            name
            for name in (*self._series, *self._panel)
            if name in cell.levels
            and name not in self.constant
            and self.level(name, cell.levels[name]) not in subject
        ]
        details = self._listed(cell, said)
        return subject + (f" ({details})" if details else "")

    @property
    def lead(self) -> str:
        """What the factor is called that gives each series its name."""
        return (self._series[0] if self._series else "what").replace("_", " ")

    @property
    def heading(self) -> str:
        """What the baseline's factor is called."""
        return self._main.replace("_", " ")

    def _listed(self, cell: Cell, factors: Iterable[str]) -> str:
        """A cell's levels of some factors, those that it has."""
        mark = self._mark(cell)
        return ", ".join(
            self.level(name, cell.levels[name]) + (mark if name == "environment" else "")
            for name in factors
            if name in cell.levels
        )

    def _mark(self, cell: Cell) -> str:
        """The accelerator behind an environment's name, where there is one."""
        accelerator = self._accelerators.get(cell.id)
        return f" ({accelerator.upper()})" if accelerator else ""

    def level(self, factor: str, level: str) -> str:
        """One level in plain words."""
        shown = numbers.micro(level)
        if factor in _LEVELS:
            return _LEVELS[factor](shown)
        return f"{factor.replace('_', ' ')} {shown}"


def _mode(level: str) -> str:
    word, _, rate = level.partition(" ")
    if word not in ("closed", "open"):
        return level  # host and guest, alone or concurrent
    return f"{word} loop" + (f" at {rate}" if rate else "")


_PHRASES: Mapping[tuple[str, str], str] = {
    ("mode", "alone"): "alone",
    ("mode", "concurrent"): "with host and guest at once",
}
"""Factor and level, where "with" and the level say it badly."""

_LEVELS: Mapping[str, Callable[[str], str]] = {
    "environment": lambda level: environments.row(level).heading,
    "transport": transports.words,
    "payload": str,
    "server_work": lambda level: f"{level} work",
    "reception": str,
    "placement": str,
    "scheduling": lambda level: f"SCHED_{level.upper()}",
    "mode": _mode,
    "clients": lambda level: f"{level} client" + ("" if level == "1" else "s"),
    "interference": lambda level: "undisturbed" if level == "none" else level,
    "link": lambda level: f"link {level}",
}


def names_of(analysis: Analysis) -> Names:
    """The names that suit an analysis."""
    return Names(analysis.cells, analysis.experiment.baseline, analysis.subjects)


def statistic_name(statistic: str) -> str:
    """A session's summary in words."""
    return _STATISTICS.get(statistic, statistic)


@dataclass(frozen=True)
class Sentence:
    """A verdict in words; the parts are set apart so that a page can stress the number."""

    verdict: Verdict | None
    style: str
    """See `style_of`."""
    before: str
    number: str
    after: str
    why: str
    """What decided, from the judgement; empty for a descriptive comparison."""

    def __str__(self) -> str:
        return f"{self.before} {self.number} {self.after}"


@dataclass(frozen=True)
class _Words:
    """How a statistic of some unit is spoken of."""

    verb: str
    equal: str
    """"1.2 x ... here as there"."""
    more: str
    """"Whether it ... here than there"."""


_WORDS: Mapping[Unit, _Words] = {
    "ns": _Words("takes", "as long", "takes longer"),
    "B": _Words("takes", "as many bytes", "takes more bytes"),
    "B/s": _Words("reaches", "as much throughput", "reaches less throughput"),
    "1/s": _Words("reaches", "as many a second", "reaches fewer a second"),
    "1": _Words("has", "as much", "has more"),
}


def equal(unit: Unit) -> str:
    """How equality in a unit is spoken of: "as long"."""
    return _WORDS[unit].equal


def sentence(question: Question, names: Names, margin: float, statistic: Statistic) -> Sentence:
    """Say what a comparison allows to be said.

    Args:
        question: of the analysis.
        names: of the same analysis.
        margin: the declared margin of equivalence, as a fraction.
        statistic: the declared one.
    """
    words = _WORDS[statistic.unit]
    verdict = question.judgement.verdict if question.judgement else None
    style = style_of(question, statistic)
    subject = names.subject(question.cell)
    here, there = names.here(question.cell), names.main(question.against)[1]
    number = ratio_text(question.ratio.ratio)
    values = absolute(question, statistic.unit)
    why = question.judgement.reason if question.judgement else ""
    lower = subject[0].lower() + subject[1:]
    if question.ratio.ratio.estimate is None:
        return Sentence(
            verdict,
            style,
            f"{subject}{here} is not compared with that {there}:",
            "no block",
            "has both, above zero.",
            why,
        )
    open_questions = {
        Verdict.EQUIVALENT: f"{subject} {words.verb} {words.equal}{here} as {there}, within"
        f" ±{100 * margin:g} %:",
        Verdict.NO_WORSE: f"{subject}{here} is no worse than {there}: {100 * margin:g} % worse is"
        " ruled out:",
        Verdict.INCONCLUSIVE: f"More data are needed to tell whether {lower} {words.more}{here}"
        f" than {there}:",
        Verdict.BELOW_INSTRUMENT: f"Whether {lower} {words.more}{here} than {there} is below what"
        " the instrument can tell:",
    }
    if verdict in open_questions:
        if question.blocks_more is not None:
            why += f"; about {question.blocks_more} more blocks would tell"
        return Sentence(verdict, style, open_questions[verdict], f"{number},", f"{values}.", why)
    less = question.ratio.ratio.estimate < 1.0
    only = " only" if verdict is not None and less else ""
    return Sentence(
        verdict,
        style,
        f"{subject} {words.verb}{only}",
        number,
        f"{words.equal}{here} as {there}: {values}.",
        why,
    )


def verdict_of(question: Question) -> str:
    """The verdict's word; descriptive where nothing is judged."""
    return str(question.judgement.verdict) if question.judgement else "descriptive"


def style_of(question: Question, statistic: Statistic) -> str:
    """The verdict's class, whose colour says which of both is better; in words, so does its name.

    Slower is always the worse. More is not, where more is better.
    """
    verdict = verdict_of(question)
    if statistic.better == "higher" and verdict in _IS:
        verdict += _IS[verdict]
    return verdict.replace(" ", "-")


_IS: Mapping[str, str] = {Verdict.MORE: " is better", Verdict.LESS: " is worse"}


def ends(ratio: Ratio, unit: Unit) -> tuple[Value, Value, Value]:
    """Both ends of a comparison and their difference, in one unit."""
    like = ((ratio.a.estimate or 0.0) * (ratio.b.estimate or 0.0)) ** 0.5
    return (
        quantity_text(ratio.a, unit, like=like),
        quantity_text(ratio.b, unit, like=like),
        quantity_text(ratio.difference, unit, signed=True, like=like),
    )


def absolute(question: Question, unit: Unit = "ns") -> str:
    """Both ends of a comparison and their difference, in words."""
    ours, theirs, difference = ends(question.ratio, unit)
    return f"{ours.bare} against {theirs.bare}, a difference of {difference}"


def ratio_text(interval: Interval) -> str:
    """A ratio with the sign of multiplication and its interval: "26.7 x [24.9, 28.5]"."""
    value = interval_text(interval, "ratio")
    return f"{value.bare} {value.interval}"


def quantity_text(
    interval: Interval, unit: Unit, *, signed: bool = False, like: float | None = None
) -> Value:
    """An interval's numbers in a unit, rounded."""
    return numbers.quantity(
        unit, interval.estimate, interval.low, interval.high, signed=signed, like=like
    )


def interval_text(interval: Interval, kind: str, like: float | None = None) -> Value:
    """An interval's numbers, rounded.

    Args:
        interval: in ns where it is a time, a plain number where it is a ratio or a share.
        kind: "time", "difference" (a signed time), "ratio" or "share".
        like: for a time, the size in ns whose unit it takes.
    """
    parts = (interval.estimate, interval.low, interval.high)
    if kind == "ratio":
        return numbers.ratio(*parts)
    if kind == "share":
        return numbers.share(*parts)
    return numbers.time(*parts, signed=kind == "difference", like=like)
