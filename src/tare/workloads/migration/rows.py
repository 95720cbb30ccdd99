"""What a migration can be asked for: factors, settings, and what they mean for a guest."""

from __future__ import annotations

import os
import re

from tare import units
from tare.errors import UsageError
from tare.levels import Factor, Levels, Settings, among, choice
from tare.placement import of_another_core
from tare.workloads import rows as shared
from tare.workloads.migration.arms import ARMS, BY_NAME

_MICRO = re.compile(r"micro ([0-9]+(?:\.[0-9])?) ?%")
_WORKS = ("idle", "web", "memcached", "compile", "spin", "random")
_PRESSED = ("web", "memcached")
_MOST_RATE = 1e5
_LONGEST_ROUND_TRIP_NS = 10**9
_MOST_LOSS = 0.2
_SYSTEM_BYTES = 192 << 20
"""Left to the system where a guest's memory is filled on purpose."""


def _guest(written: object) -> str:
    text = str(written)
    if text in _WORKS:
        return text
    match = _MICRO.fullmatch(text)
    if match is None or float(match[1]) > 100:
        raise UsageError(
            f"{text!r} is neither one of {', '.join(_WORKS)} nor 'micro' with a share, as"
            " 'micro 82.8 %'"
        )
    return f"micro {float(match[1]):g} %"


def _frequency(written: object) -> float:
    rate = units.frequency(written)
    if rate == 0:
        raise UsageError(f"{written!r} would never ask: give a rate above 0, or an idle guest")
    if rate > _MOST_RATE:
        raise UsageError(
            f"{written!r} is more than the load can ask: give {_MOST_RATE:g}/s or less"
        )
    return rate


def _round_trip(written: object) -> int:
    found = units.duration(written, "a round trip such as '10 ms', or '0 ms'")
    if found > _LONGEST_ROUND_TRIP_NS:
        raise UsageError(f"{str(written)!r} is longer than any wire: give up to 1 s")
    return found


def _loss(written: object) -> float:
    share = units.share(written)
    if share > _MOST_LOSS:
        raise UsageError(
            f"{str(written)!r} is more than TCP gets through: give a share of up to"
            f" {100 * _MOST_LOSS:g} %, such as '0.1 %'"
        )
    return share


class MigrationLevels(Levels):
    """The factors of `migration`."""

    testbed = choice(
        ("debian", "tiny"),
        "debian",
        "Guests: an ordinary Debian with a disk and a network, or a kernel with a shell (idle only;"
        " boots in seconds).",
    )
    guest = Factor(
        _guest,
        str,
        "web",
        "What all three guests do: idle; web (nginx), memcached,"
        " compile (gcc, one file every 10 s); spin (computes without end);"
        " random (memory that nobody else has); 'micro X %' (memory of which X % is in every"
        " guest).",
        examples=(*_WORKS, "micro 82.8 %"),
    )
    arm = among(
        BY_NAME,
        "plain",
        "How the guest migrates. " + "; ".join(f"{arm.name}: {arm.help}" for arm in ARMS) + ".",
    )
    wire = shared.link(
        "1 Gbit/s",
        "Rate of the wire between the hosts; nothing but migrations travels on it.",
        "1 Gbit/s",
        "10 Gbit/s",
        "unlimited",
    )
    round_trip = Factor(
        _round_trip,
        units.exact_duration,
        "0 us",
        "What the wire adds to a round trip between the hosts: each frame is held for half of it,"
        " each way (netem's delay is one way: 20 ms at both ends there are 40 ms here).",
        examples=("0 us", "10 ms", "40 ms"),
        unit="ns",
    )
    loss = Factor(
        _loss,
        lambda share: f"{100 * share:g} %",
        "0 %",
        "Share of the TCP segments that the wire loses, each way, each by itself.",
        examples=("0 %", "0.1 %"),
        unit="1",
    )
    processors = choice(
        ("one a host", "all"),
        "one a host",
        "What the hosts may use: each a processor of its own, or both all of them.",
    )
    destination = choice(
        ("preallocated", "faulting"),
        "preallocated",
        "The destination's memory: there before the first page arrives, or made page by page.",
    )
    tls = choice(
        ("off", "on"),
        "off",
        "Mutual TLS between pageshare's proxies. QEMU alone goes without.",
    )
    peer = choice(
        ("warm", "cold"),
        "warm",
        "The destination's own guest: does what the others do, or is idle.",
    )
    rate = Factor(
        _frequency,
        lambda rate: f"{rate:g}/s",
        "20/s",
        "Requests a second to each guest that is asked anything, in open loop.",
        examples=("20/s",),
        unit="1/s",
    )
    dirty = shared.size(
        "0 B",
        "Memory that the guests rewrite each second, on a schedule, within 64 MiB.",
        "0 B",
        "30 MiB",
        least=0,
    )
    memory = shared.size("512 MiB", "Memory of each guest.", "512 MiB", "2 GiB", least=1 << 20)


PLOT = frozenset(
    {"testbed", "guest", "processors", "peer", "rate", "dirty", "memory"}
)  # fmt: skip


class MigrationSettings(Settings):
    """What its sessions share."""

    warmup = shared.duration("20 s", "Load on the guests before the first trial.")
    settle = shared.duration(
        "4 s",
        "Load on the guests before each trial; what the guests beside it are compared with.",
    )
    away = shared.duration("10 s", "How long a guest that returns has been away, under its load.")
    timeout = shared.duration("120 s", "A migration that takes longer is cancelled.", least=1)
    downtime_limit = shared.duration("300 ms", "For how long the guest may stand still.")


def load(work: str) -> str | None:
    """The load from outside that a guest's work needs; None for work that goes by itself."""
    return work if work in _PRESSED else None


def processors(level: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Processors of source and destination."""
    present = sorted(os.sched_getaffinity(0))
    if level == "all" or len(present) < 2:
        return (), ()
    return (present[0],), (of_another_core(present[0], present),)


def words(work: str, plot: MigrationLevels, *, seed: int) -> tuple[str, ...]:
    """What a guest's kernel is told of its work; `seed` makes memory that no other guest has."""
    match = _MICRO.fullmatch(work)
    alike = None if match is None else round(float(match[1]) * 10)
    if work == "random":
        alike = 0
    if alike is not None:
        mib = max(16, (plot.memory - _SYSTEM_BYTES) >> 20)
        found = ["tare.work=idle", f"tare.own={mib},{alike},{seed}"]
    else:
        found = [f"tare.work={work}"]
    if plot.dirty:
        found.append(f"tare.dirty={plot.dirty},{seed}")
    return tuple(found)
