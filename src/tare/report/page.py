"""One self-contained HTML page: nothing is loaded, nothing needs a script to be read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from statistics import median
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

import tare
from tare.analysis import Analysis
from tare.plan import ALPHA
from tare.published import papers
from tare.report import figures, numbers, remarks, tables, wording
from tare.report.tables import Table
from tare.report.wording import Names, Sentence

__all__ = ["render"]

_MODES = {
    "closed": "Closed loop: the next request follows the reply (service time).",
    "open": "Open loop: a schedule decides (response time from the intended send).",
}


def render(analysis: Analysis) -> str:
    """Draw the page.

    Args:
        analysis: of one result.

    Returns:
        HTML, in UTF-8 well under 5 MB.
    """
    names = wording.names_of(analysis)
    drawn = figures.draw(analysis, names)
    specs = {key: figure.spec for key, figure in drawn.items() if figure and figure.spec}
    script = _script() if specs else ""
    judged = [q for q in analysis.questions if q.judgement is not None]
    rest = [q for q in analysis.questions if q.judgement is None]
    margin = analysis.experiment.margin_share
    failures = remarks.failures(analysis, names)
    context: dict[str, Any] = {
        "version": tare.__version__,
        "style": _file("style.css"),
        "script": script,
        "script_hash": _hash(script),
        "specs": specs,
        "experiment": analysis.experiment,
        "plan": analysis.plan,
        "source": (analysis.folder / "experiment.yaml").read_text(encoding="utf-8"),
        "folder": analysis.folder.name,
        "alpha": ALPHA,
        "statistic": wording.statistic_name(analysis.experiment.statistic),
        "when": _when(analysis),
        "conditions": conditions(analysis),
        "outcome": remarks.outcome(analysis),
        "provisional": analysis.complete_blocks < analysis.plan.min_blocks,
        "cautions": remarks.busy(analysis),
        "cuts": analysis.plan.cuts,
        "reading": _reading(analysis),
        "answers": _grouped(judged, names, margin),
        "described": [wording.sentence(q, names, margin) for q in rest],
        "failures": failures,
        "failed": len(analysis.failures),
        "tried": len(analysis.trials),
        "observations": remarks.observations(analysis, names),
        "noise": remarks.noise(analysis),
        "floor": _levels(analysis.experiment.floor or {}, names),
        "figures": drawn,
        "tables": _tables(analysis, names),
        "paper": papers()["A"],
        "apparatus": "; ".join(f"{k}: {v}" for k, v in papers()["A"].apparatus.items()),
        "fingerprints": _fingerprints(analysis, names),
    }
    return _environment().get_template("page.html.j2").render(context)


def conditions(analysis: Analysis) -> str:
    """Name what every table must name: the accelerator, and how requests were sent."""
    accelerators = sorted({view.accelerator.upper() for view in analysis.cells if view.accelerator})
    modes = sorted({view.cell.levels.get("mode", "closed") for view in analysis.cells})
    guest = f"Guest under {' and '.join(accelerators)}. " if accelerators else ""
    kinds = sorted({mode.split()[0] for mode in modes})
    said = " ".join(_MODES[kind] for kind in kinds if kind in _MODES)
    return f"{guest}{said}"


def _when(analysis: Analysis) -> str:
    if not analysis.trials:
        return "No trial is on record yet."
    started = sorted(trial.started for trial in analysis.trials)
    first, last = (text[:16].replace("T", " ") for text in (started[0], started[-1]))
    ends = first if first == last else f"{first} to {last}"
    tried = numbers.count(len(analysis.trials))
    return f"{ends} UTC \N{MIDDLE DOT} {tried} trials \N{MIDDLE DOT} {_machine(analysis)}"


def _machine(analysis: Analysis) -> str:
    cpu = analysis.fingerprint.get("cpu")
    model = cpu.get("model") if isinstance(cpu, Mapping) else None
    system = analysis.fingerprint.get("system")
    return ", ".join(str(part) for part in (model, system) if part) or "machine not recorded"


def _reading(analysis: Analysis) -> str:
    statistic = wording.statistic_name(analysis.experiment.statistic)
    levels = [
        f"{name.replace('_', ' ')} {level}".replace(" us", " \N{MICRO SIGN}s")
        for name, level in wording.names_of(analysis).constant.items()
        if name not in ("environment", "transport", "mode")
    ]
    everywhere = f" The same everywhere: {', '.join(levels)}." if levels else ""
    return f"Times are the {statistic} of a session; brackets hold 95 % intervals.{everywhere}"


def _grouped(
    questions: Iterable[Any], names: Names, margin: float
) -> list[tuple[str, list[Sentence]]]:
    groups: dict[str, list[Sentence]] = {}
    for question in questions:
        here, there = names.main(question.cell)[0], names.main(question.against)[0]
        found = wording.sentence(question, names, margin)
        groups.setdefault(f"{here} against {there}", []).append(found)
    return list(groups.items())


def _levels(levels: Mapping[str, str], names: Names) -> str:
    return ", ".join(names.level(factor, level) for factor, level in levels.items())


def _tables(analysis: Analysis, names: Names) -> dict[str, Table | None]:
    return {
        "effects": tables.effects(analysis, names, analysis.questions),
        "others": tables.other_statistics(analysis, names),
        "pairs": tables.effects(analysis, names, analysis.pairs),
        "levels": tables.levels(analysis, names),
        "tails": tables.tails(analysis, names),
        "budgets": tables.budgets(analysis, names),
        "accounts": tables.accounts(analysis, names),
        "resources": tables.resources(analysis, names),
        "deadlines": tables.deadlines(analysis, names),
        "calibration": tables.calibration(analysis, names),
        "machine": _machine_table(analysis),
        "paper": tables.paper(analysis, names),
    }


def _machine_table(analysis: Analysis) -> Table | None:
    """What the machine did beside the trials."""
    states = [trial.machine for trial in analysis.trials if trial.machine.get("seconds")]
    if not states:
        return None
    columns = {
        "load average over 1 min": [state.get("load_1min") for state in states],
        "time stolen by the hypervisor below, % of one processor": [
            _share(state.get("steal_ns"), 1e9 * state["seconds"]) for state in states
        ],
        **{
            f"time in which some task waited for {what}, %": [
                _share((state.get("pressure_us") or {}).get(what), 1e6 * state["seconds"])
                for state in states
            ]
            for what in ("cpu", "memory", "io")
        },
    }
    rows = []
    for name, column in columns.items():
        known = sorted(value for value in column if value is not None)
        if known:
            shown = (median(known), known[int(0.95 * (len(known) - 1))], known[-1])
            rows.append((name, *(numbers.fixed(value).bare for value in shown)))
    if not rows:
        return None
    return Table(
        f"What else the machine did, over {numbers.count(len(states))} trials",
        ("", "median", "95th percentile", "most"),
        tuple(rows),
        heads=1,
        conditioned=False,
    )


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or whole <= 0 else 100.0 * part / whole


def _fingerprints(
    analysis: Analysis, names: Names
) -> list[tuple[str, list[tuple[str, str]], bool]]:
    found = [("Fingerprint", _flat(analysis.fingerprint), True)]
    seen: dict[str, tuple[tuple[str, str], ...]] = {}
    for view in analysis.cells:
        heading = names.main(view.cell)[0]
        if view.facts and heading not in seen:
            seen[heading] = tuple(_flat(view.facts))
    found += [
        (f"{heading}: what it said of itself", list(rows), False) for heading, rows in seen.items()
    ]
    settings: dict[str, list[tuple[str, str]]] = {}
    for trial in analysis.trials:
        series = names.place(analysis.view(trial.cell).cell).series
        if trial.status == "ok" and trial.settings and series not in settings:
            settings[series] = _flat(trial.settings)
    found += [
        (f"{series}: settings of both ends", rows, False) for series, rows in settings.items()
    ]
    return found


def _flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            rows.append((f"{prefix}{key}", ", ".join(map(str, value))))
        elif value is not None:
            rows.append((f"{prefix}{key}", str(value)))
    return rows


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("tare.report", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=False,
    )


def _file(name: str) -> str:
    return resources.files("tare.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """Vega and our few lines, as one module: its names must not meet a classic script's."""
    # A closing tag in one of its strings would end the element; `<\/` is the same to JavaScript.
    bundle = str(vl_convert.javascript_bundle(_file("interactive.js")))
    return re.sub("</(?=script)", r"<\\/", bundle, flags=re.IGNORECASE)


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
