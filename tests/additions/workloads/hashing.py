"""Hashing: how long a fresh process takes for the SHA-256 of some zeros."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping

from tare.errors import TrialError
from tare.levels import Settings
from tare.workloads import Bench, Measurement, Statistic, rows


class HashingLevels(rows.Placed):
    """The factors of `hashing`."""

    environment = rows.environment("What hashes")
    amount = rows.size("1 MiB", "How much is hashed.")


class HashingBench(Bench[HashingLevels, Settings]):
    """The environment."""

    def measure(self, levels: HashingLevels) -> Measurement:
        """Hash once, and see that the hash is right."""
        began = time.monotonic_ns()
        argv = ("sh", "-c", f"head -c {levels.amount} /dev/zero | sha256sum")
        said = self.inside.run(argv, 60)
        taken = time.monotonic_ns() - began
        if said.split()[0] != hashlib.sha256(bytes(levels.amount)).hexdigest():
            raise TrialError(f"that is not the hash of {levels.amount} zeros: {said!r}")
        return Measurement(values={"time": float(taken)})


class Hashing(rows.InEnvironment[HashingLevels, Settings]):
    """The workload `hashing`."""

    name = "hashing"
    levels = HashingLevels
    settings = Settings
    bench = HashingBench
    statistics: Mapping[str, Statistic] = {"time": Statistic("from its start to its answer")}
    response_times = False

    def subject(self, levels: HashingLevels) -> str:
        """What sentences about a cell speak of."""
        return f"Hashing {levels['amount']}"

    def seconds(self, levels: HashingLevels, settings: Settings) -> float:
        """Expected duration of a trial."""
        return 0.1


WORKLOAD = Hashing()
