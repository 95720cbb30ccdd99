"""One self-contained HTML page: nothing is loaded, nothing needs a script to be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

import tare
from tare import machine
from tare.analysis import Analysis, Question
from tare.command import shell_line
from tare.plan import ALPHA
from tare.published import papers
from tare.report import figures, numbers, remarks, tables, wording
from tare.report.headline import headline
from tare.report.tables import Table
from tare.report.wording import Names, Sentence
from tare.workloads import Statistic

_MOST_ANSWERS = 24
_MODES = {
    "closed": "Closed loop: the next request follows the reply (service time).",
    "open": "Open loop: a schedule decides (response time from the intended send).",
}


def render(analysis: Analysis) -> str:
    """Draw the page.

    Args:
        analysis: of one result.

    Returns:
        HTML without scripts, in UTF-8 well under 5 MB.
    """
    names = wording.names_of(analysis)
    judged = [q for q in analysis.questions if q.judgement is not None]
    rest = [q for q in analysis.questions if q.judgement is None]
    margin = analysis.experiment.margin_share
    paper = papers()[analysis.workload.paper]
    context: dict[str, Any] = {
        "headline": headline(analysis, names),
        "experiment": analysis.experiment,
        "plan": analysis.plan,
        "source": _source(analysis.folder / "experiment.yaml"),
        "again": shell_line(
            *("tare", "run", "experiment.yaml", "--seed", analysis.plan.seed),
            *analysis.experiment.options,
        ),
        "folder": analysis.folder.resolve().name,
        "alpha": ALPHA,
        "statistic": wording.statistic_name(analysis.experiment.statistic),
        "when": when(analysis),
        "conditions": conditions(analysis),
        "outcome": remarks.outcome(analysis),
        "provisional": analysis.complete_blocks < analysis.plan.min_blocks,
        "cautions": remarks.cautions(analysis),
        "cuts": analysis.plan.cuts,
        "reading": reading(analysis),
        "answers": _grouped(judged, names, margin, analysis.statistic),
        "described": [wording.sentence(q, names, margin, analysis.statistic) for q in rest],
        "failures": tables.failures(analysis, names),
        "failed": len(analysis.failures),
        "tried": len(analysis.trials),
        "observations": remarks.observations(analysis, names),
        "noise": remarks.noise(analysis),
        "floor": _levels(analysis.experiment.floor or {}, names),
        "figures": figures.draw(analysis, names),
        "own": list(analysis.workload.figures),
        "tables": _tables(analysis, names),
        "values": tables.values(analysis, names),
        "differences": tables.differences(analysis, names),
        "response_times": analysis.response_times,
        "paper": paper,
        "apparatus": "; ".join(f"{k}: {v}" for k, v in paper.apparatus.items()),
        "identity": _identity(analysis),
        "fingerprints": _fingerprints(analysis, names),
    }
    return drawn("page.html.j2", context)


def conditions(analysis: Analysis) -> str:
    """Name what every table must name: the accelerator, and how requests were sent."""
    accelerators = sorted({view.accelerator.upper() for view in analysis.cells if view.accelerator})
    modes = sorted({view.cell.levels.get("mode", "closed") for view in analysis.cells})
    guest = f"Guest under {' and '.join(accelerators)}. " if accelerators else ""
    kinds = sorted({mode.split()[0] for mode in modes})
    said = " ".join(_MODES[kind] for kind in kinds if kind in _MODES)
    return f"{guest}{said if analysis.response_times else ''}".strip()


def when(analysis: Analysis) -> str:
    """Say when it was measured, how often, and on what."""
    if not analysis.trials:
        return "No trial is on record yet."
    started = sorted(trial.started for trial in analysis.trials)
    first, last = (text[:16].replace("T", " ") for text in (started[0], started[-1]))
    ends = first if first == last else f"{first} to {last}"
    tried = numbers.count(len(analysis.trials))
    return f"{ends} UTC \N{MIDDLE DOT} {tried} trials \N{MIDDLE DOT} {_machine(analysis)}"


def _machine(analysis: Analysis) -> str:
    found = analysis.fingerprint
    known = [part for part in (found.cpu.model, found.system) if part]
    return ", ".join(known) or "machine not recorded"


def reading(analysis: Analysis) -> str:
    """Say what the numbers are, and what all cells share."""
    statistic = wording.statistic_name(analysis.experiment.statistic)
    levels = [
        numbers.micro(f"{name.replace('_', ' ')} {level}")
        for name, level in wording.names_of(analysis).constant.items()
        if name not in ("environment", "transport", "mode")
    ]
    everywhere = f" The same everywhere: {', '.join(levels)}." if levels else ""
    what = (
        f"Times are the {statistic} of a session"
        if analysis.response_times
        else f"Judged is {analysis.experiment.statistic}: {analysis.statistic.help}"
    )
    return f"{what}; brackets hold 95 % intervals.{everywhere}"


@dataclass(frozen=True)
class _Answers:
    """The answers on one environment."""

    heading: str
    tally: str
    """How many of each verdict."""
    sentences: tuple[Sentence, ...]
    open: bool
    """Shown at once; a long list is folded, and the figure below shows it at a glance."""


def _source(path: Path) -> str:
    """The experiment as it was written; the plan has all that the page says, and not the words."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}."


