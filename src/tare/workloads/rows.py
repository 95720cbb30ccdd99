"""Rows that several workloads declare alike: where something runs, and over which wire."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from tare import environments, placement, rootless, units
from tare.environments import Environment, Site
from tare.errors import UsageError
from tare.interference import Interference
from tare.levels import Factor, Levels, choice
from tare.placement import Placement
from tare.workloads import Bench, S, Workload
from tare.workloads.findings import Findings


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
    default: str,
    help: str,
    *examples: str,
    least: int = 1,
    most: int = 1 << 50,
) -> Factor[int]:
    """A factor whose levels are sizes in bytes."""
    parse = _within(units.size, units.exact_size, least, most)
    shown = examples or ("64 B", "512 B")
    return Factor(parse, units.exact_size, default, help, examples=shown, unit="B")


def duration(default: str, help: str, *examples: str, least: int = 0) -> Factor[int]:
    """A factor whose levels are times, in ns, up to a week."""
    parse = _within(units.duration, units.exact_duration, least, units.WEEK_NS)
    return Factor(parse, units.exact_duration, default, help, examples=examples, unit="ns")


def count(default: str, help: str, *, most: int, least: int = 1) -> Factor[int]:
    """A factor whose levels are whole numbers."""

    def read(written: object) -> int:
        text = str(written).replace("_", "").replace(" ", "")
        if not text.isdecimal() or len(text) > len(str(most)):
            raise UsageError(f"{written!r} is not a whole number from {least} to {most}")
        return int(text)

    return Factor(_within(read, str, least, most), str, default, help, unit="1")


def environment(what: str) -> Factor[str]:
    """The factor `environment`; `what` says what of the workload is in it."""
    names = environments.names()
    return Factor(
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
    placement.parse,
    str,
    "same-core",
    "Processors of client, server, virtual CPUs and VMM: same-core, across-cores, or sets such"
    " as 'client=0 server=1 vmm=1 vcpus=1'.",
    examples=("same-core", "across-cores"),
)
INTERFERENCE = Factor(
    Interference.parse,
    str,
    "none",
    "What disturbs: KIND LEVEL on the host or inside, such as 'host cpu 50 %'.",
    examples=("none", "host cpu 50 %", "inside memory 1"),
)
SCHEDULING = choice(
    ("fifo", "other"),
    "other" if rootless.is_on() else "fifo",
    "Class of client and native server: SCHED_FIFO, the default of root, or SCHED_OTHER. QEMU is"
    " never SCHED_FIFO.",
)


_FASTEST = 10**13
"""Bits a second."""


def _link_rate(written: object) -> int | None:
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


def link(default: str, help: str, *examples: str) -> Factor[int | None]:
    """A factor whose levels are rates of a link."""
    return Factor(_link_rate, _show_link, default, help, examples=examples, unit="bit/s")


LINK = link("unlimited", "Rate of the link between the hosts.", "unlimited", "100 Mbit/s")

GUEST = ("vcpus", "memory", "machine", "accelerator")
"""What a guest is made of; means something for QEMU alone."""
PLOT = frozenset({"environment", "placement", "scheduling", "link", *GUEST})
"""Rows of this file that need an environment to be set up anew."""


def unbuilt(*paths: Path) -> str | None:
    """Say which programs of ours are not built; None where all are."""
    missing = [str(path) for path in paths if not os.access(path, os.R_OK)]
    return f"not built: {', '.join(missing)}. Run `make build`" if missing else None


def one_core(found: Findings, factor: str, level: str) -> tuple[str, ...]:
    """Say so where a factor's level asked for two cores, and the machine has one."""
    levels = [view.cell.levels for view in found.cells]
    asked = any(
        of.get(factor) == level and not environments.is_far(of.get("environment", ""))
        for of in levels
    )
    if not asked or not found.fingerprint.cpu.is_one_core:
        return ()
    return (
        f"`{factor}: {level}` was two threads of one core: the machine has no other. What crosses"
        " two cores takes longer, and what works on both at once has more of each.",
    )


class Placed(Levels):
    """What workloads have in common that are measured in an environment, each with a row for it."""

    environment: Factor[str]
    placement = PLACEMENT
    vcpus = count("1", "Virtual processors of a QEMU guest.", most=255)
    memory = size("512 MiB", "Memory of a QEMU guest.", "512 MiB", "2 GiB", least=1 << 20)
    machine = choice(("q35", "pc"), "q35", "Machine type of a QEMU guest.")
    accelerator = choice(
        ("auto", "kvm", "tcg"),
        "auto",
        "What runs a QEMU guest's instructions; auto is KVM where a guest boots with it, else TCG.",
    )


P = TypeVar("P", bound=Placed)


class InEnvironment(Workload[P, S]):
    """What workloads share that are measured in an environment."""

    bench: type[Bench[P, S]]
    plot_factors = PLOT

    def applicable(self, levels: P) -> frozenset[str]:
        """Leave out what a guest is made of, where there is none."""
        guest = environments.is_guest_of_qemu(levels.environment)
        return frozenset(self.levels.rows) - (frozenset() if guest else frozenset(GUEST))

    def lacking(self, levels: P, settings: S, programs: Path) -> str | None:
        """What is not to be had there: memory of this machine's, a limit on a wire not ours."""
        here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if levels.environment == "qemu" and levels.memory > here:
            return (
                f"a guest of {levels['memory']} is larger than this machine's"
                f" {here / (1 << 30):.3g} GiB. Give it less memory"
            )
        if environments.is_far(levels.environment) and self.link_rate(levels) is not None:
            return "the link to another machine cannot be limited. Leave `link` unlimited there"
        return None

    def setup_seconds(self, plot: P) -> float:
        """Expected duration of setting an environment up, with its calibration."""
        return environments.row(plot.environment).setup_s

    def environment(self, plot: P) -> Environment:
        """The environment that a plot names, with its options."""
        return environments.for_plot(plot)

    def placement(self, plot: P) -> Placement:
        """Processors that a plot asks for."""
        parties = ("client",) if environments.is_far(plot.environment) else placement.PARTIES
        return Placement.here(plot.placement, parties)

    def remarks(self, found: Findings) -> tuple[str, ...]:
        """Where there was no other core to go across to."""
        return one_core(found, "placement", "across-cores")

    @contextmanager
    def enter(self, plot: P, site: Site, settings: S) -> Iterator[Bench[P, S]]:
        """Enter the environment that a plot names."""
        with self.environment(plot).enter(site) as inside:
            yield self.bench(site, inside, settings)
