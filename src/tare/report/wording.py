"""What things are called: levels in plain words, and a sentence for each verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tare.analysis import Analysis, Question
from tare.analysis.cells import CellView
from tare.cell import Cell
from tare.report import numbers
from tare.report.numbers import SPACE, Value
from tare.stats import Interval, Verdict

__all__ = [
    "Names",
    "Place",
    "Sentence",
    "absolute",
    "interval_text",
    "names_of",
    "ratio_text",
    "sentence",
    "statistic_name",
]

_ENVIRONMENTS = {
    "native": ("Host", "on the host"),
    "container": ("Container (runc)", "in the container (runc)"),
    "gvisor": ("gVisor", "in gVisor"),
    "uml": ("User-Mode Linux", "in User-Mode Linux"),
    "qemu": ("QEMU guest", "in the QEMU guest"),
    "ssh": ("Remote machine", "on the remote machine"),
}
_TRANSPORTS = {
    "icmp": "ICMP echo",
    "udp": "UDP",
    "tcp": "TCP",
    "cyclonedds": "Cyclone DDS",
    "fastdds": "Fast DDS",
    "zeromq": "ZeroMQ",
    "connext": "RTI Connext",
    "null": "no transport",
}
_STATISTICS = {
    "p50": "median (p50)",
    "mean": "mean",
    "min": "minimum",
    "p90": "90th percentile (p90)",
    "p99": "99th percentile (p99)",
    "max": "maximum",
}


@dataclass(frozen=True)
class Place:
    """Where a cell stands in tables and figures."""

    environment: str
    """Its level of the baseline's factor, such as "QEMU guest (TCG)"."""
    series: str
    """What travels, such as "Cyclone DDS"; one colour and shape each."""
    panel: str
    """The other varied levels; empty where there are none."""

    @property
    def full(self) -> str:
        """All three in one line."""
        return ", ".join(part for part in (self.environment, self.series, self.panel) if part)


class Names:
    """Plain words for the cells of one plan: only what varies is said again and again."""

    def __init__(self, views: Iterable[CellView], baseline: Mapping[str, str]) -> None:
        views = tuple(views)
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
        if lead is None and "transport" in levels:
            self._series = ["transport"]
        self._accelerators = {
            (view.cell.id): view.accelerator for view in views if view.accelerator
        }
        self.constant = {name: found[0] for name, found in levels.items() if name not in varied}
        """Levels that all cells share, said once."""

    def place(self, cell: Cell) -> Place:
        """Where a cell stands."""
        return Place(
            self.main(cell)[0], self._listed(cell, self._series), self._listed(cell, self._panel)
        )

    def main(self, cell: Cell) -> tuple[str, str]:
        """The baseline's factor as a heading, and as an adverbial phrase."""
        level = cell.levels.get(self._main, "")
        if self._main != "environment":
            shown = self.level(self._main, level)
            undisturbed = self._main == "interference" and level == "none"
            return shown, shown if undisturbed else f"with {shown}"
        heading, phrase = _ENVIRONMENTS.get(level, (level, f"in {level}"))
        mark = self._mark(cell)
        return heading + mark, phrase + mark

    def subject(self, cell: Cell) -> str:
        """What the answer is about: "A response through Cyclone DDS with 64 B of payload"."""
        transport = cell.levels.get("transport")
        through = f" through {self.level('transport', transport)}" if transport else ""
        said = [n for n in (*self._series, *self._panel) if n != "transport"]
        details = self._listed(cell, said)
        return f"A response{through}" + (f" ({details})" if details else "")

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
        shown = level.replace(" us", f"{SPACE}\N{MICRO SIGN}s")
        if factor in _LEVELS:
            return _LEVELS[factor](shown)
        return f"{factor.replace('_', ' ')} {shown}"


def _mode(level: str) -> str:
    word, _, rate = level.partition(" ")
    return f"{word} loop" + (f" at {rate}" if rate else "")


_LEVELS: Mapping[str, Callable[[str], str]] = {
    "environment": lambda level: _ENVIRONMENTS.get(level, (level, level))[0],
    "transport": lambda level: _TRANSPORTS.get(level, level),
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
    return Names(analysis.cells, analysis.experiment.baseline)


def statistic_name(statistic: str) -> str:
    """A session's summary in words."""
    return _STATISTICS.get(statistic, statistic)


@dataclass(frozen=True)
class Sentence:
    """A verdict in words; the parts are set apart so that a page can stress the number."""

    verdict: Verdict | None
    before: str
    number: str
    after: str
    why: str
    """What decided, from the judgement; empty for a descriptive comparison."""

    def __str__(self) -> str:
        return f"{self.before} {self.number} {self.after}"


def sentence(question: Question, names: Names, margin: float) -> Sentence:
    """Say what a comparison allows to be said.

    Args:
        question: of the analysis.
        names: of the same analysis.
        margin: the declared margin of equivalence, as a fraction.
    """
    verdict = question.judgement.verdict if question.judgement else None
    subject = names.subject(question.cell)
    here, there = names.main(question.cell)[1], names.main(question.against)[1]
    number = ratio_text(question.ratio.ratio)
    values = absolute(question)
    why = question.judgement.reason if question.judgement else ""
    lower = subject[0].lower() + subject[1:]
    if question.ratio.ratio.estimate is None:
        return Sentence(
            verdict,
            f"Of {lower} {here} nothing can be said:",
            "no complete block",
            f"compares it with that {there}.",
            why,
        )
    open_questions = {
        Verdict.EQUIVALENT: f"{subject} takes as long {here} as {there}, within"
        f" ±{100 * margin:g} %:",
        Verdict.INCONCLUSIVE: f"Whether {lower} takes longer {here} than {there} stays open:",
        Verdict.BELOW_INSTRUMENT: f"Whether {lower} takes longer {here} than {there} is below what"
        " the instrument can tell:",
    }
    if verdict in open_questions:
        return Sentence(verdict, open_questions[verdict], f"{number},", f"{values}.", why)
    only = " only" if verdict is Verdict.FASTER else ""
    return Sentence(
        verdict,
        f"{subject} takes{only}",
        number,
        f"as long {here} as {there}: {values}.",
        why,
    )


def absolute(question: Question) -> str:
    """Both ends of a comparison and their difference, in time."""
    ours = interval_text(question.ratio.a, "time").bare
    theirs = interval_text(question.ratio.b, "time").bare
    difference = interval_text(question.ratio.difference, "difference")
    return f"{ours} against {theirs}, a difference of {difference}"


def ratio_text(interval: Interval) -> str:
    """A ratio with the sign of multiplication and its interval: "26.7 x [24.9, 28.5]"."""
    value = interval_text(interval, "ratio")
    return f"{value.bare} {value.interval}"


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
