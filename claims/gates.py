"""A12: the gate, on pairs of versions whose truth is known, simulated and real."""

from __future__ import annotations

import math

from claims.checking import Found, Workshop
from claims.experiments import run_text
from claims.rows import bounded_rate
from tare import analysis, experiment, plan
from tare.analysis.gate import reaches
from tare.stats import Verdict
from tare.stats.bounds import Kept
from tare.stats.gating import Gate, most_spread
from tare.stats.proportion import proportion, upper_bound
from tare.stats.sequential import Looks
from tare.stats.simulate_gate import WORLDS, World, gates

_ALPHA, _MARGIN, _EFFECT = 0.05, 0.03, 1.10
_ERRORS, _FINDS = 10_000, 800
_LEAST, _MOST, _MOST_MODES = 8, 30, 80
_BUILDS = World(builds=0.02, replicas=8)
_REAL_EQUAL, _REAL_SLOWER = 24, 20
_LOOP = "awk 'BEGIN {{ while (i < {}) x += i++ }}'"
_OLD, _NEW = 300_000, 333_000  # a tenth more, and what awk takes to start
_TEXT = """\
title: Is the new one slower?
workload: command
factors:
  environment: native
  command: {{old: "{}", new: "{}"}}
baseline: {{command: old}}
blocks: {{min: {}, max: {}}}
session: {{runs: 5, warmup: 1, takes: 25 ms}}
seed: {}
gate: {{}}
"""


def simulated(workshop: Workshop) -> Found:
    """Equal versions, such that are slower by the margin, and such that are 10 % slower."""
    errors, finds = [], []
    for name, world in {**WORLDS, "builds that differ": _BUILDS}.items():
        gate = _gate(_MOST)
        workshop.say(
            f"{2 * _ERRORS} gates on versions that are equal, or apart by the margin, {name}"
        )
        equal = gates(world, gate, runs=_ERRORS)
        errors.append(
            bounded_rate(f"equal versions fail, {name}", equal.slower, None, _ALPHA + 0.01)
        )
        slower = gates(world, gate, effect=1 + _MARGIN, runs=_ERRORS)
        wrong = f"versions slower by the margin pass, {name}"
        errors.append(bounded_rate(wrong, slower.no_worse, None, _ALPHA + 0.01))
        found = gates(world, _gate(_most(name)), effect=_EFFECT, runs=_FINDS)
        finds.append(bounded_rate(f"+10 % is found, {name}", found.slower, 0.80, 1.0))
        if found.in_time.of >= _FINDS / 10:  # after the first blocks, most say nothing of modes
            finds.append(bounded_rate(f"in the time said, {name}", found.in_time, 0.80, 1.0))
    worst = max(100 * (bound.found.estimate or 0.0) for bound in errors)
    least = min(100 * (bound.found.estimate or 0.0) for bound in finds)
    line = f"simulated gates err at most {worst:.1f} times in 100 at a nominal {100 * _ALPHA:g}"
    return Found(f"{line}, find +10 % at least {least:.0f} times", bounds=(*errors, *finds))


def covered(workshop: Workshop) -> Found:
    """Each world is one for which the gate says before it runs that +10 % would be found."""
    workshop.say("what the gate says before it runs")
    limits = {
        name: most_spread(_EFFECT - 1, _most(name), _gate(_most(name)).looks) for name in WORLDS
    }
    spreads = {name: math.expm1(world.spread()) for name, world in WORLDS.items()}
    told = all(spreads[name] <= (limit or 0.0) for name, limit in limits.items())
    return Found("", {"spreads": spreads, "limits": limits}, counted=Kept.counted(told))


def _most(name: str) -> int:
    """More blocks where sessions start in one of two modes, of which 30 promise nothing."""
    return _MOST_MODES if name == "two modes, 1 : 1" else _MOST


def _gate(most: int) -> Gate:
    return Gate.of(Looks(_LEAST, most, _ALPHA), _MARGIN, 1)


def real(workshop: Workshop) -> Found:
    """Runs of a command against itself, and against one that does a tenth more."""
    equal = [_gated(workshop, _OLD, number) for number in range(_REAL_EQUAL)]
    slower = [_gated(workshop, _NEW, number) for number in range(_REAL_SLOWER)]
    false = sum(one.verdict is Verdict.SLOWER for one, _ in equal)
    promised = [one for one, told in slower if told]
    found = proportion(sum(one.verdict is Verdict.SLOWER for one in promised), len(promised))
    data = {
        name: [
            {"verdict": str(one.verdict), "blocks": a.blocks, "ratio": a.ratio, "spread": a.spread}
            for one, _ in runs
            for a in (one.answers[0].found,)
        ]
        for name, runs in (("equal", equal), ("slower", slower))
    }
    line = (
        f"of {_REAL_EQUAL} real gates on equal versions {false} failed (at most"
        f" {100 * upper_bound(false, _REAL_EQUAL):.0f} in 100), of {len(promised)} on +10 % with no"
        f" more spread than it says {found.count} did"
    )
    # So few equal pairs cannot bound a rate of 5 %: what they can do is to contradict it.
    believable = proportion(false, _REAL_EQUAL).low <= _ALPHA
    bounds = (bounded_rate("real, +10 % is found", found, 0.80, 1.0),)
    return Found(line, data, bounds, Kept.counted(believable))


def _gated(workshop: Workshop, new: int, seed: int) -> tuple[analysis.Gating, bool]:
    """Run a gate to its end; and whether its spread was one for which it promises to find +10 %."""
    name = f"gate-{new}-{seed}"
    workshop.say(f"{name}: a real gate")
    text = _TEXT.format(_LOOP.format(_OLD), _LOOP.format(new), _LEAST, _MOST, seed)
    limit = reaches(plan.make(experiment.parse(text, name)))[-1].finds or 0.0
    gating = analysis.analyse(run_text(workshop, text, name)).gating
    assert gating is not None
    spread = gating.answers[0].found.spread
    return gating, spread is not None and math.expm1(spread) <= limit
