"""What tests on the real machine need, beside their fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tare.errors import Exit

HOME = Path(__file__).parents[1]
PROGRAMS = HOME / "build"

HEARING = ("env", "--default-signal=INT,TERM,HUP")
"""What to put before a program that is to hear signals: under nohup, or in the background of a
shell without jobs, it would inherit that they are ignored."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


SMALL = """\
title: A small question
factors: {environment: [native, container], transport: [udp, icmp]}
baseline: {environment: native}
family: none # so two blocks may do
blocks: {min: 2, max: 2}
session: {requests: 300, warmup: 30, timeout: 1 s}
"""
"""An experiment of seconds, all of whose parts are real."""


def tare(
    *argv: str | Path, cwd: Path = HOME, typed: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as its user does, and return what came of it.

    Args:
        argv: its words.
        cwd: where.
        typed: its standard input.
        env: variables, beside those of the tests.
    """
    return subprocess.run(
        [sys.executable, "-m", "tare", *argv],
        cwd=cwd, input=typed, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **env},
    )  # fmt: skip


def read_by_man(page: Path) -> str:
    """What man shows of a page, of which it has nothing to complain."""
    read = subprocess.run(
        ["man", "--warnings", "--encoding=UTF-8", "--local-file", str(page)],
        capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert not read.stderr, read.stderr
    return read.stdout


def in_a_line(found: subprocess.CompletedProcess[str], words: str) -> None:
    """Whoever copies a message has to find it whole."""
    assert any(words in line for line in found.stderr.splitlines()), found.stderr


def refused(words: str, *argv: str | Path, **given: Any) -> None:
    """Run a command that is wrong: it is told so, in a line."""
    found = tare(*argv, **given)
    assert found.returncode == Exit.USAGE, found.stderr
    in_a_line(found, words)


def dead_run(root: Path, code: str, **values: object) -> str:
    """Run code with an open `registry` in a process that is then killed; return the run's id."""
    head = f"""
import subprocess
import sys
import time
from pathlib import Path
from tare.leftovers import Registry
root = Path({str(root)!r})
registry = Registry(root)
"""
    tail = "\nprint(registry.run_id, flush=True)\nsys.stdin.read()\n"
    program = head + "".join(f"{k} = {v!r}\n" for k, v in values.items()) + code + tail
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
    return run_id
