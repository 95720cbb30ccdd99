"""The gate on commands that print what they cost, so that no time decides what a test finds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from needs import needs_root
from tare.errors import Exit

pytestmark = [pytest.mark.system, needs_root]

SCRIPT = """\
#!/bin/sh
echo cost $(($1 * 1000 + $$ % 10))
"""


def measure(tmp_path: Path, old: int, new: int, *more: str) -> list[str]:
    (tmp_path / "app").write_text(SCRIPT)
    (tmp_path / "app").chmod(0o755)
    return [
        *(sys.executable, "-m", "tare", "measure", "--fail-on", "slower", "--cwd", str(tmp_path)),
        *("--against", f"./app {old}", "--read", "cost:ns=cost ([0-9]+)", "--statistic", "cost"),
        *("--runs-per-session", "2", "--takes", "2 ms", "--out", str(tmp_path / "r"), *more),
        *("--", "./app", str(new)),
    ]


def blocks(folder: Path) -> int:
    if not (folder / "trials.ndjson").is_file():
        return 0
    lines = (folder / "trials.ndjson").read_text().splitlines()
    return len({json.loads(line)["block"] for line in lines[:-1]})


@pytest.mark.parametrize(
    ("new", "more", "ends", "at"),
    [
        (110, (), Exit.FAILED, 8),
        (100, (), Exit.OK, 8),
        (90, ("--margin", "1%"), Exit.OK, 8),
    ],
)
def test_a_gate_ends_as_soon_as_it_is_clear_with_its_code(
    tmp_path: Path, new: int, more: tuple[str, ...], ends: Exit, at: int
) -> None:
    summary = tmp_path / "summary.md"
    argv = measure(tmp_path, 100, new, "--markdown", str(summary), *more)
    found = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert found.returncode == ends, found.stderr
    assert blocks(tmp_path / "r") == at
    assert f"after {at} of at most" in found.stdout
    assert f"| {at} |" in summary.read_text()
    assert "+10 % is found 80 times in 100" in found.stderr


def test_a_gate_that_was_killed_goes_on_and_ends_with_its_code(tmp_path: Path) -> None:
    argv = measure(tmp_path, 100, 110)
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 120
        while blocks(tmp_path / "r") < 3 and run.poll() is None and time.monotonic() < deadline:
            os.sched_yield()
        run.send_signal(signal.SIGKILL)
    assert 3 <= blocks(tmp_path / "r") < 8
    again = [sys.executable, "-m", "tare", "run", "--resume", str(tmp_path / "r")]
    assert subprocess.run(again, capture_output=True, check=False).returncode == Exit.FAILED
    assert blocks(tmp_path / "r") == 8
