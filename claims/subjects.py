"""What each claim's figure is made by: a result is not one of code that came after.

A result is kept with a digest of each of these, and reads *pending* once one of them has changed:
measured then, not since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

_RUNNING = ("src/tare/runner.py", "src/tare/process.py")
_ECHO = ("echo", "src/tare/workloads/request_reply.py")
_STATISTICS = ("src/tare/stats",)
_ANALYSIS = ("src/tare/analysis", *_STATISTICS)
_ENVIRONMENTS = ("src/tare/environments", "src/tare/guests")
_COMMANDS = ("probe/execute.cc", "src/tare/workloads/command", "src/tare/trees")
_NVIO = tuple(
    f"nvio/{room}"
    for room in (
        "cache", "entry", "interpose", "log", "manager", "medium", "mpi", "nodes", "process",
        "recovery", "settings", "store", "system", "transport",
    )
)  # fmt: skip
_PREDICTED = ("nvio/predict", "nvio/record")
_PAGESHARE = tuple(f"pageshare/{crate}/src" for crate in ("index", "proxy", "stream", "wire"))
_TESTBED = ("src/tare/workloads/migration",)
_FIRST_LISTS = tuple(
    f"setup/apt/{name}.txt" for name in ("python", "native", "echo", "hosts", "qemu")
)

SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "A1": _ECHO,
    "A2": _ECHO,
    "A3": (*_ECHO, *_STATISTICS),
    "A4": (*_ECHO, *_STATISTICS),
    "A5": (*_ECHO, *_ANALYSIS, "src/tare/accounting.py", "src/tare/operations.py"),
    "A6": (*_ECHO, "src/tare/environments/container.py", "src/tare/hosts.py"),
    "A7": _ANALYSIS,
    "A8": (*_RUNNING, "src/tare/record.py", "src/tare/leftovers.py", "src/tare/undo.py"),
    "A9": ("src/tare/repetition.py", "src/tare/runner.py", *_STATISTICS),
    "A10": _COMMANDS,
    "A11": (*_COMMANDS, "src/tare/workloads/service"),
    "A12": ("src/tare/cuts.py", "src/tare/analysis/gate.py", *_STATISTICS),
    "A13": ("Makefile", "setup/packages", *_FIRST_LISTS, "requirements.lock"),
    "A14": ("src/tare/history",),
    "B1": (*_ENVIRONMENTS, "probe", "src/tare/workloads"),
    "B2": (*_ENVIRONMENTS, "probe", "src/tare/clocks.py"),
    "B3": (*_ENVIRONMENTS, "probe"),
    "B4": ("src/tare/predict", "src/tare/workloads/overhead.py", "echo"),
    "B5": (*_ENVIRONMENTS, "src/tare/leftovers.py", "src/tare/undo.py"),
    "B6": ("src/tare/far", "src/tare/environments/ssh.py", "src/tare/runner.py"),
    "C1": _NVIO,
    "C2": (*_NVIO, "nvio/bench"),
    "C3": _NVIO,
    "C4": (*_NVIO, "walks"),
    "C5": _NVIO,
    "C6": _NVIO,
    "C7": _PREDICTED,
    "C8": ("walks",),
    "C9": _NVIO,
    "C10": (*_NVIO, "nvio/bench"),
    "C11": (*_NVIO, "nvio/clusters/slurm", "nvio/cli/run.cc"),
    "C12": (*_PREDICTED, "nvio/darshan"),
    "C13": _NVIO,
    "D1": (*_PAGESHARE, *_TESTBED),
    "D2": (*_PAGESHARE, *_TESTBED),
    "D3": (*_PAGESHARE, *_TESTBED),
    "D4": (*_PAGESHARE, *_TESTBED),
    "D5": (*_PAGESHARE, *_TESTBED),
    "D6": (*_PAGESHARE, *_TESTBED),
    "D7": _PAGESHARE,
    "D8": _PAGESHARE,
    "D9": (*_PAGESHARE, *_TESTBED),
    "D10": (*_PAGESHARE, *_TESTBED, "src/tare/wire.py", "src/tare/relay.py", "probe/relay.cc"),
    "D11": tuple(f"pageshare/{crate}/src" for crate in ("index", "stream", "wire")),
    "D12": _PAGESHARE,
    "D13": _PAGESHARE,
    "E1": (
        "Makefile",
        "setup",
        "packaging",
        "requirements.lock",
        "requirements-dev.lock",
        "CMakeLists.txt",
    ),
    "E2": ("src/tare/published", "src/tare/replay.py"),
    "E3": ("docs/guides", "src/tare/cli", "packaging/command_line.py"),
    "E4": ("src/tare/far", "src/tare/environments/ssh.py", "src/tare/runner.py"),
    "E5": ("claims/subjects.py", "claims/ledger.py"),
}
"""Claim -> files and folders of the checkout, beside the experiments that it runs.

Named as narrowly as a figure allows: the report's style changes no response.
"""


def digests(home: Path, rooms: Iterable[str]) -> dict[str, str]:
    """Name the content of each room: its sources, without tests.

    Args:
        home: the checkout.
        rooms: files and folders; where one is not there, its digest is that of nothing.
    """
    return {room: _digest(home, home / room) for room in rooms}


def changed(home: Path, before: Mapping[str, str]) -> list[str]:
    """The rooms whose content is not what it was."""
    now = digests(home, before)
    return [room for room in before if now[room] != before[room]]


def _digest(home: Path, room: Path) -> str:
    files = [room] if room.is_file() else sorted(filter(is_source, room.rglob("*")))
    content = hashlib.sha256()
    for path in files:
        if path.is_file():
            content.update(f"{path.relative_to(home)}\0".encode())
            content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()[:16]


def is_source(path: Path) -> bool:
    """Whether a file of a room makes the figure: no test, no page but guides, which are tried."""
    other = {".pyc", ".svg"} if "guides" in path.parts else {".md", ".pyc", ".svg"}
    return (
        path.suffix not in other and "tests" not in path.parts and not path.stem.endswith("_test")
    )
