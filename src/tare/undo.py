"""How each kind of thing that a run makes is undone. Idempotent: what is gone is no error."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tare import mounts, netns, process, uprobes
from tare.command import start_time
from tare.errors import TareError
from tare.pauses import pauses

Kind = Literal[
    "netns",
    "mount",
    "cgroup",
    "process",
    "directory",
    "file",
    "container",
    "uprobe",
    "loop",
    "ksm",
]
"""What can be left behind. `name` is, by kind: a namespace's name; a mount point; a cgroup's
directory, whose name begins with `tare-`; `PID:START TIME`; a path; a path; a container's id, with
`detail` the runc state directory; a tracepoint's name; a file or device; a setting of KSM, with
`detail` what it was before."""

KSM_SETTINGS = ("run", "pages_to_scan", "sleep_millisecs")
"""Of kernel same-page merging: what a run may change."""
_KSM = Path("/sys/kernel/mm/ksm")
_KILL_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Entry:
    """One thing that is made, or about to be."""

    kind: Kind
    name: str
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that cannot be one: nothing else may be acted on."""
        if self.kind in ("mount", "cgroup", "directory", "file", "loop"):
            right = Path(self.name).is_absolute() and ".." not in Path(self.name).parts
        else:
            right = "/" not in self.name and not self.name.startswith((".", "-"))
        if not self.name or not self.name.isprintable() or not right:
            raise ValueError(f"{self.name!r} cannot name a {self.kind}")


def undo(entry: Entry) -> bool:
    """Undo one entry; tell whether there was anything to undo."""
    try:
        return _UNDO[entry.kind](entry)
    except TareError:
        # It may have gone meanwhile, by somebody else or a command of ours that was interrupted.
        _UNDO[entry.kind](entry)
        return True


def _undo_process(entry: Entry) -> bool:
    pid_text, _, start_text = entry.name.partition(":")
    if not (pid_text.isdigit() and start_text.isdigit()):
        return False
    return kill([int(pid_text)], lambda pid: start_time(pid) == int(start_text)) != []


def _undo_netns(entry: Entry) -> bool:
    path = Path("/run/netns") / entry.name
    if not path.exists():
        return False
    _kill_dwellers(entry.name)
    _unmount(path)
    path.unlink(missing_ok=True)
    return True


def _kill_dwellers(name: str) -> None:
    """Kill who is in a namespace of ours: a daemon may have overwritten the mark that it had."""
    dwells = netns.dwells_in(name)
    if not dwells(os.getpid()):  # else all of this machine's would be in it
        kill_all(dwells)


def _undo_mount(entry: Entry) -> bool:
    return _unmount(Path(entry.name))


def _unmount(point: Path) -> bool:
    """Detach every mount at a point."""
    undone = False
    while point in _mount_points():
        process.run(process.Command(("umount", "--lazy", str(point))), timeout_s=10)
        undone = True
    return undone


def _undo_cgroup(entry: Entry) -> bool:
    path = Path(entry.name)
    # A mount point of the cgroup file system would be detached for the whole machine.
    if not path.name.startswith("tare-") or path in _mount_points() or not path.is_dir():
        return False
    for name, _, _ in os.walk(path, topdown=False):
        directory = Path(name)
        _kill_inmates(directory)
        _remove_cgroup(directory)
    return True


def _kill_inmates(directory: Path) -> None:
    """Kill a cgroup's processes; none that left it meanwhile, or has the pid of one that ended."""

    def inmates() -> list[int]:
        try:
            return [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
        except OSError as error:
            # Whoever made it may remove it at the same time, as runc does.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            return []

    kill(inmates(), lambda pid: pid in inmates())


def _remove_cgroup(directory: Path) -> None:
    """Remove an empty cgroup: the kernel refuses for a moment after its last process is gone."""
    for _ in pauses(_KILL_PATIENCE_S):
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return
    directory.rmdir()


def _undo_directory(entry: Entry) -> bool:
    path = Path(entry.name)
    if not path.is_dir() or path.is_symlink():
        return False
    if within := mounts.within(path):
        raise TareError(f"{path} has {within[0]} mounted in it")
    shutil.rmtree(path)
    return True


def _undo_file(entry: Entry) -> bool:
    path = Path(entry.name)
    if not path.is_symlink() and (path.is_dir() or not path.exists()):
        return False
    path.unlink(missing_ok=True)
    return True


def _undo_container(entry: Entry) -> bool:
    if not Path(entry.detail, entry.name).exists():
        return False
    runc = ("runc", "--root", entry.detail, "delete", "--force", entry.name)
    process.run(process.Command(runc), timeout_s=20)
    return True


def _undo_uprobe(entry: Entry) -> bool:
    return uprobes.remove(entry.name)


def _undo_loop(entry: Entry) -> bool:
    """Detach every loop device on a file; the kernel lets go of one that is in use at its end."""
    listed = process.run(
        process.Command(
            ("losetup", "--associated", entry.name, "--output", "NAME", "--noheadings")
        ),
        timeout_s=10,
        accept=(0, 1),  # 1: what it was on is gone, and with it what could be told
    )
    devices = listed.stdout.split()
    for device in devices:
        process.run(process.Command(("losetup", "--detach", device)), timeout_s=10)
    return devices != []


def _undo_ksm(entry: Entry) -> bool:
    setting = _KSM / entry.name
    if entry.name not in KSM_SETTINGS or not entry.detail.isdigit() or not setting.exists():
        return False
    if entry.name == "run":
        setting.write_text("2")  # what was merged for the run is unmerged
    setting.write_text(entry.detail)
    return True


_UNDO: dict[Kind, Callable[[Entry], bool]] = {
    "netns": _undo_netns,
    "mount": _undo_mount,
    "cgroup": _undo_cgroup,
    "process": _undo_process,
    "directory": _undo_directory,
    "file": _undo_file,
    "container": _undo_container,
    "uprobe": _undo_uprobe,
    "loop": _undo_loop,
    "ksm": _undo_ksm,
}


def kill(pids: list[int], is_ours: Callable[[int], bool]) -> list[int]:
    """Kill processes and wait until they are gone.

    The test is repeated once a pidfd pins the process, so that a recycled pid is never killed.
    """
    killed: list[int] = []
    with ExitStack() as stack:
        killing: list[int] = []
        for pid in pids:
            if pid == os.getpid():
                continue
            pidfd = process.pinned(pid)
            if pidfd is None:
                continue
            stack.callback(os.close, pidfd)
            if is_ours(pid):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    killing.append(pidfd)
                    killed.append(pid)
        deadline = time.monotonic() + _KILL_PATIENCE_S
        for pidfd in killing:
            process.wait_pidfd(pidfd, deadline - time.monotonic())
    return killed


def processes(are_meant: Callable[[int], bool]) -> list[int]:
    """Every process that is meant, by pid."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if are_meant(pid)]


def kill_all(are_meant: Callable[[int], bool]) -> list[int]:
    """Kill every process that is meant, this one apart; return the pids."""
    killed: list[int] = []
    # Again until none is found: one of them may have forked while we looked.
    for _ in range(100):
        found = kill(processes(are_meant), are_meant)
        if not found:
            break
        killed += found
    return killed


def _mount_points() -> set[Path]:
    """Every mount point of this namespace."""
    return {mounted.point for mounted in mounts.listed()}
