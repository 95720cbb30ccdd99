"""Comparisons: verdicts, other statistics, and the paper beside this run."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis import Analysis, Question
from tare.analysis.questions import DESCRIPTIVE
from tare.report import numbers
from tare.report.tables.table import DASH, UNRESOLVED, Table
from tare.report.wording import Names, ends, interval_text, verdict_of
from tare.stats import Interval


def effects(analysis: Analysis, names: Names, questions: Sequence[Question]) -> Table | None:
    """Every comparison: the ratio, and both ends of it."""
    statistic, unit = analysis.experiment.statistic, analysis.statistic.unit
    rows = []
    for question in questions:
        place, judged = names.place(question.cell), question.judgement
        here, baseline, difference = ends(question.ratio, unit)
        rows.append(
            (
                place.environment,
                place.rest,
                verdict_of(question),
                _ratio(question.ratio.ratio),
                here.bare,
                baseline.bare,
                str(difference),
                DASH if judged is None or judged.adjusted_p is None else f"{judged.adjusted_p:.2g}",
                _blocks(question),
            )
        )
    return Table.of(
        f"Ratio of {statistic}, paired by block, geometric mean [95 % interval]",
        (
            names.heading,
            names.lead,
            "verdict",
            f"ratio of {statistic}",
            "here",
            "baseline",
            "difference",
            "adjusted p",
            "blocks",
        ),
        rows,
        heads=3,
        note="Adjusted p: sign-flip test, Holm over the family. Descriptive comparisons stand"
        " outside of the family: their intervals are each 95 % by themselves.",
    )


def other_statistics(analysis: Analysis, names: Names) -> Table | None:
    """The same comparisons by other summaries of a session: descriptive."""
    if not analysis.response_times:
        return _other_values(analysis, names)
    others = [name for name in DESCRIPTIVE if name != analysis.experiment.statistic]
    rows = []
    for question in analysis.questions:
        place = names.place(question.cell)
        columns: list[str] = []
        for name in others:
            ratio = question.others[name]
            views = (analysis.view(cell.id) for cell in (question.cell, question.against))
            if any(view.unresolved.get(name) for view in views):
                columns += [UNRESOLVED, DASH, DASH]
                continue
            columns += [_ratio(ratio.ratio), *(end.bare for end in ends(ratio, "ns")[:2])]
        rows.append((place.environment, place.rest, *columns))
    return Table.of(
        f"Ratios by other statistics than {analysis.experiment.statistic} [95 % interval]",
        (
            names.heading,
            names.lead,
            *(column for name in others for column in (f"ratio of {name}", "here", "baseline")),
        ),
        rows,
        note="Descriptive: each interval is 95 % by itself, and none carries a verdict.",
    )


def _other_values(analysis: Analysis, names: Names) -> Table | None:
    """A row a statistic: a workload of values may have a dozen."""
    rows = []
    for question in analysis.questions:
        place = names.place(question.cell)
        for name, ratio in question.others.items():
            if name == analysis.experiment.statistic or ratio.ratio.estimate is None:
                continue
            rows.append(
                (
                    place.environment,
                    place.rest,
                    name.replace("_", " "),
                    _ratio(ratio.ratio),
                    *(end.bare for end in ends(ratio, analysis.statistics[name].unit)[:2]),
                )
            )
    return Table.of(
        "Ratios of everything else that was measured [95 % interval]",
        (names.heading, names.lead, "statistic", "ratio", "here", "baseline"),
        rows,
        heads=3,
        note="Descriptive: each interval is 95 % by itself, and none carries a verdict.",
    )


def paper(analysis: Analysis, names: Names, most: int | None = None) -> Table | None:
    """The published figures, each beside ours: of more than `most` cells the two ends."""
    rows = []
    for beside in analysis.beside:
        unit = beside.figure.unit.replace("us", "\N{MICRO SIGN}s")
        shown, head = beside.ours, ""
        if most is not None and len(shown) > most:
            least, *_, greatest = sorted(shown, key=lambda one: one.estimate)
            shown, head = (least, greatest), f"{len(shown)} cells, least and most:\n"
        ours = head + "\n".join(
            f"{names.place(one.cell).full}: "
            f"{numbers.fixed(one.estimate, one.low, one.high, unit, most=3)}"
            for one in shown
        )
        figure = beside.figure
        published = numbers.micro(figure.text)
        rows.append((figure.measured, figure.where, published, ours, beside.what))
    return Table.of(
        "The paper's figures, and this run's",
        ("the paper measured", "where", "published", "here [95 % interval]", "what ours is"),
        rows,
        heads=3,
        words=(4,),
    )


def _ratio(interval: Interval) -> str:
    value = interval_text(interval, "ratio")
    return DASH if interval.estimate is None else f"{value.number} {value.interval}"


def _blocks(question: Question) -> str:
    dropped = question.ratio.n_dropped
    return f"{question.ratio.n_used}" + (f" ({dropped} incomplete)" if dropped else "")
