"""Ratios: the picture of all answers, the A/A pairs, and the paper beside this run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tare.analysis import Analysis, Question
from tare.report import numbers
from tare.report.figures.axis import plain
from tare.report.figures.figure import Figure, Group, Strip, interval, of, strips
from tare.report.wording import Names, absolute, equal, ratio_text, style_of, verdict_of


def answers(analysis: Analysis, names: Names) -> Figure | None:
    """Every comparison, judged or descriptive."""
    margin = analysis.experiment.margin_share
    return picture(
        grouped(analysis, names, analysis.questions),
        f"Times {equal(analysis.statistic.unit)} as the baseline, log scale: geometric means over"
        f" blocks with 95 % intervals; the band is the margin of ±{100 * margin:g} %.",
    )


def pairs(analysis: Analysis, names: Names) -> Figure | None:
    """The same cell twice: what this machine's noise alone does."""
    rows = [
        Strip(names.place(q.cell).full, of("descriptive", q.ratio.ratio), _number(q))
        for q in analysis.pairs
        if q.ratio.ratio.estimate is not None
    ]
    if not rows:
        return None
    margin = analysis.experiment.margin_share
    return Figure(
        "pairs",
        "The same cell twice",
        "How far the two arms stray from 1 is what this machine's noise alone does, log scale; the"
        f" band is the margin of ±{100 * margin:g} %.",
        groups=strips([("", rows)], plain, band=_band(margin)),
        rule=1.0,
    )


def grouped(analysis: Analysis, names: Names, questions: Iterable[Question]) -> list[Group]:
    """The strips of a picture, by what the baseline's factor says of them."""
    found: dict[str, list[Strip]] = {}
    for question in questions:
        place, style = names.place(question.cell), style_of(question, analysis.statistic)
        tip = absolute(question, analysis.statistic.unit)
        row = Strip(place.rest, of(style, question.ratio.ratio, tip), _number(question))
        found.setdefault(place.environment, []).append(row)
    groups = list(found.items())
    if all(len(rows) == 1 for _, rows in groups):  # what tells them apart is their heading
        groups = [("", [replace(rows[0], label=heading) for heading, rows in groups])]
    return list(strips(groups, plain, band=_band(analysis.experiment.margin_share)))


def picture(groups: Sequence[Group], caption: str) -> Figure | None:
    """Draw strips of ratios: 1 is marked in each."""
    styles = {mark.style for group in groups for row in group.rows for mark in row.marks}
    if not styles:
        return None
    return Figure(
        "answers",
        "All answers at a glance",
        caption,
        groups=tuple(groups),
        legend=tuple((style, style.replace("-", " ")) for style in _ORDER if style in styles),
        rule=1.0,
    )


def _band(margin: float) -> tuple[float, float]:
    """From as far below 1 to as far above."""
    return 1 / (1 + margin), 1 + margin


_ORDER = (
    *("slower", "more", "less-is-worse", "faster", "less", "more-is-better"),
    *("equivalent", "no-worse", "inconclusive", "below-instrument", "descriptive"),
)


def _number(question: Question) -> str:
    found = question.ratio.ratio
    return verdict_of(question) if found.estimate is None else ratio_text(found)


def paper(analysis: Analysis, names: Names) -> Figure | None:
    """Published percentages with this run's beside them."""
    groups: dict[str, list[Strip]] = {}
    for beside in analysis.beside:
        figure = beside.figure
        if figure.unit != "%":
            continue
        low, high = (figure.value or end for end in (figure.low, figure.high))
        middle = (low * high) ** 0.5 if low is not None and high is not None else low or high
        rows = [Strip("the paper", interval("paper", middle, low, high), figure.text)]
        rows += [
            Strip(
                names.place(ours.cell).full,
                # The axis is logarithmic: what is not above zero stands there as a number.
                interval("c0", ours.estimate, ours.low, ours.high)
                if min(ours.estimate, ours.low or ours.estimate) > 0
                else (),
                str(numbers.percent(ours.estimate, ours.low, ours.high)),
            )
            for ours in beside.ours
        ]
        groups[figure.measured] = rows
    if not groups:
        return None
    return Figure(
        "paper",
        "The paper's shares, and this run's",
        "Percent, log scale. The paper's figures are a line where it gives a range, a point where"
        " it gives one number or a bound; this run's have 95 % intervals. Values at or below zero"
        " cannot be drawn on this axis.",
        groups=strips(list(groups.items()), plain),
        legend=(("c0", "this run"), ("paper", "the paper")),
    )
