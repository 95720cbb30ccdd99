"""The one sentence that answers: what was found, and what more it would take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tare.analysis import Analysis, CellView, Question
from tare.report import gate
from tare.report.numbers import quantity
from tare.report.wording import Names, interval_text, names_of, verdict_of
from tare.stats import Verdict

_MOST_GROUPS = 4
"""More are counted together."""
_MOST_NAMED = 2
"""Of a verdict that few have, these are named."""
_UNITED = (
    *(Verdict.EQUIVALENT, Verdict.NO_WORSE, Verdict.INCONCLUSIVE),
    *(Verdict.BELOW_INSTRUMENT, Verdict.NOT_MEASURED),
)
"""Verdicts that no size goes with."""


def headline(analysis: Analysis, names: Names) -> str:
    """Answer the experiment's question as far as it is answered."""
    judged = [q for q in analysis.questions if q.judgement is not None]
    if not analysis.questions:
        return " ".join(_value(analysis, view, names) for view in analysis.cells[:_MOST_GROUPS])
    if not judged and analysis.gating is not None:
        said = gate.verdict(analysis)
        return f"{said[0].upper()}{said[1:]}."
    if not judged:
        return "Nothing is judged: every comparison is outside of the family."
    groups: dict[str, list[Question]] = {}
    for question in judged:
        groups.setdefault(names.main(question.cell)[1], []).append(question)
    if len(groups) > _MOST_GROUPS:
        said = f"{_sentence(judged, names)}."
    else:
        said = " ".join(
            f"{where[0].upper()}{where[1:]}: {_sentence(found, names)}."
            for where, found in groups.items()
        )
    so_far = _provisional(analysis)
    return f"{so_far.capitalize()}. {said}" if so_far else said


def _provisional(analysis: Analysis) -> str:
    """What an answer of too few blocks is; empty where there are enough."""
    done, least = analysis.complete_blocks, analysis.plan.min_blocks
    return "" if done >= least else f"provisional, {done} of at least {least} blocks"


def _value(analysis: Analysis, view: CellView, names: Names) -> str:
    """What a cell takes, where nothing stands beside it."""
    found = view.estimates[analysis.experiment.statistic]
    value = quantity(analysis.statistic.unit, found.value, found.low, found.high)
    again = " again" if view.cell.replica > 1 else ""
    if found.value is None:
        return f"{names.subject(view.cell)} was not measured{again}{names.here(view.cell)}."
    verb = "takes" if analysis.statistic.unit == "ns" else "reaches"
    return f"{names.subject(view.cell)} {verb}{again}{names.here(view.cell)} {value}."


def over_parts(parts: Mapping[str, Analysis]) -> str:
    """Answer a suite's question, part by part."""
    said = []
    for name, analysis in parts.items():
        judged = [q for q in analysis.questions if q.judgement is not None]
        found = _sentence(judged, names_of(analysis)) if judged else "nothing is judged"
        so_far = _provisional(analysis)
        said.append(f"{name[0].upper()}{name[1:]}{so_far and f' ({so_far})'}: {found}.")
    return " ".join(said)


def _sentence(questions: Sequence[Question], names: Names) -> str:
    by_verdict: dict[str, list[Question]] = {}
    for question in questions:
        by_verdict.setdefault(verdict_of(question), []).append(question)
    ordered = sorted(by_verdict.items(), key=lambda item: -len(item[1]))
    return "; ".join(
        f"{_which(found, len(questions), names, named=place > 0)}{verdict}{_size(verdict, found)}"
        for place, (verdict, found) in enumerate(ordered)
    )


def _which(found: Sequence[Question], total: int, names: Names, *, named: bool) -> str:
    if total == 1:
        return ""
    if len(found) == total:
        return f"{'both' if total == 2 else f'all {total}'} "
    called = [names.place(question.cell).rest for question in found]
    if named and len(found) <= _MOST_NAMED and len(set(called)) == len(called):
        return f"{' and '.join(called)} "
    return f"{len(found)} of {total} "


def _size(verdict: str, found: Iterable[Question]) -> str:
    """How much, of what was found different; how much more it takes, of what is inconclusive."""
    if verdict == Verdict.INCONCLUSIVE:
        more = [question.blocks_more for question in found]
        known = [number for number in more if number is not None]
        if not known or len(known) < len(more):
            return ", more data are needed"
        return f", about {max(known)} block{'' if max(known) == 1 else 's'} more would tell"
    if verdict in _UNITED:
        return ""
    ratios = sorted(
        (q.ratio.ratio for q in found if q.ratio.ratio.estimate is not None),
        key=lambda ratio: ratio.estimate or 0.0,
    )
    least, most = (interval_text(ratio, "ratio") for ratio in (ratios[0], ratios[-1]))
    return f", {least.bare if least.number == most.number else f'{least.number} to {most.bare}'}"
