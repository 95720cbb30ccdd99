"""Every workload of this version; adding one is adding a line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tare.workloads import Workload
from tare.workloads.cpu import CPU
from tare.workloads.disk import Disk
from tare.workloads.memory import MEMORY
from tare.workloads.migration import Migration
from tare.workloads.mpi_io import MpiIo
from tare.workloads.network import Network
from tare.workloads.overhead import Overhead
from tare.workloads.request_reply import RequestReply


@cache
def by_name() -> Mapping[str, Workload]:
    """Name, as experiment files write it -> workload."""
    found: tuple[Workload, ...] = (
        RequestReply(), CPU, MEMORY, Disk(), Network(), Overhead(), Migration(), MpiIo(),
    )  # fmt: skip
    return {workload.name: workload for workload in found}
