"""What tests on the real machine need, beside their fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def in_a_line(found: subprocess.CompletedProcess[str], words: str) -> None:
    """Whoever copies a message has to find it whole."""
    assert any(words in line for line in found.stderr.splitlines()), found.stderr


def killed_run(root: Path, code: str, *values: str) -> None:
    """Run code with an open `registry` in a process that is then killed."""
    program = f"""
import subprocess, sys
from pathlib import Path
from tare.leftovers import Registry
registry = Registry(Path(sys.argv[1]))
values = sys.argv[2:]
{code}
print(flush=True)
sys.stdin.read()
"""
    argv = [sys.executable, "-c", program, str(root), *values]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"\n"
        run.send_signal(signal.SIGKILL)
