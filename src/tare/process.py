"""The only place that spawns a process: `run` to its end, or `start` and talk to it.

What a process is given is said by `Command` (command.py).

Nothing outlives Tare. Each process leads a session of its own, which is killed whole, with its
descendants; the kernel kills the leader if Tare dies (`setpriv --pdeathsig`); and what escapes both
carries the owner's mark in its environment, by which the end of the run finds it, or the next start
(`leftovers.py`).
"""

from __future__ import annotations

import errno
import logging
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tare.accounting import descendants
from tare.command import PATH, Command
from tare.errors import TrialError, remedy_of
from tare.events import Events
from tare.failures import ProcessError, ended, last_words, late

__all__ = [
    "Command", "Output", "ProcessError", "Running", "pinned", "run", "start", "wait_pid",
    "wait_pidfd",
]  # fmt: skip

_LOG = logging.getLogger(__name__)
_MOST_KEPT = 1 << 20
_GOING_S = 5.0
_LOOK_S = 0.2
"""Between looks whether a process has ended whose pipes are still open."""

# The kernel sends the parent-death signal when the *thread* that spawned the child ends, so that
# a child of some short-lived worker would die with it. One thread spawns them all.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tare-spawner")


@dataclass(frozen=True)
class Output:
    """What a process that ended wrote."""

    stdout: str
    stderr: str


def wait_pidfd(pidfd: int, timeout_s: float) -> bool:
    """Wait until the process of a pidfd has ended, without reaping it; False on timeout."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, timeout_s) * 1000))


def pinned(pid: int) -> int | None:
    """Open a pidfd, which its caller closes; None where the process is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except OSError as error:
        # So says Linux 6.1 where others are still in the group or session that it led.
        if error.errno != errno.EINVAL:
            raise
        return None


