#!/usr/bin/env python3
"""Kill nvio-bench in the middle of its work: no process of it and no folder stays.

    bench_killed.py NVIO_BENCH

The signals are SIGKILL and the one of Ctrl-C. Nor does anything stay where it finds no room.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from launch import RunError, say

RANKS = 8
TIMEOUT_S = 60.0
MARK = f"NVIO_TEST_MARK={os.getpid()}"


def marked() -> list[Path]:
    """Processes that the benchmark started, and itself."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if MARK in words:
            found.append(process)
    return found


def folders() -> set[Path]:
    """What benchmarks have in memory now."""
    return set(Path("/dev/shm").glob("nvio-bench-*"))  # noqa: S108 - it is theirs


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    """Raise RunError unless it holds in time."""
    limit = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > limit:
            raise RunError(what)
        time.sleep(0.01)


def check(program: str, number: int) -> None:
    """One signal."""
    before = folders()
    command = ["env", "--default-signal=INT", MARK, program, "scale", "--ranks", str(RANKS)]
    command += ["--nodes", "4", "--rounds", "100000"]
    bench = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    # From the second file on every manager has been spoken to: one that waits for its first process
    # does that for a minute.
    wait_until(
        "it does not begin", lambda: any((new / "file2").exists() for new in folders() - before)
    )
    if len(marked()) <= RANKS:
        raise RunError(f"of {RANKS} ranks and their managers there are {len(marked())}")
    made = folders() - before
    bench.send_signal(number)
    if bench.wait(TIMEOUT_S) != -number:
        raise RunError(f"after signal {number} it ended with {bench.returncode}")
    wait_until(f"after signal {number} a process stays", lambda: not marked())
    wait_until(f"after signal {number} a folder stays", lambda: not made & folders())


def check_without_room(program: str) -> None:
    """It fails after its echo server has begun, and before that has a peer."""
    command = ["env", "--ignore-signal=XFSZ", MARK, "prlimit", f"--fsize={1 << 20}", program]
    bench = subprocess.run(
        [*command, "latency"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if bench.returncode != 1 or "File too large" not in bench.stderr:
        raise RunError(f"without room it ended with {bench.returncode}: {bench.stderr}")
    wait_until("without room a process stays", lambda: not marked())


def main() -> int:
    """Check; 0 when all is as it should be."""
    try:
        for number in (signal.SIGKILL, signal.SIGINT):
            check(sys.argv[1], number)
        check_without_room(sys.argv[1])
    except RunError as failure:
        say(str(failure))
        return 1
    say("killed, it leaves nothing")
    return 0


if __name__ == "__main__":
    sys.exit(main())
