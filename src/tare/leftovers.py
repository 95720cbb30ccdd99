"""What a run owes the machine: a registry on disk of everything that it makes, and its undoing.

Before a run makes something that outlives a process (a namespace, a mount, a container, ...), it
writes down its intent; after a kill -9 the next start, or `tare clean`, finds the list and undoes
it. A run that is alive holds a lock on its list, so that nothing of it is ever touched.

On disk: `ROOT/RUN/` with `lock` (flock held while the run lives), `owner` (JSON: boot id and the
owner's mark) and `entries.ndjson` (one JSON object a line: `{"kind", "name", "detail"}`; a torn
last line is an intent whose making had not begun). Undoing is idempotent and goes backwards.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, get_args

from tare import process
from tare.command import OWNER_VARIABLE, owner_mark, start_time
from tare.errors import TareError, UnavailableError

__all__ = ["Entry", "Kind", "Registry", "clean"]

ROOT = Path("/run/tare")

Kind = Literal["netns", "link", "mount", "cgroup", "process", "directory", "file", "container"]
"""What can be left behind. `name` is, by kind: a namespace's name; a link's name in this
namespace; a mount point; a cgroup's directory, whose name begins with `tare-`; `PID:START TIME`;
a path; a path; a container's id, with `detail` the runc state directory."""

_LOG = logging.getLogger(__name__)
_KILL_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Entry:
    """One thing that is made, or about to be."""

    kind: Kind
    name: str
    detail: str = ""


