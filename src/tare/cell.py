"""One combination of levels: what a plan lays out, a workload measures, an analysis compares."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict

from tare.levels import Levels


class Cell(BaseModel):
    """One combination of levels; a replica beyond the first is the second arm of an A/A pair."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    levels: Levels
    replica: int = 1

    def without(self, *factors: str) -> tuple[tuple[str, str], ...]:
        """The levels but for some factors, as a key."""
        return self.levels.without(*factors)

    def has(self, levels: Mapping[str, str]) -> bool:
        """Whether it is at these levels."""
        return all(self.levels.get(name) == level for name, level in levels.items())


def one_word(level: str) -> str:
    """A level as a part of a cell's name: `host=all,guest=first`, `micro82.8%`."""
    return re.sub(r" (?=\w+=)", ",", level).replace(" ", "")
