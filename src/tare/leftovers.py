"""What a run owes the machine: a registry on disk of everything that it makes, and its undoing.

Before a run makes something that outlives a process (a namespace, a mount, a container, ...), it
writes down its intent; after a kill -9 the next start, or `tare clean`, finds the list and undoes
it. A run that is alive holds a lock on its list, so that nothing of it is ever touched.

On disk: `ROOT/RUN/` with `lock` (flock held while the run lives), `owner` (JSON: boot id and the
owner's mark) and `entries.ndjson` (one JSON object a line: `{"kind", "name", "detail"}`; a torn
last line is an intent whose making had not begun). Undoing is idempotent and goes backwards.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tare import interrupts, netns
from tare.command import OWNER_VARIABLE, is_within_exec, owner_mark, spaces, start_time
from tare.errors import TareError, UnavailableError, UsageError, remedy_of
from tare.pauses import pauses
from tare.undo import Entry, Kind, kill_all, processes, undo

__all__ = ["Entry", "Kind", "Registry", "clean", "clean_unlisted", "kill_marked", "marked"]

ROOT = Path("/run/tare")

_LOG = logging.getLogger(__name__)
_ENTRY = TypeAdapter(Entry)
_LOCK_PATIENCE_S = 5.0


class Registry(AbstractContextManager["Registry"]):
    """The list of one run, held while it lives. Leaving it undoes whatever is still on it.

    First every process is killed that was started since, wherever it went.

    Args:
        root: where lists are kept; a test gives its own.

    Raises:
        TareError: no list can be kept there.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.run_id = secrets.token_hex(3)
        """Six hexadecimal digits: short, since it goes into names of network interfaces."""
        self.directory = root / self.run_id
        self._entries: list[Entry] = []
        self._earlier = frozenset(marked(OWNER_VARIABLE, owner_mark()))
        """Processes of ours that are none of this run's."""
        try:
            # `clean` takes an unlocked list for a dead run's, so none may see ours before it is
            # locked.
            with _only_one(root), ExitStack() as unmade:
                # Whoever could write there could have root undo what he likes.
                self.directory.mkdir(mode=0o755)
                unmade.callback(shutil.rmtree, self.directory)
                self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
                unmade.callback(os.close, self._lock)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                owner = {"boot": _boot_id(), "mark": owner_mark()}
                (self.directory / "owner").touch(mode=0o644)
                (self.directory / "owner").write_text(json.dumps(owner))
                self._list = os.open(
                    self.directory / "entries.ndjson", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
                )
                unmade.pop_all()
        except OSError as error:
            raise TareError(
                f"cannot write to {root}: {error.strerror}", remedy_of(error)
            ) from error

    def add(self, kind: Kind, name: str, detail: str = "") -> Entry:
        """Write down an intent. Call it *before* making the thing.

        Raises:
            TareError: it cannot be written, so the thing may not be made.
        """
        try:
            entry = Entry(kind, name, detail)
        except ValueError as error:
            raise UsageError(str(error), "name it plainly, by a path without ..") from error
        line = json.dumps({"kind": kind, "name": name, "detail": detail}) + "\n"
        end = os.fstat(self._list).st_size
        try:
            whole = os.write(self._list, line.encode()) == len(line.encode())
        except OSError:
            whole = False
        if not whole:
            os.ftruncate(self._list, end)  # so that the next line stands alone
            raise TareError(f"cannot write to {self.directory}: the disk is full", "make room")
        self._entries.append(entry)
        return entry

    def undo(self, entry: Entry) -> None:
        """Undo one thing now. It stays on the list, since undoing twice does no harm."""
        undo(entry)
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

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder of root's alone among temporary files, which goes with the context.

        Others may pass the one that it is in.
        """
        folder = Path(tempfile.gettempdir()) / f"tare-{self.run_id}"
        if not str(folder).isprintable():
            raise UsageError(f"no list can hold {str(folder)!r}", "set TMPDIR to a plain name")
        own = folder / "own"
        with self.owing("directory", str(folder)):
            for path in (folder, own):
                path.mkdir(mode=0o700)
            # What programs print and are given lies in `own`, which may be anybody's secret.
            folder.chmod(0o711)
            yield own

    def __exit__(self, *raised: object) -> None:
        try:
            # Who interrupts it wants things clean.
            with interrupts.put_off():
                ours = _bears(OWNER_VARIABLE, owner_mark())
                kill_all(lambda pid: pid not in self._earlier and ours(pid))
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
                if _is_free(lock, directory):
                    done += _clean_dead(directory)
            except TareError as error:
                errors.append(error)
            finally:
                os.close(lock)
    if errors:
        raise TareError("; ".join(error.what for error in errors), errors[0].remedy)
    return done


def _is_free(lock: int, directory: Path) -> bool:
    """Take a run's lock if the run is dead.

    A killed run's lock can outlive it for a moment, in a child that was on its way to its program.
    """
    for _ in pauses(_LOCK_PATIENCE_S):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, _, start = _owner(directory)[1].partition(":")
            if pid.isdecimal() and str(start_time(int(pid))) == start:
                return False
        else:
            return True
    return False


def _owner(directory: Path) -> tuple[str, str]:
    """Read the boot and the mark of a run's owner; empty if it was killed before it wrote them."""
    try:
        owner = json.loads((directory / "owner").read_bytes())
        return str(owner["boot"]), str(owner["mark"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return "", ""


def _clean_dead(directory: Path) -> list[str]:
    entries = list(_read_entries(directory / "entries.ndjson"))
    boot, mark = _owner(directory)
    if boot != _boot_id():
        # Processes, namespaces and mounts went with the reboot; the names may be others' now.
        entries = [entry for entry in entries if entry.kind in ("directory", "file")]
        mark = ""
    if mark == owner_mark():
        mark = ""  # a list of ours that could not be undone: our processes live on
    done = _told(kill_marked(OWNER_VARIABLE, mark)) if mark else []
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
            yield _ENTRY.validate_json(line)
        except ValidationError:
            _LOG.warning("%s holds a line that is no entry: %r", path, line[:200])


def _undo_all(entries: list[Entry]) -> list[str]:
    """Undo in reverse order; one that resists does not keep the others from being undone."""
    done: list[str] = []
    errors: list[str] = []
    for entry in reversed(entries):
        try:
            if undo(entry):
                done.append(f"{entry.kind} {entry.name}")
        except (OSError, TareError) as error:
            errors.append(f"{entry.kind} {entry.name}: {error}")
    if errors:
        raise TareError(
            "could not remove what a run left behind: " + "; ".join(errors),
            "remove it by hand, or run `tare clean` again",
        )
    return done


def clean_unlisted() -> list[str]:
    """Undo what bears the mark of a dead owner and is on no list; return a line for each.

    A program that detached itself, of a run that ended; programs and network namespaces of one
    whose list was elsewhere.

    Raises:
        TareError: something resisted.
    """
    done = _told(kill_all(_is_orphan))
    entries = []
    for path in sorted(Path("/run/netns").glob("tare-*")):
        with suppress(TareError):  # it may have gone
            mark, _, where = netns.owner(path.name).partition(" ")
            if where == spaces() and _is_dead(*mark.split(":")):
                entries.append(Entry("netns", path.name))
    return done + _undo_all(entries)


def _is_orphan(pid: int) -> bool:
    marks = re.findall(rb"(?:^|\0)%b=(\d+):(\d+)\0" % OWNER_VARIABLE.encode(), _environment(pid))
    # Where numbers or clocks are others, as in a container, the owner may live unseen.
    return any(_is_dead(*mark) for mark in marks) and spaces(pid) == spaces()


def _is_dead(pid: bytes | str, start: bytes | str) -> bool:
    return start_time(int(pid)) != int(start)


def kill_marked(variable: str, mark: str) -> list[int]:
    """Kill every process that was given this variable with this value; return the pids."""
    return kill_all(_bears(variable, mark))


def marked(variable: str, mark: str) -> list[int]:
    """Every process that was given this variable with this value."""
    return processes(_bears(variable, mark))


def _bears(variable: str, mark: str) -> Callable[[int], bool]:
    wanted = f"{variable}={mark}".encode()
    return lambda pid: wanted in _environment(pid).split(b"\0")


def _told(killed: list[int]) -> list[str]:
    return [f"process {pid} of a dead run" for pid in killed]


def _environment(pid: int) -> bytes:
    """What a process was given; empty where it cannot be told.

    One that is on its way to its program shows nothing for a moment, and may make something after
    we have looked for it: it is waited for.
    """
    shown = Path(f"/proc/{pid}/environ")
    try:
        for _ in pauses(_LOCK_PATIENCE_S):
            if (found := shown.read_bytes()) or not is_within_exec(pid):
                break
        return found or shown.read_bytes()  # it may have got there since we read
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Let one process at a time make or judge lists."""
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o755)
        lock = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise UnavailableError(f"cannot write {root}", "run as root") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
