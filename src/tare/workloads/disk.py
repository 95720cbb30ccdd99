"""Reading and writing a block device (paper B, Fig. 2): by hdparm as the paper did, and by fio.

The device is a scratch disk of the run, a loop device on it, or (in a guest) a loop device on a
file over NFS; whose page caches lie on the way stands with every trial (`disk_is` of its facts).
`cached` and `buffered` are hdparm's -T and -t; the rest is fio's: `io: buffered` goes through the
page cache of where fio runs, `io: direct` past it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tare import packages, units
from tare.environments.scratch_disk import SIZE_BYTES
from tare.errors import TrialError
from tare.packages import PROGRAMS
from tare.workloads import (
    Factor,
    Measurement,
    Room,
    Statistic,
    Watching,
    choice,
    rows,
    unwatched,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tare.cell import Cell
    from tare.environments import Inside, Site

__all__ = ["WORKLOAD", "Disk"]

_HDPARM = {"cached": "-T", "buffered": "-t"}
_FIO = ("read", "write", "randread", "randwrite")
_TIMEOUT_S = 120.0
_HDPARM_S = 3.5

_FACTORS = (
    rows.environment("Where the device is read and written"),
    choice(
        "device",
        ("raw", "loop", "nfs"),
        "raw",
        "raw: a scratch disk past the host's page cache. loop: a loop device on it, through a page"
        " cache. nfs: a loop device on a file over NFS, in a guest only.",
    ),
    choice(
        "operation",
        (*_HDPARM, *_FIO),
        "buffered",
        "cached: from the page cache alone (hdparm -T). buffered: in order, the cache dropped"
        " before (hdparm -t). The others are fio's.",
    ),
    choice(
        "io",
        ("buffered", "direct"),
        "direct",
        "Through the page cache of where fio runs, or past it (O_DIRECT).",
    ),
    rows.size(
        "block", "4 KiB", "Size of fio's requests.", "4 KiB", "1 MiB", least=512, most=SIZE_BYTES
    ),
    rows.count(
        "depth",
        "1",
        "fio's requests under way at once; above 1 with direct I/O only.",
        most=65_536,
    ),
    rows.PLACEMENT,
    *rows.GUEST,
)


class Disk(rows.InEnvironment):
    """The workload `disk`."""

    name = "disk"
    factors: Mapping[str, Factor] = {row.name: row for row in _FACTORS}
    plot_factors = rows.PLOT | {"device"}
    session_settings: Mapping[str, Factor] = {
        "seconds": rows.count("seconds", "2", "How long fio runs, in whole seconds.", most=86_400)
    }
    statistics: Mapping[str, Statistic] = {
        "rate": Statistic("bytes read or written a second", "B/s", "higher"),
        "operations": Statistic("requests of fio a second", "1/s", "higher"),
    }
    response_times = False

    def subject(self, cell: Cell) -> str:
        """What sentences about a cell speak of."""
        operation, device = cell.levels["operation"], cell.levels["device"]
        if operation in _HDPARM:
            return f"{operation.capitalize()} reads (hdparm) of the {device} device"
        return f"fio's {operation}, {cell.levels['io']}, of the {device} device"

    def applicable(self, levels: Mapping[str, str]) -> frozenset[str]:
        """Leave out fio's settings for hdparm, and a queue where requests are synchronous."""
        names = set(super().applicable(levels))
        if levels["operation"] in _HDPARM:
            names -= {"io", "block", "depth"}
        elif levels["io"] == "buffered":
            names.discard("depth")
        return frozenset(names)

    def lacking(self, levels: Mapping[str, str], programs: Path) -> str | None:
        """A container may not drop the page cache before, as hdparm does."""
        if levels["operation"] == "buffered" and levels["environment"] == "container":
            return (
                "hdparm may not drop the page cache in a container. Take `operation: read` there,"
                " with `io: direct`"
            )
        program = "hdparm" if levels["operation"] in _HDPARM else "fio"
        needed = {name: PROGRAMS["disk"][name] for name in (program, "losetup")}
        if levels["device"] == "nfs":
            needed |= PROGRAMS["disk over NFS"]
        return super().lacking(levels, programs) or packages.lacking(needed)

    def room(self, cell: Cell, session: Mapping[str, Any]) -> Room:  # noqa: ARG002
        """The scratch disk, which is filled."""
        return Room(scratch_bytes=SIZE_BYTES)

    def setup_seconds(self, plot: Mapping[str, str]) -> float:
        """Expected duration of setting an environment up, its disk filled."""
        return super().setup_seconds(plot) + 2.0

    def seconds(self, cell: Cell, session: Mapping[str, Any]) -> float:
        """Expected duration of a trial."""
        return _HDPARM_S if cell.levels["operation"] in _HDPARM else float(session["seconds"]) + 1.0

    def measure(
        self,
        cell: Cell,
        session: Mapping[str, Any],
        site: Site,  # noqa: ARG002 - nothing runs outside
        inside: Inside,
        samples: Path,  # noqa: ARG002 - a rate is all that is told
        watching: Watching = unwatched,  # noqa: ARG002 - nothing is counted
    ) -> Measurement:
        """Run hdparm or fio once.

        Raises:
            TrialError: the environment has no disk, the program failed, or printed no rate.
        """
        levels = cell.levels
        path = inside.facts.get("disk")
        if path is None:
            raise TrialError(
                f"{levels['environment']} offers no block device",
                "`tare doctor` says which environments do",
            )
        if levels["operation"] in _HDPARM:
            # It only complains where it may not drop the cache (in a container), and goes on.
            hdparm = f"/usr/sbin/hdparm {_HDPARM[levels['operation']]} {path} 2>&1"
            argv: tuple[str, ...] = ("sh", "-c", hdparm)
            values = {"rate": _hdparm_rate(inside.run(argv, _TIMEOUT_S))}
        else:
            argv = _fio(levels, int(session["seconds"]), str(path))
            values = _fio_rates(inside.run(argv, int(session["seconds"]) + _TIMEOUT_S))
        return Measurement(values=values, settings={"command": " ".join(argv)})