def _grouped(
    questions: Iterable[Question], names: Names, margin: float, statistic: Statistic
) -> list[_Answers]:
    groups: dict[str, list[Sentence]] = {}
    for question in questions:
        here, there = names.main(question.cell)[0], names.main(question.against)[0]
        found = wording.sentence(question, names, margin, statistic)
        heading = here if here == there else f"{here} against {there}"
        groups.setdefault(heading, []).append(found)
    few = sum(map(len, groups.values())) <= _MOST_ANSWERS
    return [
        _Answers(heading, _tally(sentences), tuple(sentences), few)
        for heading, sentences in groups.items()
    ]


def _tally(sentences: Iterable[Sentence]) -> str:
    counted = Counter(str(sentence.verdict) for sentence in sentences)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())


def _levels(levels: Mapping[str, str], names: Names) -> str:
    return ", ".join(names.level(factor, level) for factor, level in levels.items())


def _tables(analysis: Analysis, names: Names) -> dict[str, Table | None]:
    return {
        "effects": tables.effects(analysis, names, analysis.questions),
        "others": tables.other_statistics(analysis, names),
        "pairs": tables.effects(analysis, names, analysis.pairs),
        "levels": tables.levels(analysis, names),
        "tails": tables.tails(analysis, names),
        "contrasts": tables.contrasts(analysis, names),
        "threads": tables.threads(analysis, names),
        "operations": tables.operations(analysis, names),
        "resources": tables.resources(analysis, names),
        "deadlines": tables.deadlines(analysis, names),
        "calibration": tables.calibration(analysis, names),
        "machine": tables.machine(analysis),
        "paper": tables.paper(analysis, names),
    }


def _identity(analysis: Analysis) -> list[tuple[str, str]]:
    """The lines of the fingerprint that a reader asks for first."""
    return [(key, value) for key, value in _flat(analysis.fingerprint.whole) if key in _FIRST]


_FIRST = {
    *("cpu.model", "cpu.usable", "cpu.virtual", "memory_bytes", "system", "kernel.release"),
    *("kernel.clock_source", "tare.version", "tare.commit"),
}


def _fingerprints(analysis: Analysis, names: Names) -> list[tuple[str, list[tuple[str, str]]]]:
    found = [("The whole fingerprint", _flat(analysis.fingerprint.whole))]
    for moment, differing in analysis.resumptions.items():
        changes = [(key, f"{then} -> {now}") for key, (then, now) in differing.items()]
        heading = f"Resumed {moment[:16].replace('T', ' ')} UTC: what differed from the beginning"
        found.append((heading, changes or [("nothing", "")]))
    seen: dict[str, list[tuple[str, str]]] = {}
    for view in analysis.cells:
        heading = f"{names.main(view.cell)[0]}: what it said of itself"
        if view.facts and heading not in seen:
            seen[heading] = _flat(view.facts)
    for trial in analysis.trials:
        series = names.place(analysis.view(trial.cell).cell).series
        heading = f"{series}: settings of both ends"
        if trial.status == "ok" and trial.settings.whole and heading not in seen:
            seen[heading] = _flat(trial.settings.whole)
    return found + list(seen.items())


def _flat(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value))
        for key, value in machine.flattened(tree)
        if value is not None
    ]


def drawn(template: str, context: Mapping[str, Any]) -> str:
    """Fill a template; whatever comes from a user or a machine is escaped."""
    style = resources.files("tare.report").joinpath("style.css").read_text(encoding="utf-8")
    common = {"version": tare.__version__, "style": style}
    return _templates().get_template(template).render({**common, **context})


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("tare.report", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=False,
    )
