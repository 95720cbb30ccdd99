"""Rows that several workloads declare alike: where something runs, and over which wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tare import environments, units
from tare.errors import UsageError
from tare.placement import Placement
from tare.workloads import Factor, choice

__all__ = [
    "GUEST",
    "LINK",
    "PLACEMENT",
    "PLOT",
    "SCHEDULING",
    "applicable",
    "count",
    "duration",
    "environment",
    "link_rate",
    "placement",
    "size",
]


def size(name: str, default: str, help: str, *examples: str) -> Factor:  # noqa: A002
    """A factor whose levels are sizes in bytes."""
    return Factor(
        name, units.size, units.exact_size, default, help, examples=examples or ("64 B", "512 B")
    )


def duration(name: str, default: str, help: str, *examples: str) -> Factor:  # noqa: A002
    """A factor whose levels are times."""
    return Factor(name, units.duration, units.exact_duration, default, help, examples=examples)


def count(name: str, default: str, help: str, least: int = 1) -> Factor:  # noqa: A002
    """A factor whose levels are whole numbers."""

    def parse(written: object) -> int:
        text = str(written).replace("_", "").replace(" ", "")
        if not text.isdecimal() or int(text) < least:
            raise UsageError(f"{written!r} is not a whole number of at least {least}")
        return int(text)

    return Factor(name, parse, str, default, help)


def environment(what: str) -> Factor:
    """The factor `environment`; `what` says what of the workload is in it."""
    return Factor(
        "environment",
        environments.level,
        str,
        "native",
        f"{what}: {', '.join(environments.NAMES)}, or on another machine by `ssh user@host:port`.",
        examples=(*environments.NAMES, "ssh root@192.0.2.1:22"),
    )


PLACEMENT = Factor(
    "placement",
    Placement.parse,
    str,
    "same-core",
    "Processors of client, server, virtual CPUs and VMM: same-core, across-cores, or sets such"
    " as 'client=0 server=1 vmm=1 vcpus=1'.",
    examples=("same-core", "across-cores"),
)
SCHEDULING = choice(
    "scheduling",
    ("fifo", "other"),
    "fifo",
    "Class of client and native server: SCHED_FIFO or SCHED_OTHER. QEMU is never SCHED_FIFO.",
)


def _parse_link(written: object) -> int | None:
    """Bits a second, or None without a limit."""
    if written == "unlimited":
        return None
    rate = units.bit_rate(written)
    if rate == 0:
        raise UsageError(f"{written!r} would never deliver: give a rate above 0, or 'unlimited'")
    return rate


def _show_link(rate: int | None) -> str:
    return "unlimited" if rate is None else f"{rate / 1e6:g} Mbit/s"


LINK = Factor(
    "link",
    _parse_link,
    _show_link,
    "unlimited",
    "Rate of the link between the hosts.",
    examples=("unlimited", "100 Mbit/s"),
)

GUEST = (
    count("vcpus", "1", "Virtual processors of a QEMU guest."),
    size("memory", "512 MiB", "Memory of a QEMU guest.", "512 MiB", "2 GiB"),
    choice("machine", ("q35", "pc"), "q35", "Machine type of a QEMU guest."),
    choice(
        "accelerator",
        ("auto", "kvm", "tcg"),
        "auto",
        "What runs a QEMU guest's instructions; auto is KVM where a guest boots with it, else TCG.",
    ),
)
"""What a guest is made of; means something for QEMU alone."""

PLOT = frozenset({"environment", "placement", "scheduling", "link", *(row.name for row in GUEST)})
"""Rows of this file that need an environment to be set up anew."""


def applicable(factors: Mapping[str, Factor], levels: Mapping[str, str]) -> set[str]:
    """Names of factors without those of a guest where there is none."""
    guest = {row.name for row in GUEST} if levels.get("environment") != "qemu" else set()
    return set(factors) - guest


def link_rate(plot: Mapping[str, str]) -> int | None:
    """Bits a second of the link that a plot asks for; None without a limit."""
    return _parse_link(plot.get("link", "unlimited"))


def placement(plot: Mapping[str, str]) -> Placement:
    """Processors and priority that a plot asks for."""
    found = Placement.parse(plot.get("placement", PLACEMENT.default))
    return replace(found, fifo=50 if plot.get("scheduling", "other") == "fifo" else None)
