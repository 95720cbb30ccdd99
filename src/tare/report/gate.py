"""What a gate says: what it can tell before it runs, what it found, and that for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from tare.analysis import Analysis, Answer
from tare.analysis.gate import reaches
from tare.errors import Exit
from tare.plan import Plan
from tare.report.markup import escaped, table
from tare.report.tables.table import DASH
from tare.stats import Verdict
from tare.units import minutes

_POWER = "80 times in 100"


def before(plan: Plan) -> list[str]:
    """Say by which rule a plan's gate decides, and what it can tell in which time; [] without."""
    gate, asked = plan.gate, plan.experiment.gate
    if gate is None or asked is None:
        return []
    lines = [
        f"gate: exit code {Exit.FAILED:d} slower, {Exit.OK:d} no worse ({_declared(gate.margin)}"
        f" slower is ruled out), {Exit.INCONCLUSIVE:d} undecided after {gate.looks.most} blocks;"
        f" equal versions fail at most {100 * asked.significance_share:g} times in 100"
    ]
    for reach in reaches(plan):
        told = [
            f"{what} if the ratio spreads by at most {_percent(spread)} from block to block"
            for what, spread in (
                (f"+{_declared(asked.finds_share)} is found {_POWER}", reach.finds),
                ("an equal version passes as often", reach.passes),
            )
            if spread is not None
        ]
        within = f"in {reach.blocks} blocks ({minutes(reach.seconds)})"
        lines.append(f"{within}: {'; '.join(told) or 'too few to tell anything'}")
    return lines


def after(analysis: Analysis) -> list[str]:
    """Say what a gate found, a line a comparison; [] where the run was none."""
    gating = analysis.gating
    if gating is None:
        return []
    lines = [f"gate: {verdict(analysis)}", *(_line(analysis, one) for one in gating.answers)]
    return [*lines, *(f"{name}: not compared" for name in analysis.plan.not_judged)]


def verdict(analysis: Analysis) -> str:
    """The gate's answer in a few words."""
    gating, blocks = analysis.gating, analysis.complete_blocks
    assert gating is not None
    said = {
        Verdict.SLOWER: "slower",
        Verdict.NO_WORSE: f"no worse: {_declared(gating.gate.margin)} slower is ruled out",
    }.get(gating.verdict, "undecided")
    if gating.verdict is Verdict.NO_WORSE and analysis.plan.not_judged:
        said = f"undecided: a part could not be compared here, the rest is {said}"
    return f"{said}, after {blocks} of at most {gating.gate.looks.most} blocks"


def _line(analysis: Analysis, one: Answer) -> str:
    found, asked = one.found, analysis.experiment.gate
    assert asked is not None
    parts = [f"{one.name}: {_word(found.verdict)}"]
    parts += [one.below] if one.below else []
    if found.ratio is not None:
        parts.append(f"ratio {found.ratio:.3f}{_bounds(one)} ({found.blocks} blocks)")
    if found.spread is not None:
        parts.append(f"it spreads by {_percent(found.spread)} from block to block")
    if found.verdict is Verdict.INCONCLUSIVE and one.finds is not None:
        parts.append(
            f"all blocks find +{_percent(one.finds)} {_POWER}; more of them, several sessions in"
            " each, or a larger margin would decide"
        )
    elif one.found_by is not None:
        a_block = analysis.plan.block_seconds()
        within = f"{one.found_by} blocks ({minutes(one.found_by * a_block)})"
        parts.append(f"+{_declared(asked.finds_share)} would be found {_POWER} within {within}")
    return "; ".join(parts)


def _bounds(one: Answer) -> str:
    ends = (("at least", one.found.at_least), ("at most", one.found.at_most))
    known = [f"{word} {end:.3f}" for word, end in ends if end is not None]
    return f", {', '.join(known)}" if known else ""


def _word(verdict: Verdict) -> str:
    return "undecided" if verdict is Verdict.INCONCLUSIVE else str(verdict)


def code(analysis: Analysis) -> Exit:
    """The exit code of a gate. What could not be compared cannot pass."""
    gating = analysis.gating
    assert gating is not None
    if gating.verdict is Verdict.SLOWER:
        return Exit.FAILED
    if analysis.failures:
        return Exit.TRIALS_FAILED
    passes = gating.verdict is Verdict.NO_WORSE and not analysis.plan.not_judged
    return Exit.OK if passes else Exit.INCONCLUSIVE


def markdown(analysis: Analysis) -> str:
    """A summary for a pull request."""
    gating = analysis.gating
    assert gating is not None
    return "\n".join(_markdown(analysis, gating.answers)) + "\n"


def _markdown(analysis: Analysis, answers: tuple[Answer, ...]) -> Iterator[str]:
    asked, statistic = analysis.experiment.gate, analysis.experiment.statistic
    assert asked is not None
    yield f"### {escaped(analysis.experiment.title)}"
    yield ""
    yield f"**{verdict(analysis)}**"
    yield ""
    columns = (escaped(statistic), *_COLUMNS)
    yield from table(columns, map(_cells, answers), left=len(columns))
    if analysis.failures:
        yield ""
        yield f"{len(analysis.failures)} of {len(analysis.trials)} trials failed."
    if missing := analysis.plan.not_judged:
        yield ""
        yield f"Not compared: {', '.join(map(escaped, missing))}."
        yield from (f"- {escaped(cut)}" for cut in analysis.plan.cuts)
    yield ""
    yield (
        f"Old and new interleaved in one run. Equal versions are called slower at most"
        f" {100 * asked.significance_share:g} times in 100, over all looks and comparisons; bounds"
        " hold as often each. *Spread*: of the ratio from block to block. *Finds*: the slow-down"
        f" that all blocks would have found {_POWER}, at a spread as large as it may well be. What"
        " other builds, layouts or machines would show is not in it."
    )


_COLUMNS = ("verdict", "ratio", "at least", "at most", "blocks", "spread", "finds")


def _cells(one: Answer) -> tuple[str, ...]:
    found = one.found
    numbers = (found.ratio, found.at_least, found.at_most)
    return (
        escaped(one.name),
        _word(found.verdict),
        *(DASH if number is None else f"{number:.3f}" for number in numbers),
        str(found.blocks),
        *(DASH if share is None else _percent(share) for share in (found.spread, one.finds)),
    )


def _percent(share: float) -> str:
    """To two digits; 150 %, and not 1.5e+02."""
    return f"{float(f'{100 * share:.2g}'):g} %"


def _declared(share: float) -> str:
    """As it was declared: of 12.5 % nobody ruled out 12."""
    return f"{100 * share:g} %"
