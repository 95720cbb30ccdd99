"""One page over the parts of a suite: each part's answers, and the way to its own report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tare
from tare.analysis import Analysis
from tare.report import page, remarks, tables, wording
from tare.report.figures.effects import effects
from tare.suite import SuiteResult

__all__ = ["render"]


def render(suite: SuiteResult, parts: Mapping[str, Analysis]) -> str:
    """Draw the page.

    Args:
        suite: the result.
        parts: name -> analysis of each part, in order.

    Returns:
        HTML without scripts.
    """
    context = {
        "version": tare.__version__,
        "style": page.style(),
        "title": suite.title,
        "description": suite.description,
        "absent": suite.absent,
        "parts": [_part(name, analysis) for name, analysis in parts.items()],
        "folder": suite.folder.name,
    }
    return page.environment().get_template("suite.html.j2").render(context)


def _part(name: str, analysis: Analysis) -> dict[str, Any]:
    names = wording.names_of(analysis)
    return {
        "name": name,
        "title": analysis.experiment.title,
        "when": page.when(analysis),
        "outcome": remarks.outcome(analysis),
        "provisional": analysis.complete_blocks < analysis.plan.min_blocks,
        "cautions": remarks.busy(analysis),
        "failed": len(analysis.failures),
        "tried": len(analysis.trials),
        "reading": page.reading(analysis),
        "conditions": page.conditions(analysis),
        "figure": effects(analysis, names, name),
        "table": tables.effects(analysis, names, analysis.questions),
    }
