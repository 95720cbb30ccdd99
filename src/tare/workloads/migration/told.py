"""What trials of migrations say beside their values: the proxies' records, the load's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import BeforeValidator

from tare.told import Told
from tare.workloads.findings import TrialSeen


@dataclass(frozen=True)
class Series:
    """Answers a second to each guest, in bins from some seconds relative to the order."""

    bin_s: float
    from_s: float
    rates: Mapping[str, Sequence[float]]


class Sent(Told):
    """The sender's record."""

    pages: int = 0
    pages_referenced: int = 0


class Proxies(Told):
    """What pageshare's proxies said."""

    send: Sent = Sent()


class Relayed(Told):
    """What a wire's relay did one way."""

    lost_segments: int = 0
    overflowed_frames: int = 0
    refused_frames: int = 0
    late_mean_ns: float = 0.0
    late_most_ns: float = 0.0


class Crossed(Told):
    """The wire of a trial; what is measured of it, before the first trial over one of its kind."""

    bits_s: int | None = None
    measured_bits_s: float | None = None
    round_trip_ns: int = 0
    loss: float = 0.0
    measured_round_trip_ns: float | None = None
    """None where nothing lay between its ends."""
    relay_ns_per_byte: float = 0.0
    tcp: Mapping[str, str] = {}
    forth: Relayed = Relayed()
    back: Relayed = Relayed()


class Migrated(Told):
    """The settings of a trial."""

    wire: Crossed = Crossed()
    proxies: Proxies = Proxies()
    throughput: Annotated[Series | None, BeforeValidator(lambda told: told or None)] = None
    guests_cpu_share: Mapping[str, float] = {}


def migrated(trial: TrialSeen) -> Migrated:
    """What a trial says of its migration."""
    return Migrated.model_validate(trial.settings.whole)


def parts(trials: Sequence[TrialSeen], names: Sequence[str]) -> Mapping[str, float]:
    """Mean of each part of the migration time, in ns; empty without trials.

    A part that took no time has no value in its trial (`Measurement.values` are positive): it
    counts as none, so that the parts add up to the whole.
    """
    if not trials:
        return {}
    return {name: fmean(trial.values.get(name, 0.0) for trial in trials) for name in names}


def throughputs(trials: Sequence[TrialSeen]) -> Mapping[tuple[str, float], float]:
    """Answers a second: (guest, seconds from the order to migrate) -> mean over sessions.

    Sessions differ in when their last bin ends: a bin is told where half of them have it.
    """
    series = [found for t in trials if (found := migrated(t).throughput)]
    rates: dict[tuple[str, float], list[float]] = defaultdict(list)
    for one in series:
        for guest, counted in one.rates.items():
            for number, rate in enumerate(counted):
                rates[guest, one.from_s + number * one.bin_s].append(rate)
    return {
        key: fmean(found)
        for key, found in sorted(rates.items(), key=lambda item: item[0][1])
        if len(found) * 2 >= len(series)
    }
