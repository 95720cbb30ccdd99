"""When to stop adding blocks: by the width of the intervals, never by a p-value.

Looking at p after every block and stopping at the first small one makes false findings certain in
the end. The width carries no news of the effect's sign, so stopping on it leaves the test nearly at
its level (Chow & Robbins 1965, Ann. Math. Statist. 36:457; a minimum number of blocks bounds what
is left of the optimism).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What the runner does next."""

    CONTINUE = "continue"
    STOP = "stop"
    CAP_REACHED = "cap reached"


@dataclass(frozen=True)
class Decision:
    """Whether another block is run, and why."""

    action: Action
    """What to do. CAP_REACHED ends the run with the wide comparisons inconclusive in width."""
    projected_blocks: int | None
    """Blocks after which the widest should meet the target, if its spread stays as it is."""
    wide: tuple[str, ...]
    """All comparisons above the target, or without interval."""


def decide(
    half_widths_percent: Mapping[str, float | None],
    *,
    blocks: int,
    min_blocks: int,
    max_blocks: int,
    target_percent: float | None,
) -> Decision:
    """Apply the declared stopping rule after a complete block.

    Args:
        half_widths_percent: comparison -> half-width of its interval in percent, None (or NaN)
            where there is no interval yet.
        blocks: complete blocks so far.
        min_blocks: never stop before.
        max_blocks: never run more.
        target_percent: stop once every half-width is at most this; None runs to `max_blocks`.

    Raises:
        ValueError: bounds that contradict each other, or a target that is not positive.
    """
    if not 1 <= min_blocks <= max_blocks:
        raise ValueError(f"blocks need 1 <= min <= max, but min {min_blocks}, max {max_blocks}")
    if target_percent is not None and not target_percent > 0.0:
        raise ValueError(f"the target half-width must be positive, but is {target_percent} %")
    if target_percent is None:
        action = Action.STOP if blocks >= max_blocks else Action.CONTINUE
        return Decision(action, max_blocks, ())
    widths = {
        name: math.inf if width is None or math.isnan(width) else width
        for name, width in half_widths_percent.items()
    }
    wide = tuple(name for name, width in widths.items() if width > target_percent)
    widest = max(widths.values(), default=0.0)
    projected = None
    if widest < math.inf:
        projected = max(min_blocks, _project(blocks, widest, target_percent))
    if blocks >= min_blocks and not wide:
        action = Action.STOP
    elif blocks >= max_blocks:
        action = Action.CAP_REACHED
    else:
        action = Action.CONTINUE
    return Decision(action, projected, wide)


def _project(blocks: int, width: float, target: float) -> int:
    """Half-widths on the log scale shrink as one over the root of the number of blocks."""
    shrink = math.log1p(width / 100.0) / math.log1p(target / 100.0)
    return max(blocks, math.ceil(blocks * shrink * shrink))
