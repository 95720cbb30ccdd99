"""What a report says of the wires that migrations crossed: their limits, and those of the relay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from tare import units
from tare.workloads.findings import Findings
from tare.workloads.migration.told import Crossed, migrated

_WHOLE = 0.9
"""Of its rate: headers take 4.4 % of a wire, what a probe of 0.3 s misses is on top."""


def remarks(found: Findings) -> tuple[str, ...]:
    """A sentence or some for each kind of wire that is long, loses, or is slower than asked."""
    kinds: dict[tuple[int, int, float], list[Crossed]] = defaultdict(list)
    for trial in found.trials:
        wire = migrated(trial).wire
        if wire.measured_bits_s is not None:
            kinds[wire.bits_s or 0, wire.round_trip_ns, wire.loss].append(wire)
    said = []
    for _, wires in sorted(kinds.items()):
        rate, carried = wires[0].bits_s, median(wire.measured_bits_s or 0.0 for wire in wires)
        short = rate is not None and carried < _WHOLE * rate
        if wires[0].measured_round_trip_ns is None:
            sentences = [f"The wire of {_rate(rate)} carried {_rate(carried)}."] if short else []
        else:
            sentences = _relayed(wires, carried)
        if short:
            sentences.append("That is less than was asked for: times over it are a slower wire's.")
        said.append(" ".join(sentences))
    said += sorted({_tcp(wire.tcp) for wires in kinds.values() for wire in wires if wire.tcp})
    return tuple(filter(None, said))


def _tcp(told: Mapping[str, str]) -> str:
    ahead = int(told["tcp_wmem"].split()[-1]) / (1 << 20)
    return (
        f"TCP over these wires was this kernel's as it comes: {told['tcp_congestion_control']},"
        f" with at most {ahead:.3g} MiB in a sender's buffer, which bounds what is under way."
    )


def _relayed(wires: Sequence[Crossed], carried: float) -> list[str]:
    """What a relay made of a wire. All of one kind; some settings-up measured it."""
    first, trials = wires[0], f"{len(wires)} trials" if len(wires) > 1 else "one trial"
    loses = f", which loses {100 * first.loss:g} % of the segments each way," if first.loss else ""
    there_and_back = median(wire.measured_round_trip_ns or 0.0 for wire in wires)
    busy = median(wire.relay_ns_per_byte for wire in wires) * carried / 8e9
    ways = [way for wire in wires for way in (wire.forth, wire.back)]
    late = units.show_duration(fmean(way.late_mean_ns for way in ways))
    latest = units.show_duration(max(way.late_most_ns for way in ways))
    sentences = [
        f"The wire of {_rate(first.bits_s)} with a round trip of"
        f" {units.show_duration(first.round_trip_ns)}{loses} is a program's:"
        f" a datagram took {there_and_back / 1e6:.4g} ms there and back, and a stream whose"
        f" windows were open carried {_rate(carried)} without losses, for which the program took"
        f" {busy:.2g} of a processor that the hosts did not have.",
        f"In {trials} frames left it {late} late in the mean, {latest} at most.",
    ]
    unasked = sum(way.overflowed_frames + way.refused_frames for way in ways)
    if unasked:
        sentences.append(f"It lost {unasked} frames that it was not to lose.")
    return sentences


def _rate(bits_s: float | None) -> str:
    if bits_s is None:
        return "unlimited rate"
    return f"{bits_s / 1e9:.3g} Gbit/s" if bits_s > 0.9e9 else f"{bits_s / 1e6:.3g} Mbit/s"
