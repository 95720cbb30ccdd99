"""Try the method on sessions whose truth is known.

The very functions that judge real results are run on drawn sessions: how often do they find a
difference between two cells that are the same, and how often does the interval hold the effect that
was put in? All draws are seeded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tare.stats.arrays import FloatArray
from tare.stats.compare import Ratio, paired_ratio
from tare.stats.interval import Interval, Method
from tare.stats.proportion import Proportion, proportion
from tare.stats.stopping import Action, decide
from tare.stats.verdict import Verdict, judge_family


@dataclass(frozen=True)
class Population:
    """How the sessions of a cell vary. All spreads are standard deviations of the logarithm."""

    spread: float
    """From one fresh session to the next, within a block."""
    block_spread: float = 0.05
    """From block to block, shared by all cells of a block; pairing cancels it."""
    drift_per_block: float = 0.0
    """Trend of the logarithm from block to block, shared likewise."""
    mode_share: float = 0.0
    """Share of the sessions that start in the slow mode, 0 to 1."""
    mode_ratio: float = 1.0
    """How many times slower the slow mode is."""

    @property
    def log_mean(self) -> float:
        """Expectation of the logarithm of a session, without drift."""
        return self.mode_share * math.log(self.mode_ratio)

    def draw(self, blocks: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one session a block.

        Args:
            blocks: what the cells of a block share, on the log scale, from `draw_blocks`.
            rng: source of the draws.

        Returns:
            Shape as `blocks`, without unit, around 1.
        """
        slow = rng.random(blocks.shape) < self.mode_share
        logs = blocks + self.spread * rng.standard_normal(blocks.shape)
        return np.exp(logs + slow * math.log(self.mode_ratio))

    def draw_blocks(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw what the cells of a block share, on the log scale; the last axis is blocks."""
        drift = self.drift_per_block * np.arange(shape[-1])
        return drift + self.block_spread * rng.standard_normal(shape)


NORMAL = Population(spread=0.03)
"""One mode, 3 % from session to session."""
BIMODAL = Population(spread=0.02, mode_share=0.5, mode_ratio=58 / 40)
"""Two modes 45 % apart, equally often, as Fast DDS 2.9.1 was seen to start."""
RARE_MODE = Population(spread=0.02, mode_share=0.1, mode_ratio=58 / 40)
"""The same, one session in ten in the slow mode."""


def false_positive_rate(
    sessions: Population,
    blocks: int,
    *,
    families: int = 10_000,
    comparisons: int = 1,
    alpha: float = 0.05,
    method: Method = Method.SIGN_FLIP,
    seed: int = 1,
) -> Proportion:
    """Count families of A/A comparisons with a verdict of *slower* or *faster*, which is false.

    Args:
        sessions: both cells of each comparison.
        blocks: blocks of each comparison.
        families: how many families; with one comparison a family, the number of comparisons.
        comparisons: comparisons in each family, each of its own pair of cells, all in the same
            blocks, judged together with Holm's adjustment.
        alpha: nominal family-wise rate.
        method: of the intervals.
        seed: of the draws.

    Returns:
        False families of all; its `upper_bound` is what a claim is held against.
    """
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(families):
        shared = np.broadcast_to(sessions.draw_blocks((blocks,), rng), (comparisons, blocks))
        a, b = sessions.draw(shared, rng), sessions.draw(shared, rng)
        family = {str(i): paired_ratio(a[i], b[i], 1.0 - alpha, method) for i in range(comparisons)}
        found += found_different(family, alpha)
    return proportion(found, families)


def found_different(family: Mapping[str, Ratio], alpha: float) -> bool:
    """Whether a family of comparisons has a verdict of *slower* or *faster*."""
    verdicts = {judged.verdict for judged in judge_family(family, alpha=alpha).values()}
    return not verdicts.isdisjoint({Verdict.SLOWER, Verdict.FASTER})


def holds(found: Interval, truth: float) -> bool:
    """Whether there is an interval, and the truth lies in it."""
    return found.resolved and not found.excludes(truth)


def coverage(
    sessions: Population,
    blocks: int,
    *,
    effect: float,
    baseline: Population | None = None,
    confidence: float = 0.95,
    method: Method = Method.SIGN_FLIP,
    repeats: int = 4000,
    seed: int = 1,
) -> Proportion:
    """Count how often the interval holds an injected effect.

    The truth is the ratio of the cells' geometric means, mix of modes included.

    Args:
        sessions: the cell in question, before the effect.
        blocks: blocks of each comparison.
        effect: factor put upon the cell in question: 1.05 is 5 % slower.
        baseline: the cell that it is compared with; the same kind of sessions where not given.
        confidence: nominal coverage.
        method: of the interval.
        repeats: comparisons to draw.
        seed: of the draws.

    Returns:
        Intervals that hold the truth, of all.
    """
    baseline = sessions if baseline is None else baseline
    rng = np.random.default_rng(seed)
    truth = effect * math.exp(sessions.log_mean - baseline.log_mean)
    shared = sessions.draw_blocks((repeats, blocks), rng)
    a, b = effect * sessions.draw(shared, rng), baseline.draw(shared, rng)
    covered = sum(
        holds(paired_ratio(cell, other, confidence, method).ratio, truth)
        for cell, other in zip(a, b, strict=True)
    )
    return proportion(covered, repeats)


def coverage_when_stopped(
    sessions: Population,
    *,
    target_percent: float = 3.0,
    min_blocks: int = 8,
    max_blocks: int = 30,
    confidence: float = 0.95,
    repeats: int = 1000,
    seed: int = 1,
) -> Proportion:
    """Count how often the interval holds the truth where its own width decided when to stop.

    Two cells that are the same are compared, so that what is not covered is a false positive too.

    Args:
        sessions: both cells.
        target_percent: half-width to stop at.
        min_blocks: see `stopping.decide`.
        max_blocks: see `stopping.decide`.
        confidence: nominal coverage.
        repeats: comparisons to draw.
        seed: of the draws.

    Returns:
        Intervals that hold 1, of all.
    """
    rng = np.random.default_rng(seed)
    covered = 0
    for _ in range(repeats):
        shared = sessions.draw_blocks((max_blocks,), rng)
        a, b = sessions.draw(shared, rng), sessions.draw(shared, rng)
        for blocks in range(min_blocks, max_blocks + 1):
            comparison = paired_ratio(a[:blocks], b[:blocks], confidence)
            decision = decide(
                {"a/a": comparison.half_width_percent},
                blocks=blocks,
                min_blocks=min_blocks,
                max_blocks=max_blocks,
                target_percent=target_percent,
            )
            if decision.action is not Action.CONTINUE:
                break
        covered += not comparison.ratio.excludes(1.0)
    return proportion(covered, repeats)
