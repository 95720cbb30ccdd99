"""Try the gate on pairs of versions whose truth is known.

The very function that judges is run on drawn blocks. What differs from run to run is in them: a
version's sessions differ from restart to restart, with modes or heavy tails; the machine wanders
between any two sessions, so that what follows each other is alike; builds of one and the same
source differ, and stay as they are for the whole run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy

from tare.stats.arrays import FloatArray
from tare.stats.gating import Gate, blocks_that_tell, decide
from tare.stats.proportion import Proportion, proportion
from tare.stats.simulate import BIMODAL, NORMAL, RARE_MODE, Population
from tare.stats.verdict import Verdict


@dataclass(frozen=True)
class World:
    """How sessions of two versions vary. Spreads are standard deviations of the logarithm."""

    sessions: Population = field(default=NORMAL)
    heavy: float | None = None
    """Degrees of freedom of Student's t, from which a session's spread is drawn instead."""
    wander: float = 0.0
    """Of the machine over all sessions, one after the other; a walk that forgets one tenth of
    itself a session, so that blocks hang together."""
    builds: float = 0.0
    """From one build of a version to the next, for the whole run."""
    replicas: int = 1
    """Builds of each version."""

    def draw(self, blocks: int, effect: float, rng: np.random.Generator) -> FloatArray:
        """Log-ratios of one run, shape (blocks, replicas)."""
        shape = (blocks, self.replicas, 2)  # the last axis: the session that comes first, the other
        logs = self._walk(math.prod(shape), rng).reshape(shape)
        if self.heavy is None:
            logs = np.log(self.sessions.draw(logs, rng))
        else:
            logs = logs + self.sessions.spread * rng.standard_t(self.heavy, shape)
        new_first = rng.random(shape[:2]) < 0.5  # the order within a block is drawn
        difference = np.where(new_first, 1.0, -1.0) * (logs[..., 0] - logs[..., 1])
        between = self.builds * rng.standard_normal((self.replicas, 2))
        found: FloatArray = difference + between[:, 0] - between[:, 1] + math.log(effect)
        return found

    def spread(self) -> float:
        """Standard deviation of a block's log-ratio, from many draws; of one replica."""
        rng = np.random.default_rng(1)
        return float(np.std(self.draw(20_000, 1.0, rng)[:, 0]))

    def _walk(self, steps: int, rng: np.random.Generator) -> FloatArray:
        kept = 0.9
        pushes = math.sqrt(1 - kept**2) * rng.standard_normal(steps)
        pushes[0] = rng.standard_normal()
        found: FloatArray = self.wander * scipy.signal.lfilter([1.0], [1.0, -kept], pushes)
        return found


WORLDS = {
    "normal": World(),
    "two modes, 1 : 1": World(BIMODAL),
    "two modes, 9 : 1": World(RARE_MODE),
    "heavy tails": World(heavy=2.5),
    "wandering machine": World(wander=0.10),
}
"""As sessions were seen to vary; heavy: without a finite fourth moment."""


@dataclass(frozen=True)
class Gates:
    """What many gates said of pairs of versions."""

    slower: Proportion
    """Called slower, of all."""
    no_worse: Proportion
    """Called no worse, of all; the rest stayed undecided."""
    in_time: Proportion
    """Called slower within the blocks that the gate itself said would do, of those gates that said
    a number after their first look; of none where the effect is within the margin."""
    blocks: float
    """Mean number at which it ended."""


def gates(
    world: World,
    gate: Gate,
    *,
    effect: float = 1.0,
    runs: int = 1000,
    seed: int = 1,
) -> Gates:
    """Draw runs of two versions, and gate them.

    Args:
        world: how their sessions vary.
        gate: as declared.
        effect: the new version's factor; 1 is an equal version.
        runs: how many.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    slower = no_worse = said = in_time = blocks = 0
    for _ in range(runs):
        drawn = world.draw(gate.looks.most, effect, rng)
        ended = decide(drawn, gate, bounds=False)
        promised = None
        if effect > 1.0 + gate.margin:
            first = decide(drawn[: gate.looks.least], gate, bounds=False)
            promised = blocks_that_tell(first, effect - 1.0, gate.looks)
        slower += ended.verdict is Verdict.SLOWER
        no_worse += ended.verdict is Verdict.NO_WORSE
        blocks += ended.blocks
        if promised is not None:
            said += 1
            in_time += ended.verdict is Verdict.SLOWER and ended.blocks <= promised
    return Gates(
        proportion(slower, runs),
        proportion(no_worse, runs),
        proportion(in_time, said),
        blocks / runs,
    )
