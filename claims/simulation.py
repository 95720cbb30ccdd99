"""A3 and A4: the statistics, on sessions whose truth is known, simulated and real."""

from __future__ import annotations

from claims.checking import Found, Workshop, shown
from claims.experiments import run_shipped
from claims.rows import bounded_rate
from tare.stats.bounds import Kept
from tare.stats.simulate import BIMODAL, NORMAL, coverage, false_positive_rate
from tare.stats.verdict import Verdict

_A_A, _INJECTED = "a-a.yaml", "injected-effect.yaml"
_ALPHA = 0.05
_BLOCKS = (8, 12, 20)
_EFFECTS = (1.02, 1.05, 1.10)
# As measured: UDP and Cyclone restarts differ by 1 to 4 %; Fast DDS starts in one of two modes.
_SETTINGS = {"normal": NORMAL, "bimodal": BIMODAL}


def false_positives(workshop: Workshop) -> Found:
    """A3: A/A comparisons of simulated sessions, by their upper bounds."""
    bounds = []
    for name, sessions in _SETTINGS.items():
        for blocks in _BLOCKS:
            workshop.say(f"10 000 A/A comparisons, {name} sessions, {blocks} blocks")
            found = false_positive_rate(sessions, blocks, families=10_000, alpha=_ALPHA)
            bounds.append(bounded_rate(f"{name}, {blocks} blocks", found, None, _ALPHA + 0.01))
    worst = max(bounds, key=lambda bound: bound.found.high or 0.0)
    figure = f"worst upper bound {worst.found.high:.4f} ({worst.name}), nominal {_ALPHA}"
    return Found(figure, bounds=tuple(bounds))


def real_pairs(workshop: Workshop) -> Found:
    """A3: A/A pairs of real sessions, told beside."""
    real = run_shipped(workshop, _A_A).analysis.noise.false_positives
    figure = f"of {real.of} real pairs, {real.count} were found different"
    data = {"found different": real.count, "of": real.of, "upper": real.high}
    return Found(figure, {"real pairs": data})


def covered_effects(workshop: Workshop) -> Found:
    """A4: how often intervals of simulated sessions cover a known effect."""
    bounds = []
    for name, sessions in _SETTINGS.items():
        for blocks in _BLOCKS:
            for effect in _EFFECTS:
                workshop.say(f"effect {effect}, {name} sessions, {blocks} blocks")
                covered = coverage(sessions, blocks, effect=effect)
                what = f"{name}, {blocks} blocks, x {effect}"
                bounds.append(bounded_rate(what, covered, 0.93, 0.98))
    shares = [100 * (bound.found.estimate or 0.0) for bound in bounds]
    figure = f"intervals cover {min(shares):.1f} to {max(shares):.1f} times in 100"
    return Found(figure, bounds=tuple(bounds))


def injected_effect(workshop: Workshop) -> Found:
    """A4: 5 % more of real server work is found."""
    questions = run_shipped(workshop, _INJECTED).analysis.questions
    seen = bool(questions) and all(
        q.judgement is not None and q.judgement.verdict is Verdict.SLOWER for q in questions
    )
    found = ", ".join(f"{q.comparison.id} {shown(q.ratio.ratio)}" for q in questions)
    return Found(f"+5 % of work: {found}", counted=Kept.counted(seen))
