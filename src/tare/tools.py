"""Programs of the system that workloads and interference run in an environment.

Where an environment has a root of its own (a guest, another machine) they are brought there from
this machine, so that every environment runs the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

TOOLS = ("stress-ng", "sysbench", "iperf3", "fio", "hdparm", "nc.openbsd", "dd", "timeout")


def named_in(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the tools that a command line names: itself, or further on (`sh -c`, `probe meet`)."""
    words = {PurePosixPath(word).name for word in " ".join(argv).split()}
    return tuple(tool for tool in TOOLS if tool in words)
