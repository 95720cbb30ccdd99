"""Hashing: how long a fresh process takes for the SHA-256 of some zeros."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tare import units
from tare.cell import Cell
from tare.environments import Inside, Site
from tare.errors import TrialError
from tare.workloads import Factor, Measurement, Statistic, Watching, rows, unwatched

_FACTORS = (
    rows.environment("What hashes"),
    rows.size("amount", "1 MiB", "How much is hashed."),
    rows.PLACEMENT,
    *rows.GUEST,
)


class Hashing(rows.InEnvironment):
    """The workload `hashing`."""

    name = "hashing"
    factors: Mapping[str, Factor] = {row.name: row for row in _FACTORS}
    session_settings: Mapping[str, Factor] = {}
    statistics: Mapping[str, Statistic] = {"time": Statistic("from its start to its answer")}
    response_times = False

    def subject(self, cell: Cell) -> str:
        """What sentences about a cell speak of."""
        return f"Hashing {cell.levels['amount']}"

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:
        """Expected duration of a trial."""
        return 0.1

    def measure(
        self,
        cell: Cell,
        session: Mapping[str, Any],
        site: Site,
        inside: Inside,
        samples: Path,
        watching: Watching = unwatched,
    ) -> Measurement:
        """Hash once, and see that the hash is right."""
        amount = units.size(cell.levels["amount"])
        began = time.monotonic_ns()
        said = inside.run(("sh", "-c", f"head -c {amount} /dev/zero | sha256sum"), 60)
        taken = time.monotonic_ns() - began
        if said.split()[0] != hashlib.sha256(bytes(amount)).hexdigest():
            raise TrialError(f"that is not the hash of {amount} zeros: {said!r}")
        return Measurement(values={"time": float(taken)})


WORKLOAD = Hashing()