WORKLOAD = Disk()


def _hdparm_rate(said: str) -> float:
    """Read bytes a second; hdparm's MB are MiB (its source divides by 1024 twice)."""
    if "failed" in said:
        raise TrialError(f"hdparm could not drop the page cache: {said.strip()[-200:]}")
    found = re.search(r"([0-9.]+) ([kM])B in\s+([0-9.]+) seconds", said)
    if not found or float(found[3]) <= 0 or float(found[1]) <= 0:
        raise TrialError(f"hdparm printed no rate: {said[-300:]!r}")
    return float(found[1]) * {"k": 1 << 10, "M": 1 << 20}[found[2]] / float(found[3])


def _fio(levels: Mapping[str, str], seconds: int, path: str) -> tuple[str, ...]:
    direct = levels["io"] == "direct"
    engine = ("--ioengine", "libaio", "--iodepth", levels["depth"]) if direct else (
        "--ioengine", "psync",
    )  # fmt: skip
    return (
        "fio", "--name", "tare", "--filename", path, "--rw", levels["operation"],
        "--bs", str(units.size(levels["block"])), "--direct", "1" if direct else "0", *engine,
        "--size", str(SIZE_BYTES), "--time_based", "--runtime", str(seconds),
        # What was written counts once it is on the device; a clock read a request would be paid
        # for by the slower clock of a guest.
        "--end_fsync", "1", "--gtod_reduce", "1", "--thread", "--output-format", "json",
    )  # fmt: skip


def _fio_rates(said: str) -> dict[str, float]:
    try:
        job = json.loads(said[said.index("{") :])["jobs"][0]
        side = job["write" if float(job["write"]["io_bytes"]) > 0 else "read"]
        amount, requests = float(side["io_bytes"]), float(side["total_ios"])
        seconds = float(job["job_runtime"]) / 1e3
        found = {"rate": amount / seconds, "operations": requests / seconds}
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError) as error:
        raise TrialError(f"fio printed something else: {said[-300:]!r}") from error
    if not all(math.isfinite(value) and value > 0 for value in found.values()):
        raise TrialError("fio read and wrote nothing")
    return found
