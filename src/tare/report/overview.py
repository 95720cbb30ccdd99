"""One page over the parts of a suite: all answers, and the way to each part's own report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tare.analysis import Analysis, Question
from tare.report import figures, page, remarks, tables, wording
from tare.report.headline import headline, over_parts
from tare.suite import SuiteResult


def render(suite: SuiteResult, parts: Mapping[str, Analysis], way: str = "") -> str:
    """Draw the page.

    Args:
        suite: the result.
        parts: name -> analysis of each part, in order.
        way: from the page's folder to the result's, as an address that ends with a slash.

    Returns:
        HTML without scripts.
    """
    groups = [
        replace(group, heading=f"{name}: {group.heading}" if group.heading else name)
        for name, analysis in parts.items()
        for group in figures.grouped(analysis, wording.names_of(analysis), _judged(analysis))
    ]
    context = {
        "title": suite.title,
        "headline": over_parts(parts),
        "figure": figures.picture(
            groups,
            "Ratios to the baseline of each part, log scale: geometric means over blocks with 95 %"
            " intervals; the band is the part's margin of equivalence.",
        ),
        "description": suite.description,
        "absent": suite.absent,
        "parts": [_part(name, analysis) for name, analysis in parts.items()],
        "folder": suite.folder.resolve().name,
        "way": way,
    }
    return page.drawn("suite.html.j2", context)


def _judged(analysis: Analysis) -> list[Question]:
    return [question for question in analysis.questions if question.judgement is not None]


def _part(name: str, analysis: Analysis) -> dict[str, Any]:
    names = wording.names_of(analysis)
    return {
        "name": name,
        "title": analysis.experiment.title,
        "headline": headline(analysis, names),
        "when": page.when(analysis),
        "outcome": remarks.outcome(analysis),
        "provisional": analysis.complete_blocks < analysis.plan.min_blocks,
        "cautions": remarks.cautions(analysis),
        "failed": len(analysis.failures),
        "tried": len(analysis.trials),
        "reading": page.reading(analysis),
        "conditions": page.conditions(analysis),
        "table": tables.effects(analysis, names, analysis.questions),
    }
