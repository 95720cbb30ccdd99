"""The wire of each trial: its rate, length and losses, and what it was measured to carry."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tare import netns
from tare.relay import Distance
from tare.wire import Wire
from tare.workloads.migration.rows import MigrationLevels


class Wires:
    """One wire as trials want it, measured before the first trial of each rate and length."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._carried: dict[tuple[int | None, Distance | None], dict[str, Any]] = {}

    def lay(self, levels: MigrationLevels, *, seed: int) -> dict[str, Any]:
        """Give the wire what a trial asks for; return what is to be on record of it.

        Args:
            levels: the trial's.
            seed: of its losses.
        """
        wire, rate, seen = self._wire, levels.wire, self._carried
        distance = Distance(levels.round_trip) if levels.round_trip or levels.loss else None
        if (rate, distance) not in seen:
            wire.become(rate, distance)
            seen[rate, distance] = self._measured()
        told = seen[rate, distance]
        if distance is not None and levels.loss:
            distance = replace(distance, loss=levels.loss, seed=seed)
        wire.become(rate, distance)
        told = {"bits_s": rate, "burst_bytes": wire.burst_bytes, **told}
        if distance is not None:
            told |= {**asdict(distance), "room_bytes": wire.room_bytes}
        return told

    def _measured(self) -> dict[str, Any]:
        """What the wire carries, before it loses anything; of one with a relay, what that takes."""
        wire = self._wire
        if wire.distance is None:
            unlimited = wire.rate_bits_s is None
            return {"measured_bits_s": None if unlimited else wire.measured_rate()}
        round_trip = wire.measured_round_trip()
        wire.relayed()
        rate = wire.measured_rate()
        relayed = wire.relayed()
        return {
            "measured_bits_s": rate,
            "measured_round_trip_ns": round_trip,
            "relay_ns_per_byte": relayed["cpu_ns"] / relayed["forth"]["bytes"],
            "tcp": netns.within(wire.source_ns, lambda _: _tcp()),
        }


def _tcp() -> dict[str, str]:
    """What the kernel lets a connection have under way, and how it finds out what it may."""
    names = ("tcp_rmem", "tcp_wmem", "tcp_congestion_control")
    return {name: Path("/proc/sys/net/ipv4", name).read_text().strip() for name in names}
