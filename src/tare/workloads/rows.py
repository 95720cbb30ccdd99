"""Rows that several workloads declare alike: where something runs, and over which wire."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tare import environments, placement, units
from tare.environments import Environment
from tare.errors import UsageError
from tare.placement import Placement
from tare.workloads import Factor, Room, choice

if TYPE_CHECKING:
    from pathlib import Path

    from tare.cell import Cell

__all__ = [
    "GUEST",
    "LINK",
    "PLACEMENT",
    "PLOT",
    "SCHEDULING",
    "InEnvironment",
    "count",
    "duration",
    "environment",
    "link",
    "link_rate",
    "size",
    "unbuilt",
]


def _within(
    read: Callable[[object], int], show: Callable[[int], str], least: int, most: int
) -> Callable[[object], int]:
    """Read a quantity, and refuse it outside of some bounds."""

    def parse(written: object) -> int:
        found = read(written)
        if not least <= found <= most:
            raise UsageError(
                f"{str(written)!r} is out of range: give {show(least)} to {show(most)}"
            )
        return found

    return parse


def size(
    name: str,
    default: str,
    help: str,  # noqa: A002
    *examples: str,
    least: int = 1,
    most: int = 1 << 50,
) -> Factor:
    """A factor whose levels are sizes in bytes."""
    parse = _within(units.size, units.exact_size, least, most)
    shown = examples or ("64 B", "512 B")
    return Factor(name, parse, units.exact_size, default, help, examples=shown)


def duration(
    name: str,
    default: str,
    help: str,  # noqa: A002
    *examples: str,
    least: int = 0,
) -> Factor:
    """A factor whose levels are times, in ns, up to a week."""
    parse = _within(units.duration, units.exact_duration, least, units.WEEK_NS)
    return Factor(name, parse, units.exact_duration, default, help, examples=examples)


def count(name: str, default: str, help: str, *, most: int, least: int = 1) -> Factor:  # noqa: A002
    """A factor whose levels are whole numbers."""

    def read(written: object) -> int:
        text = str(written).replace("_", "").replace(" ", "")
        if not text.isdecimal() or len(text) > len(str(most)):
            raise UsageError(f"{written!r} is not a whole number from {least} to {most}")
        return int(text)

    return Factor(name, _within(read, str, least, most), str, default, help)


def environment(what: str) -> Factor:
    """The factor `environment`; `what` says what of the workload is in it."""
    names = environments.names()
    return Factor(
        "environment",
        environments.level,
        str,
        "native",
        f"{what}: {', '.join(names)}, or on another machine by `ssh user@host:port`;"
        " with `/container` or `/qemu` behind it, in what that machine holds.",
        examples=(
            *names,
            "ssh root@192.0.2.1:22",
            "ssh root@192.0.2.1:22/container",
        ),
    )


PLACEMENT = Factor(
    "placement",
    placement.parse,
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


_FASTEST = 10**13
"""Bits a second."""


def link_rate(written: object) -> int | None:
    """Bits a second of a link, or None without a limit."""
    if written == "unlimited":
        return None
    rate = units.bit_rate(written)
    if rate == 0:
        raise UsageError(f"{written!r} would never deliver: give a rate above 0, or 'unlimited'")
    if rate > _FASTEST:
        raise UsageError(f"{written!r} is faster than any wire: write 'unlimited'")
    return rate


def _show_link(rate: int | None) -> str:
    return "unlimited" if rate is None else f"{rate / 1e6:g} Mbit/s"


def link(name: str, default: str, help: str, *examples: str) -> Factor:  # noqa: A002
    """A factor whose levels are rates of a link."""
    return Factor(name, link_rate, _show_link, default, help, examples=examples)


LINK = link("link", "unlimited", "Rate of the link between the hosts.", "unlimited", "100 Mbit/s")

GUEST = (
    count("vcpus", "1", "Virtual processors of a QEMU guest.", most=255),
    size("memory", "512 MiB", "Memory of a QEMU guest.", "512 MiB", "2 GiB", least=1 << 20),
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


def unbuilt(*paths: Path) -> str | None:
    """Say which programs of ours are not built; None where all are."""
    missing = [str(path) for path in paths if not os.access(path, os.R_OK)]
    return f"not built: {', '.join(missing)}. Run `make build`" if missing else None


class InEnvironment:
    """What workloads share that are measured in an environment, and declare it by these rows."""

    factors: Mapping[str, Factor]
    plot_factors = PLOT
    programs: tuple[str, ...] = ()

    def applicable(self, levels: Mapping[str, str]) -> frozenset[str]:
        """Leave out what a guest is made of, where there is none."""
        if environments.is_guest_of_qemu(levels["environment"]):
            return frozenset(self.factors)
        return frozenset(self.factors) - {row.name for row in GUEST}

    def refused(
        self,
        levels: Mapping[str, str],  # noqa: ARG002
        asked: Mapping[str, Sequence[str]],  # noqa: ARG002
    ) -> tuple[str, str] | None:
        """Nothing: levels that can be had by themselves can be had together."""
        return None

    def lacking(
        self,
        levels: Mapping[str, str],
        programs: Path,  # noqa: ARG002
    ) -> str | None:
        """What is not to be had there: memory of this machine's, a limit on a wire not ours."""
        memory = units.size(levels.get("memory", "0 B"))
        here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if levels.get("environment") == "qemu" and memory > here:
            return (
                f"a guest of {levels['memory']} is larger than this machine's"
                f" {here / (1 << 30):.3g} GiB. Give it less memory"
            )
        far = environments.is_far(levels.get("environment", ""))
        if far and levels.get("link", LINK.default) != LINK.default:
            return "the link to another machine cannot be limited. Leave `link` unlimited there"
        return None

    def room(
        self,
        cell: Cell,  # noqa: ARG002
        session: Mapping[str, Any],  # noqa: ARG002
    ) -> Room:
        """Next to none: a trial is some numbers."""
        return Room()

    def setup_seconds(self, plot: Mapping[str, str]) -> float:
        """Expected duration of setting an environment up, with its calibration."""
        return environments.row(plot.get("environment", "native")).setup_s

    def environment(self, plot: Mapping[str, str]) -> Environment:
        """The environment that a plot names, with its options."""
        return environments.for_plot(plot)

    def link_rate(self, plot: Mapping[str, str]) -> int | None:
        """Bits a second of the link that a plot asks for; None without a limit."""
        return link_rate(plot.get("link", LINK.default))

    def placement(self, plot: Mapping[str, str]) -> Placement:
        """Processors and priority that a plot asks for."""
        found = Placement.here(plot.get("placement", PLACEMENT.default))
        return replace(found, fifo=50 if plot.get("scheduling", "other") == "fifo" else None)