class Registry(AbstractContextManager["Registry"]):
    """The list of one run, held while it lives. Leaving it undoes whatever is still on it.

    Args:
        root: where lists are kept; a test gives its own.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.run_id = secrets.token_hex(3)
        """Six hexadecimal digits: short, since it goes into names of network interfaces."""
        self.directory = root / self.run_id
        self._entries: list[Entry] = []
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o755)
        except PermissionError as error:
            raise UnavailableError(f"cannot write {root}", "run as root") from error
        # `clean` takes an unlocked list for a dead run's, so none may see ours before it is locked.
        with _only_one(root):
            self.directory.mkdir()
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            owner = {"boot": _boot_id(), "mark": owner_mark()}
            (self.directory / "owner").write_text(json.dumps(owner))
            self._list = os.open(
                self.directory / "entries.ndjson", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
            )

    def add(self, kind: Kind, name: str, detail: str = "") -> Entry:
        """Write down an intent. Call it *before* making the thing."""
        if not _is_name(kind, name):
            raise ValueError(f"{name!r} cannot name a {kind}")
        entry = Entry(kind, name, detail)
        line = json.dumps({"kind": kind, "name": name, "detail": detail}) + "\n"
        os.write(self._list, line.encode())
        self._entries.append(entry)
        return entry

    def undo(self, entry: Entry) -> None:
        """Undo one thing now. It stays on the list, since undoing twice does no harm."""
        _undo(entry)
        with suppress(ValueError):
            self._entries.remove(entry)

    @contextmanager
    def owing(self, kind: Kind, name: str, detail: str = "") -> Iterator[Entry]:
        """Write down an intent, and undo it when the context is left."""
        entry = self.add(kind, name, detail)
        try:
            yield entry
        finally:
            self.undo(entry)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            _undo_all(self._entries)
            self._entries.clear()
            with _only_one(self.directory.parent):
                shutil.rmtree(self.directory)
        finally:
            # On failure the list stays, and without its lock the next start tries again.
            os.close(self._list)
            os.close(self._lock)


def clean(root: Path = ROOT) -> list[str]:
    """Undo what dead runs left, and only that; return a line for each thing undone.

    Raises:
        TareError: something resisted. The rest is undone all the same, and its list is kept.
    """
    if not root.is_dir():
        return []
    done: list[str] = []
    errors: list[TareError] = []
    with _only_one(root):
        for directory in sorted(path for path in root.iterdir() if path.is_dir()):
            lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # alive
            else:
                try:
                    done += _clean_dead(directory)
                except TareError as error:
                    errors.append(error)
            finally:
                os.close(lock)
    if errors:
        raise TareError("; ".join(error.what for error in errors), errors[0].remedy)
    return done


def _clean_dead(directory: Path) -> list[str]:
    entries = list(_read_entries(directory / "entries.ndjson"))
    try:
        owner = json.loads((directory / "owner").read_text())
        boot, mark = str(owner["boot"]), str(owner["mark"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        boot, mark = "", ""  # killed before it had made anything
    if boot != _boot_id():
        # Processes, namespaces and mounts went with the reboot; the names may be others' now.
        entries = [entry for entry in entries if entry.kind in ("directory", "file")]
        mark = ""
    if mark == owner_mark():
        mark = ""  # a list of ours that could not be undone: our processes live on
    done = [f"process {pid} of a dead run" for pid in _kill_marked(mark)] if mark else []
    done += _undo_all(entries)
    shutil.rmtree(directory)
    return done


def _read_entries(path: Path) -> Iterator[Entry]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    for line in lines[:-1]:  # what follows the last newline is torn or empty
        try:
            raw = json.loads(line)
            kind, name, detail = raw["kind"], raw["name"], raw["detail"]
        except (ValueError, KeyError, TypeError, RecursionError):
            _LOG.warning("%s holds a line that is no entry: %r", path, line[:200])
            continue
        if kind in get_args(Kind) and isinstance(detail, str) and _is_name(kind, name):
            yield Entry(kind, name, detail)
        else:
            _LOG.warning("%s holds an entry that cannot be: %r", path, line[:200])


def _is_name(kind: Kind, name: object) -> bool:
    """Tell whether such a name could have been written: nothing else may be acted on."""
    if not isinstance(name, str) or not name or not name.isprintable():
        return False
    if kind in ("mount", "cgroup", "directory", "file"):
        return Path(name).is_absolute() and ".." not in Path(name).parts
    return "/" not in name and not name.startswith((".", "-"))


def _undo_all(entries: list[Entry]) -> list[str]:
    """Undo in reverse order; one that resists does not keep the others from being undone."""
    done: list[str] = []
    errors: list[str] = []
    for entry in reversed(entries):
        try:
            if _undo(entry):
                done.append(f"{entry.kind} {entry.name}")
        except (OSError, TareError) as error:
            errors.append(f"{entry.kind} {entry.name}: {error}")
    if errors:
        raise TareError(
            "could not remove what a run left behind: " + "; ".join(errors),
            "remove it by hand, or run `tare clean` again",
        )
    return done


def _undo(entry: Entry) -> bool:
    """Undo one entry; tell whether there was anything to undo."""
    return _UNDO[entry.kind](entry)


def _undo_process(entry: Entry) -> bool:
    pid_text, _, start_text = entry.name.partition(":")
    if not (pid_text.isdigit() and start_text.isdigit()):
        return False
    return _kill([int(pid_text)], lambda pid: start_time(pid) == int(start_text)) != []


def _undo_netns(entry: Entry) -> bool:
    path = Path("/run/netns") / entry.name
    if not path.exists():
        return False
    _unmount(path)
    path.unlink(missing_ok=True)
    return True


def _undo_link(entry: Entry) -> bool:
    if not Path("/sys/class/net", entry.name).exists():
        return False
    process.run(process.Command(("ip", "link", "delete", "dev", entry.name)), timeout_s=10)
    return True


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
        procs = [int(pid) for pid in (directory / "cgroup.procs").read_text().split()]
        _kill(procs, lambda _: True)
        _remove_cgroup(directory)
    return True


def _remove_cgroup(directory: Path) -> None:
    """Remove an empty cgroup: the kernel refuses for a moment after its last process is gone."""
    deadline = time.monotonic() + _KILL_PATIENCE_S
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _undo_directory(entry: Entry) -> bool:
    path = Path(entry.name)
    if not path.is_dir() or path.is_symlink():
        return False
    # Deleting through a bind mount would delete what it shows.
    within = [point for point in _mount_points() if point.is_relative_to(path.resolve())]
    if within:
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


_UNDO: dict[Kind, Callable[[Entry], bool]] = {
    "netns": _undo_netns,
    "link": _undo_link,
    "mount": _undo_mount,
    "cgroup": _undo_cgroup,
    "process": _undo_process,
    "directory": _undo_directory,
    "file": _undo_file,
    "container": _undo_container,
}


def _kill_marked(mark: str) -> list[int]:
    """Kill every process that a dead owner started, found by its mark; return the pids."""
    wanted = f"{OWNER_VARIABLE}={mark}".encode()

    def is_marked(pid: int) -> bool:
        try:
            return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    killed: list[int] = []
    # Again until none is found: one of them may have forked while we looked.
    for _ in range(100):
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        found = _kill([pid for pid in pids if is_marked(pid)], is_marked)
        if not found:
            break
        killed += found
    return killed


def _kill(pids: list[int], is_ours: Callable[[int], bool]) -> list[int]:
    """Kill processes and wait until they are gone.

    The test is repeated once a pidfd pins the process, so that a recycled pid is never killed.
    """
    killed: list[int] = []
    with ExitStack() as stack:
        pinned: list[int] = []
        for pid in pids:
            if pid == os.getpid():
                continue
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, pidfd)
            if is_ours(pid):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    pinned.append(pidfd)
                    killed.append(pid)
        deadline = time.monotonic() + _KILL_PATIENCE_S
        for pidfd in pinned:
            process.wait_pidfd(pidfd, deadline - time.monotonic())
    return killed


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Let one process at a time make or judge lists."""
    lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _mount_points() -> set[Path]:
    """Every mount point of this namespace. Source: proc(5), /proc/PID/mountinfo field 5."""
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    return {Path(_unescape(line.split(" ")[4])) for line in lines}


def _unescape(text: str) -> str:
    for character in " \t\n\\":
        text = text.replace(f"\\{ord(character):03o}", character)
    return text


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
