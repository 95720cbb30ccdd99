"""Try repeated sessions on runs whose truth is known, from pilot blocks to verdicts.

As `simulate`, with the very functions that decide how many sessions a block holds and that bring
them to one value: three pilot blocks, then the numbers that those ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tare.stats.compare import Ratio, paired_ratio
from tare.stats.proportion import Proportion, proportion
from tare.stats.repetition import GUESS, PILOT_BLOCKS, Blocks, Spread, allot, even, spread
from tare.stats.simulate import Population, found_different, holds

_COSTS = {"baseline": 0.1, "cheap": 0.2}
"""Seconds of a session; the third cell's, a guest's, is never repeated."""
_FIXED_S = 8.0
_PAIRS = (("cheap", "baseline"), ("guest", "baseline"))
_MOST = 8


@dataclass(frozen=True)
class Tried:
    """What came of many runs."""

    false_positives: Proportion
    """Families with a verdict of *slower* or *faster*, where nothing differs."""
    covered: Proportion
    """Intervals of the repeated comparison that hold the effect."""
    sessions: float
    """Mean number that the pilot blocks asked for, of the repeated comparison."""


def repeated_runs(
    sessions: Population,
    blocks: int,
    *,
    effect: float = 1.0,
    setup_spread: float = 0.01,
    failing: float = 0.0,
    runs: int = 1000,
    alpha: float = 0.05,
    seed: int = 1,
) -> Tried:
    """Draw whole runs of a baseline, a cheap cell and one of a guest, and judge them.

    Args:
        sessions: of every cell.
        blocks: of each run, pilot included.
        effect: factor put upon both cells that are compared with the baseline.
        setup_spread: standard deviation of the logarithm from one setting up to the next.
        failing: share of the sessions that fail.
        runs: how many.
        alpha: nominal family-wise rate.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    false, covered, asked = 0, 0, 0
    for _ in range(runs):
        drawn: dict[str, list[list[float]]] = {cell: [] for cell in (*_COSTS, "guest")}
        numbers = _numbers(dict.fromkeys(_PAIRS, GUESS))
        for block, weather in enumerate(sessions.draw_blocks((blocks,), rng)):
            if block == PILOT_BLOCKS:
                seen = {(a, b): spread(drawn[a], drawn[b]) or GUESS for a, b in _PAIRS}
                numbers = _numbers(seen)
            for cell, found in drawn.items():
                start = weather + setup_spread * rng.standard_normal()
                values = sessions.draw(np.full(numbers.get(cell, 1), start), rng)
                kept = values[rng.random(values.size) >= failing]
                found.append(list(kept * (1.0 if cell == "baseline" else effect)))
        family = {f"{a} over {b}": _ratio(drawn[a], drawn[b], 1.0 - alpha) for a, b in _PAIRS}
        false += found_different(family, alpha)
        covered += holds(family["cheap over baseline"].ratio, effect)
        asked += numbers["cheap"]
    return Tried(proportion(false, runs), proportion(covered, runs), asked / runs)


def _ratio(a: Blocks, b: Blocks, confidence: float) -> Ratio:
    one, other = even(a, b)
    return paired_ratio(one, other, confidence)


def _numbers(spreads: Mapping[tuple[str, str], Spread]) -> dict[str, int]:
    return allot(_COSTS, _FIXED_S, spreads, most=_MOST)
