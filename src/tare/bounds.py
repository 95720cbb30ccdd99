"""`--polite`: all that a run starts in one control group of its own, behind everything else here.

The group lies beneath the one that Tare was started in (of version 2 the nearest above that hands
controllers on: one that holds processes may not), and no other group is changed. Its shares
are its most (a quota of processor time, a limit on memory); its weight is the least that the kernel
knows, so that whoever else wants a processor gets it first. Both versions of control groups do:
the second one only where the controllers are handed on to us already, since handing them on would
change a group that is not ours.

Sources: cgroups(7); Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tare import mounts, process
from tare.command import Command
from tare.errors import UnavailableError
from tare.leftovers import Registry

_CONTROLLERS = ("cpu", "memory")
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1_000
_NICEST = 19
_IDLE, _BEST_EFFORT = "3", "2"
_TIMEOUT_S = 10.0
_REMEDY = (
    "run as root, on a machine whose control groups are handed on to root; or have systemd bound it"
    " instead: systemd-run --scope -p CPUQuota=50% -p MemoryMax=50% tare ..."
)


@dataclass(frozen=True)
class Bounds:
    """The most that a run may have.

    Attributes:
        processors: share of those that Tare may use; above 0, at most 1.
        memory: share of the machine's.
    """

    processors: float
    memory: float

    @property
    def quota_us(self) -> int:
        """Processor time in a period of 100 ms."""
        offered = len(os.sched_getaffinity(0))
        return max(_LEAST_QUOTA_US, round(self.processors * offered * _PERIOD_US))

    @property
    def memory_bytes(self) -> int:
        """Memory, in whole pages."""
        return int(self.memory * os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Hierarchy:
    """A mounted tree of control groups.

    Attributes:
        point: where it is mounted.
        own: the group that this process is in, as a folder.
        parent: the group in which one of ours can be made.
        version: 1 or 2.
        controllers: those that a group of ours would have.
    """

    point: Path
    own: Path
    parent: Path
    version: int
    controllers: frozenset[str]


def hierarchies() -> list[Hierarchy]:
    """Every one that is mounted, with where we are in it.

    Source: cgroups(7), /proc/PID/cgroup.
    """
    ours: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(",") if controllers else ("",):
            ours[controller] = path
    found = []
    for mount in mounts.listed():
        if mount.kind == "cgroup2":
            own = _below(mount, ours.get("", "/"))
            above = [own, *(path for path in own.parents if path.is_relative_to(mount.point))]
            handed = [(at, _text(at / "cgroup.subtree_control").split()) for at in above]
            whole = (one for one in handed if set(_CONTROLLERS) <= set(one[1]))
            parent, has = next(whole, handed[0])
            found.append(Hierarchy(mount.point, own, parent, 2, frozenset(has)))
        elif mount.kind == "cgroup":
            names = [name for name in mount.options.split(",") if name in ours]
            if names:
                own = _below(mount, ours[names[0]])
                found.append(Hierarchy(mount.point, own, own, 1, frozenset(names)))
    return found


def _below(mount: mounts.Mount, path: str) -> Path:
    """Where a group is, by what of its hierarchy is mounted there."""
    return mount.point / path.removeprefix(str(mount.root).rstrip("/")).lstrip("/")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def places() -> Mapping[str, Hierarchy]:
    """Controller -> the hierarchy in which a group of ours can have it.

    Raises:
        UnavailableError: there is none, or this user may make no group there.
    """
    mounted = hierarchies()
    found: dict[str, Hierarchy] = {}
    for controller in _CONTROLLERS:
        for one in mounted:
            if controller in one.controllers:
                found[controller] = one
        if controller not in found:
            raise UnavailableError(
                f"--polite: no control group can be made here with the controller {controller}",
                _REMEDY,
            )
        where = found[controller].parent
        if not os.access(where, os.W_OK):
            raise UnavailableError(f"--polite: this user may make no group in {where}", _REMEDY)
    return found


_bounded: list[Bounds] = []


def are_on() -> bool:
    """Whether this process, and with it all that it starts, is in such a group."""
    return bool(_bounded)


@contextmanager
def within(bounds: Bounds | None, registry: Registry) -> Iterator[None]:
    """Move this process into a group of its own; on leaving back to where it was.

    Args:
        bounds: the most that it and its children may have; None bounds nothing.
        registry: of the run: should it be killed, the group is removed by it.

    Raises:
        UnavailableError: no such group can be made.
    """
    if bounds is None:
        yield
        return
    by_place = places()
    with ExitStack() as stack:
        for one in dict.fromkeys(by_place.values()):
            group = one.parent / f"tare-{registry.run_id}-polite"
            stack.enter_context(registry.owing("cgroup", str(group)))
            group.mkdir()
            for name, value in _settings(one, bounds).items():
                (group / name).write_text(value)
            inside = group
            if one.version == 2:
                # Who has groups below it holds no process: a container gets one beside us.
                inside = group / f"tare-{registry.run_id}-run"
                stack.enter_context(registry.owing("cgroup", str(inside)))
                inside.mkdir()
            (inside / "cgroup.procs").write_text(str(os.getpid()))
            stack.callback((one.own / "cgroup.procs").write_text, str(os.getpid()))
        stack.enter_context(_in_the_background())
        _bounded.append(bounds)
        stack.callback(_bounded.pop)
        yield


def _settings(one: Hierarchy, bounds: Bounds) -> dict[str, str]:
    """What is written into a group of ours, by the names of files."""
    quota, memory = bounds.quota_us, str(bounds.memory_bytes)
    found: dict[str, str] = {}
    if one.version == 2:
        if "cpu" in one.controllers:
            found |= {"cpu.weight": "1", "cpu.max": f"{quota} {_PERIOD_US}"}
        if "memory" in one.controllers:
            found |= {"memory.max": memory}
        return found
    if "cpu" in one.controllers:
        found |= {"cpu.shares": "2", "cpu.cfs_period_us": str(_PERIOD_US)}
        found |= {"cpu.cfs_quota_us": str(quota)}
    if "memory" in one.controllers:
        found |= {"memory.limit_in_bytes": memory}
    return found


@contextmanager
def _in_the_background() -> Iterator[None]:
    """Have this process wait for its turn, at processors and disks, and with it its children."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _yield_to_others(_NICEST, _IDLE)
    try:
        yield
    finally:
        with suppress(PermissionError):  # who is not root may only become nicer
            _yield_to_others(before, _BEST_EFFORT)


def _yield_to_others(nice: int, disk: str) -> None:
    """Both are a thread's own, and a child has those of the thread that started it."""
    process.run(Command(("true",)), _TIMEOUT_S)  # the thread that starts all is there from now on
    threads = os.listdir("/proc/self/task")  # noqa: PTH208 - names are wanted
    for thread in threads:
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread), nice)
    process.run(Command(("ionice", "--ignore", "-c", disk, "-p", *threads)), _TIMEOUT_S)