def wait_pid(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended, without reaping it, or is gone already; False on timeout."""
    pidfd = pinned(pid)
    if pidfd is None:
        return True
    try:
        return wait_pidfd(pidfd, timeout_s)
    finally:
        os.close(pidfd)


class Running(AbstractContextManager["Running"]):
    """A started process: talk to it by lines, stop it, read what it left.

    Leaving the context kills the process as `kill` does, however it is left. `start` makes one; the
    constructor is private.
    """

    def __init__(self, command: Command, popen: subprocess.Popen[bytes], files: _Files) -> None:
        self.command = command
        self.pid = popen.pid
        self._popen = popen
        self._files = files
        self._pidfd = os.pidfd_open(popen.pid)
        self._whoami = f"{command.name} (pid {self.pid})"
        self._events = Events(self._whoami)
        self._eof = False

    def event(self, timeout_s: float) -> dict[str, Any]:
        """Return the next JSON object of its standard output; other lines are only logged.

        Raises:
            ProcessError: it ended without one, said nothing in time, or wrote broken JSON.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if (event := self._events.next()) is not None:
                return event
            if self._eof:
                self.ended_within(deadline - time.monotonic())
                raise self._failure("without the event that was waited for")
            if not self._read(deadline - time.monotonic()):
                raise ProcessError(
                    "timeout",
                    f"{self._whoami} said nothing within {timeout_s:g} s{self._last_words()}",
                )

    def tell(self, line: str) -> None:
        """Write a line to its standard input.

        Raises:
            ProcessError: it has ended or closed its input.
        """
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(line.encode() + b"\n")
            self._popen.stdin.flush()
        except BrokenPipeError as error:
            raise self._failure("and does not read its input") from error

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return not self.ended_within(0)

    def ended_within(self, timeout_s: float) -> bool:
        """Wait until it ends; False if it still runs after the timeout."""
        return self._popen.returncode is not None or wait_pidfd(self._pidfd, timeout_s)

    def stop(
        self, timeout_s: float = 5.0, *, by: signal.Signals = signal.SIGTERM
    ) -> dict[str, Any]:
        """Ask it to end by a signal and return its last JSON object ({} if it never wrote one).

        Raises:
            ProcessError: it had to be killed, or ended with an error.
        """
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, by)
        return self.finish(timeout_s, sent=by)

    def finish(
        self,
        timeout_s: float,
        *,
        sent: signal.Signals | None = None,
        accept: Sequence[int] = (0,),
    ) -> dict[str, Any]:
        """Wait for its own end and return its last JSON object ({} if it never wrote one).

        Args:
            timeout_s: after this it is killed.
            sent: the signal that it was sent, by which death is no failure.
            accept: exit codes that are no failure.

        Raises:
            ProcessError: it had to be killed, or ended with an error.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            said = self._events.finish()
            if self._eof or not self._read(deadline - time.monotonic()):
                break
        # A program that runs another for us (runc) says by 128 + 15 that it died of our SIGTERM.
        accepted = accept if sent is None else (*accept, -sent, 128 + sent)
        self._end(deadline, timeout_s, accepted)
        return said

    def output(self, timeout_s: float) -> str:
        """Wait for its own end and return what it wrote to standard output since the last event.

        Raises:
            ProcessError: it had to be killed, or ended with an error.
        """
        deadline = time.monotonic() + timeout_s
        while not self._eof and self._read(deadline - time.monotonic()):
            pass
        self._end(deadline, timeout_s, (0,))
        return self._events.unread()

    def _end(self, deadline: float, timeout_s: float, accepted: Sequence[int]) -> None:
        """Wait for its end, and judge it."""
        ended = self.ended_within(deadline - time.monotonic())
        self.kill()
        if not ended:
            raise late(self._whoami, timeout_s, self._last_words())
        if self._popen.returncode not in accepted:
            raise self._failure("")

    def kill(self) -> None:
        """Kill it, everything in its session and all its descendants, and reap it. Idempotent."""
        _kill(self._popen)

    def stderr(self) -> str:
        """Return what it wrote to standard error so far."""
        return self._files.read_stderr().decode(errors="replace")

    def __exit__(self, *raised: object) -> None:
        try:
            self.kill()
        finally:
            assert self._popen.stdin is not None
            assert self._popen.stdout is not None
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
            self._popen.stdout.close()
            os.close(self._pidfd)
            self._files.close()

    def _read(self, timeout_s: float) -> bool:
        """Take what standard output holds; False when nothing came in time."""
        assert self._popen.stdout is not None
        descriptor = self._popen.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.register(self._pidfd, select.POLLIN)
        ready = [which for which, _ in poller.poll(max(0.0, timeout_s) * 1000)]
        if not ready:
            return False
        if descriptor not in ready:
            # It ended and its output is read to the end; a child that holds the pipe open may
            # not keep us waiting.
            self._eof = True
            return True
        chunk = os.read(descriptor, 65536)
        self._eof = not chunk
        self._files.keep_stdout(chunk)
        self._events.add(chunk)
        return True

    def _last_words(self) -> str:
        return last_words(self._files.read_stderr())

    def _failure(self, circumstance: str) -> ProcessError:
        if self.alive():
            return ProcessError(
                "protocol",
                f"{self._whoami} closed its output {circumstance}{self._last_words()}",
            )
        self.kill()
        return ended(
            self._whoami, self.command, self._popen.returncode, circumstance, self._last_words()
        )


def _kill(popen: subprocess.Popen[bytes]) -> None:
    if popen.returncode is not None:
        return
    # Before it ends, since then they become another's; and with them who is its child only because
    # it looks after orphans, as probe/execute does, whatever session that is in.
    family = descendants(popen.pid)
    # The leader is not reaped yet, so its pid, and with it the group, is still ours.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
    going = []
    for pid in {*family, *_session_of(popen.pid)}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            going.append(pid)
    popen.wait()
    # Till they are gone, what they have open is in use.
    deadline = time.monotonic() + _GOING_S
    for pid in going:
        wait_pid(pid, deadline - time.monotonic())


def _session_of(leader: int) -> list[int]:
    """Whoever is in a session, also in a process group of its own."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208 - names are wanted
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(int(name)) == leader:
                found.append(int(name))
    return found


