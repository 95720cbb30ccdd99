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
from pathlib import Path

from tare import packages
from tare.environments.scratch_disk import SIZE_BYTES
from tare.errors import TrialError
from tare.levels import Settings, choice
from tare.packages import PROGRAMS
from tare.published.beside import Beside
from tare.workloads import Bench, Measurement, Room, Statistic, papers, rows
from tare.workloads.findings import Findings

_HDPARM = {"cached": "-T", "buffered": "-t"}
_FIO = ("read", "write", "randread", "randwrite")
_TIMEOUT_S = 120.0
_HDPARM_S = 3.5


class DiskLevels(rows.Placed):
    """The factors of `disk`."""

    environment = rows.environment("Where the device is read and written")
    device = choice(
        ("raw", "loop", "nfs"),
        "raw",
        "raw: a scratch disk past the host's page cache. loop: a loop device on it, through a page"
        " cache. nfs: a loop device on a file over NFS, in a guest only.",
    )
    operation = choice(
        (*_HDPARM, *_FIO),
        "buffered",
        "cached: from the page cache alone (hdparm -T). buffered: in order, the cache dropped"
        " before (hdparm -t). The others are fio's.",
    )
    io = choice(
        ("buffered", "direct"),
        "direct",
        "Through the page cache of where fio runs, or past it (O_DIRECT).",
    )
    block = rows.size(
        "4 KiB", "Size of fio's requests.", "4 KiB", "1 MiB", least=512, most=SIZE_BYTES
    )
    depth = rows.count(
        "1", "fio's requests under way at once; above 1 with direct I/O only.", most=65_536
    )


class DiskSettings(Settings):
    """What its sessions share."""

    seconds = rows.count("2", "How long fio runs, in whole seconds.", most=86_400)


class DiskBench(Bench[DiskLevels, DiskSettings]):
    """The device of the environment."""

    def measure(self, levels: DiskLevels) -> Measurement:
        """Run hdparm or fio once.

        Raises:
            TrialError: the environment has no disk, the program failed, or printed no rate.
        """
        path = self.inside.facts.disk
        if path is None:
            raise TrialError(
                f"{levels.environment} offers no block device",
                "`tare doctor` says which environments do",
            )
        if levels.operation in _HDPARM:
            # It only complains where it may not drop the cache (in a container), and goes on.
            hdparm = f"/usr/sbin/hdparm {_HDPARM[levels.operation]} {path} 2>&1"
            argv: tuple[str, ...] = ("sh", "-c", hdparm)
            values = {"rate": _hdparm_rate(self.inside.run(argv, _TIMEOUT_S))}
        else:
            seconds = self.settings.seconds
            argv = _fio(levels, seconds, path)
            values = _fio_rates(self.inside.run(argv, seconds + _TIMEOUT_S))
        return Measurement(values=values, settings={"command": " ".join(argv)})


class Disk(rows.InEnvironment[DiskLevels, DiskSettings]):
    """The workload `disk`."""

    name = "disk"
    levels = DiskLevels
    settings = DiskSettings
    bench = DiskBench
    plot_factors = rows.PLOT | {"device"}
    statistics: Mapping[str, Statistic] = {
        "rate": Statistic("bytes read or written a second", "B/s", "higher"),
        "operations": Statistic("requests of fio a second", "1/s", "higher"),
    }
    response_times = False

    def subject(self, levels: DiskLevels) -> str:
        """What sentences about a cell speak of."""
        if levels.operation in _HDPARM:
            return f"{levels.operation.capitalize()} reads (hdparm) of the {levels.device} device"
        return f"fio's {levels.operation}, {levels.io}, of the {levels.device} device"

    def applicable(self, levels: DiskLevels) -> frozenset[str]:
        """Leave out fio's settings for hdparm, and a queue where requests are synchronous."""
        names = set(super().applicable(levels))
        if levels.operation in _HDPARM:
            names -= {"io", "block", "depth"}
        elif levels.io == "buffered":
            names.discard("depth")
        return frozenset(names)

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """The paper's table of a disk."""
        return papers.b.disk(found)

    def lacking(self, levels: DiskLevels, settings: DiskSettings, programs: Path) -> str | None:
        """A container may not drop the page cache before, as hdparm does."""
        if levels.operation == "buffered" and levels.environment == "container":
            return (
                "hdparm may not drop the page cache in a container. Take `operation: read` there,"
                " with `io: direct`"
            )
        program = "hdparm" if levels.operation in _HDPARM else "fio"
        needed = {name: PROGRAMS["disk"][name] for name in (program, "losetup")}
        if levels.device == "nfs":
            needed |= PROGRAMS["disk over NFS"]
        return super().lacking(levels, settings, programs) or packages.lacking(needed)

    def room(self, levels: DiskLevels, settings: DiskSettings) -> Room:
        """The scratch disk, which is filled."""
        return Room(disk_bytes=SIZE_BYTES)

    def setup_seconds(self, plot: DiskLevels) -> float:
        """Expected duration of setting an environment up, its disk filled."""
        return super().setup_seconds(plot) + 2.0

    def seconds(self, levels: DiskLevels, settings: DiskSettings) -> float:
        """Expected duration of a trial."""
        return _HDPARM_S if levels.operation in _HDPARM else settings.seconds + 1.0


WORKLOAD = Disk()


def _hdparm_rate(said: str) -> float:
    """Read bytes a second; hdparm's MB are MiB (its source divides by 1024 twice)."""
    if "failed" in said:
        raise TrialError(f"hdparm could not drop the page cache: {said.strip()[-200:]}")
    found = re.search(r"([0-9.]+) ([kM])B in\s+([0-9.]+) seconds", said)
    if not found or float(found[3]) <= 0 or float(found[1]) <= 0:
        raise TrialError(f"hdparm printed no rate: {said[-300:]!r}")
    return float(found[1]) * {"k": 1 << 10, "M": 1 << 20}[found[2]] / float(found[3])


def _fio(levels: DiskLevels, seconds: int, path: str) -> tuple[str, ...]:
    direct = levels.io == "direct"
    engine = ("--ioengine", "libaio", "--iodepth", str(levels.depth)) if direct else (
        "--ioengine", "psync",
    )  # fmt: skip
    return (
        "fio", "--name", "tare", "--filename", path, "--rw", levels.operation,
        "--bs", str(levels.block), "--direct", "1" if direct else "0", *engine,
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
