"""What a migration needs of this machine: looked for before the first guest is booted."""

from __future__ import annotations

import os
from pathlib import Path

from tare import packages, relay
from tare.errors import TareError
from tare.packages import PROGRAMS
from tare.workloads.migration import ksm, tiny
from tare.workloads.migration.hypervisor import choose
from tare.workloads.migration.rows import MigrationLevels
from tare.workloads.rows import unbuilt

_GUESTS = 4
"""Three that run, and the destination's half of the one that travels."""


def lacking(levels: MigrationLevels, programs: Path) -> str | None:
    """Say what is lacking and what to do; None where nothing is.

    Args:
        levels: a cell's.
        programs: the build directory.
    """
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if _GUESTS * levels.memory > here:
        return (
            f"{_GUESTS} guests of {levels['memory']} are larger than this machine's"
            f" {here / (1 << 30):.3g} GiB. Give them less memory"
        )
    if levels.processors == "one a host" and len(os.sched_getaffinity(0)) < 2:
        return "this machine offers one processor. Take `processors: all`"
    if levels.arm.ksm and not ksm.available():
        return "this kernel has no KSM. Leave the arm `ksm` out"
    if levels.testbed == "debian":
        found = packages.lacking(PROGRAMS["migration"])
    else:
        found = packages.lacking({str(tiny.BUSYBOX): "busybox-static"})
    if found is None and (levels.round_trip or levels.loss):
        found = unbuilt(relay.program(programs))
    if found is None and levels.arm.proxied:
        found = unbuilt(programs.parent / "target/release/pageshare")
    return found or _unsound(programs)


def _unsound(programs: Path) -> str | None:
    """Without KVM a QEMU is needed that loses nothing of a guest that migrates."""
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        return None  # whether guests boot with it is seen by booting one
    try:
        choose("tcg", programs)
    except TareError as error:
        return f"{error.what}; {error.remedy}" if error.remedy else error.what
    return None
