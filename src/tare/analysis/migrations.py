"""A cell's migrations as means over its sessions: their parts, and the load beside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from tare.record import Trial

__all__ = ["parts", "throughputs"]


def parts(trials: Sequence[Trial], names: Sequence[str]) -> Mapping[str, float]:
    """Mean of each part of the migration time, in ns; empty without trials.

    A part that took no time has no value in its trial (`Measurement.values` are positive): it
    counts as none, so that the parts add up to the whole.
    """
    if not trials:
        return {}
    return {name: fmean(trial.values.get(name, 0.0) for trial in trials) for name in names}


def throughputs(trials: Sequence[Trial]) -> Mapping[tuple[str, float], float]:
    """Answers a second: (guest, seconds from the order to migrate) -> mean over sessions.

    Sessions differ in when their last bin ends: a bin is told where half of them have it.
    """
    series = [found for t in trials if (found := t.settings.whole.get("throughput"))]
    rates: dict[tuple[str, float], list[float]] = defaultdict(list)
    for one in series:
        for guest, counted in one["rates"].items():
            for number, rate in enumerate(counted):
                rates[guest, one["from_s"] + number * one["bin_s"]].append(rate)
    return {
        key: fmean(found)
        for key, found in sorted(rates.items(), key=lambda item: item[0][1])
        if len(found) * 2 >= len(series)
    }