class _Files:
    """Where a process's output is kept: named files in a log directory, or none."""

    def __init__(self, log_dir: Path | None, name: str) -> None:
        with ExitStack() as stack:
            self._stdout: IO[bytes] | None = None
            if log_dir is None:
                self.stderr: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            else:
                try:
                    log_dir.mkdir(parents=True, exist_ok=True)
                    self.stderr = stack.enter_context((log_dir / f"{name}.stderr").open("w+b"))
                    self._stdout = stack.enter_context(
                        (log_dir / f"{name}.stdout").open("wb", buffering=0)
                    )
                except OSError as error:
                    what = f"cannot keep what {name} writes below {log_dir}: {error.strerror}"
                    raise TrialError(what, remedy_of(error)) from error
            self._stack = stack.pop_all()

    def keep_stdout(self, chunk: bytes) -> None:
        if self._stdout is not None:
            with suppress(OSError):  # a log that is cut short, on a full disk, spoils no trial
                self._stdout.write(chunk)

    def read_stderr(self) -> bytes:
        size = os.fstat(self.stderr.fileno()).st_size
        return os.pread(self.stderr.fileno(), _MOST_KEPT, max(0, size - _MOST_KEPT))

    def close(self) -> None:
        self._stack.close()


def start(
    command: Command,
    *,
    log_dir: Path | None = None,
    name: str | None = None,
    pass_fds: Sequence[int] = (),
) -> Running:
    """Start a process; use the result as a context manager.

    Args:
        command: what to start.
        log_dir: where `NAME.stdout` and `NAME.stderr` are written; None keeps neither.
        name: what to call it in messages and logs, by default the program's name.
        pass_fds: open descriptors that it inherits under the same numbers.

    Raises:
        ProcessError: the program is not there, or may not be executed.
    """
    _check_found(command)
    with ExitStack() as stack:
        files = _Files(log_dir, name or command.name)
        stack.callback(files.close)
        popen = _spawn(command, stdin=subprocess.PIPE, stderr=files.stderr, pass_fds=pass_fds)
        _LOG.info("pid %d: %s", popen.pid, command)
        running = Running(command, popen, files)
        stack.pop_all()
    return running


def run(
    command: Command,
    timeout_s: float,
    *,
    stdin: str | None = None,
    accept: Sequence[int] = (0,),
) -> Output:
    """Run a program to its end and return what it wrote.

    Args:
        command: what to run.
        timeout_s: after this it is killed, as `Running.kill` does.
        stdin: what it finds on its standard input; None is nothing.
        accept: exit codes that are no failure.

    Raises:
        ProcessError: worded by kind, with the last lines of its standard error.
    """
    _check_found(command)
    with open(os.memfd_create("stdin"), "w+b") as given:  # noqa: PTH123 - it has no path
        given.write((stdin or "").encode())
        given.seek(0)
        popen = _spawn(command, stdin=given, stderr=subprocess.PIPE)
    _LOG.info("run pid %d: %s", popen.pid, command)
    with popen:
        try:
            out, err = _communicate(popen, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise late(command.name, timeout_s, last_words(error.stderr or b"")) from None
        finally:
            _kill(popen)
    if popen.returncode not in accept:
        raise ended(command.name, command, popen.returncode, "", last_words(err))
    return Output(out.decode(errors="replace"), err.decode(errors="replace"))


def _communicate(popen: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bytes]:
    """What it wrote by its own end: a child that holds its pipes open may not keep us waiting."""
    deadline, ended = time.monotonic() + timeout_s, False
    while True:
        left = deadline - time.monotonic()
        try:
            return popen.communicate(timeout=max(0.0, min(left, _LOOK_S)))
        except subprocess.TimeoutExpired as so_far:
            if ended:
                return so_far.stdout or b"", so_far.stderr or b""
            ended = wait_pid(popen.pid, 0)
            if left <= 0 and not ended:
                raise


def _spawn(
    command: Command,
    *,
    stdin: int | IO[bytes],
    stderr: int | IO[bytes],
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    def spawn() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command.full_argv(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=command.full_env(),
            cwd=command.cwd,
            pass_fds=pass_fds,
            start_new_session=True,
            bufsize=-1,
        )

    try:
        return _SPAWNER.submit(spawn).result()
    except (
        OSError
    ) as error:  # no such working directory, too long a command line, no more processes
        what = f"{command.name} cannot be started: {error.strerror}: {error.filename or command}"
        raise ProcessError("not found", what) from error


def _check_found(command: Command) -> None:
    if command.entering:
        return  # whoever becomes it says so
    program = command.argv[0]
    if shutil.which(program, path=command.env.get("PATH", PATH)) is None:
        exists = os.sep in program and Path(program).exists()
        raise ProcessError(
            "not found",
            f"{program} cannot be started: {'not executable' if exists else 'no such program'}",
            "run `tare doctor`: it names the missing package or build step",
        )
