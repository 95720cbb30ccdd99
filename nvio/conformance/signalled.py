#!/usr/bin/env python3
"""Send signals to `nvio run` and `nvio record`: the command gets them, and nvio does the rest.

    signalled.py NVIO

Also before the command has begun, and where nobody reads what nvio says. What is ignored stays so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from launch import end_session, say

PASSED_ON = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
TELLS_WHICH = """\
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
print("begun", flush=True)
sys.exit(signal.sigwait(signal.valid_signals()))
"""
"""A command that ends with the number of the signal that it got."""
DEAF = """\
trap "" HUP INT TERM
exec "$0" run -- sh -c 'for one in HUP INT TERM; do kill -$one $$; kill -$one $PPID; done; exit 7'
"""
WITH_A_TIMER = """\
import os, signal, sys
signal.setitimer(signal.ITIMER_REAL, 0.3)
os.execv(sys.argv[1], sys.argv[1:])
"""
STARTS = 20


def started(*command: str) -> subprocess.Popen[str]:
    """A process that ignores no signal, whatever is ignored here, in a session of its own."""
    return subprocess.Popen(
        ["env", "--default-signal", *command],
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def status_after(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """How it ends when this signal is sent to it alone; nothing of it is left."""
    process.send_signal(number)
    try:
        return process.wait(timeout=60)
    finally:
        end_session(process)


def passed_on(nvio: str, folder: Path) -> list[str]:
    """Each signal ends the command; then statistics, or the account of the job, are written."""
    wrong = []
    for number in PASSED_ON:
        told = folder / f"stats-{number}"
        trace = folder / f"trace-{number}"
        for words, written in (
            (("run", "--stats-file", str(told)), told),
            (("record", "--output", str(trace)), trace / "job.json"),
        ):
            process = started(nvio, *words, "--", sys.executable, "-c", TELLS_WHICH)
            assert process.stdout is not None
            process.stdout.readline()
            status = status_after(process, number)
            if status != number or not (written.exists() and written.read_text()):
                wrong.append(f"{words[0]}, {number.name}: ended with {status}; {written.name}?")
    return wrong


def at_the_start(nvio: str, _folder: Path) -> list[str]:
    """A signal that comes before the command has begun reaches it."""
    lost = 0
    for _ in range(STARTS):
        process = started(nvio, "run", "--", "sleep", "5")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while process.poll() is None and not children.read_text():
            pass  # the moment counts
        lost += status_after(process, signal.SIGTERM) != 128 + signal.SIGTERM
    return [f"{lost} of {STARTS} signals at the start were lost"] if lost else []


def timed(nvio: str, _: Path) -> list[str]:
    """A timer that was set before nvio began, and so is its own, ends the command all the same."""
    process = started(sys.executable, "-c", WITH_A_TIMER, nvio, "run", "--", "sleep", "30")
    try:
        status = process.wait(timeout=60)
    finally:
        end_session(process)
    return [] if status == 128 + signal.SIGALRM else [f"with a timer it ended with {status}"]


def unread(nvio: str, folder: Path) -> list[str]:
    """A message that nobody reads does not end nvio before it has done all."""
    told = folder / "stats"
    reader, writer = os.pipe()
    os.close(reader)
    command = ["env", "--default-signal", nvio, "run", "--stats-file", str(told), "--", "true"]
    done = subprocess.run(command, stderr=writer, check=False)
    os.close(writer)
    if done.returncode == 0 and told.read_text():
        return []
    return [f"without a reader of its messages it ended with {done.returncode}"]


def ignored(nvio: str, _folder: Path) -> list[str]:
    """Signals that are ignored on purpose end neither the command nor nvio."""
    done = subprocess.run(["sh", "-c", DEAF, nvio], check=False)
    return [] if done.returncode == 7 else ["a signal that was ignored ended the command"]


CHECKS: tuple[Callable[[str, Path], list[str]], ...] = (
    passed_on,
    at_the_start,
    timed,
    unread,
    ignored,
)


def main() -> int:
    """Return 0 if every signal did what it should."""
    with tempfile.TemporaryDirectory(prefix="nvio-signalled-") as folder:
        wrong = [line for check in CHECKS for line in check(sys.argv[1], Path(folder))]
    say("\n".join(wrong) or "every signal reached its command, and nvio did the rest")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
