"""What the guests' load was answered, before, during and after a migration (the paper's Fig. 8)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tare.workloads.migration.journey import Journey

if TYPE_CHECKING:
    from tare.workloads.migration.testbed import Bed

_AFTER_S = 1.5
"""The load is watched for so long after the guest runs at the destination."""
_BIN_NS = 250_000_000


class Throughput:
    """Answers to the load around one migration. Made just before it; waits `settle_s` first."""

    def __init__(self, bed: Bed, settle_s: float) -> None:
        self._bed = bed
        bed.answers()
        self._from = time.time_ns()
        time.sleep(settle_s)
        self._until = time.time_ns()
        self._found: dict[str, Any] | None = None

    def ratios(self, journey: Journey) -> dict[str, float]:
        """Rate of answers during the migration over the rate before, of the guests beside it."""
        found = {}
        names = {"stays": "beside_source", "peer": "beside_destination"}
        for guest, name in names.items():
            times = self._times(guest)
            before = _rate(times, self._from, self._until)
            during = _rate(times, journey.asked, journey.resumed)
            if before > 0 and during > 0:
                found[name] = during / before
        return found

    def series(self, journey: Journey) -> dict[str, Any]:
        """Guest -> answers a second in bins of `bin_s`, from `from_s` relative to the order."""
        if not self._answers():
            return {}
        first = (self._from - journey.asked) // _BIN_NS + 1
        last = int((journey.resumed - journey.asked + _AFTER_S * 1e9) // _BIN_NS)
        rates = {}
        for guest in self._answers():
            counts = dict.fromkeys(range(first, last), 0)
            for when in self._times(guest):
                bin_ = (when - journey.asked) // _BIN_NS
                if bin_ in counts:
                    counts[bin_] += 1
            rates[guest] = [count / (_BIN_NS / 1e9) for count in counts.values()]
        failed = {guest: found["failed"] for guest, found in self._answers().items()}
        return {
            "bin_s": _BIN_NS / 1e9,
            "from_s": first * _BIN_NS / 1e9,
            "rates": rates,
            "failed": failed,
        }

    def _times(self, guest: str) -> list[int]:
        return list(self._answers().get(guest, {"done": []})["done"])

    def _answers(self) -> dict[str, Any]:
        """Ask once, after the migration."""
        if self._found is None:
            if self._bed.load is not None:
                time.sleep(_AFTER_S)
            self._found = self._bed.answers()
        return self._found


def _rate(times: list[int], begin: int, end: int) -> float:
    return sum(begin <= when < end for when in times) / ((end - begin) / 1e9)
