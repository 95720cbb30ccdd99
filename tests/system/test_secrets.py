"""A variable that is passed on by its name alone is given to the command, and written nowhere."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from needs import HEARING, needs_root, tare
from tare import environments
from tare.command import start_time
from tare.errors import Exit
from tare.pauses import pauses
from tare.testing import traces

pytestmark = [pytest.mark.system, needs_root]

PATIENCE_S = 120.0
PRESENT = [
    name
    for name in ("native", "container", "gvisor", "qemu")
    if environments.named(name).availability().available
]
LOUD = (
    "import logging, sys; logging.basicConfig(level=logging.DEBUG, filename=sys.argv.pop(1));"
    "from tare.cli import main; main()"
)
"""Tare, with a log of all that it and its libraries say."""


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def others_can_read(folder: Path) -> list[Path]:
    """Files below a folder that another user reaches."""
    found = []
    for name, folders, files in os.walk(folder):
        if Path(name).stat().st_mode & 0o001:
            found += [path for file in files if (path := Path(name, file)).is_file()]
        else:
            folders.clear()  # such as a tree, in which all of this machine's files are
    return [path for path in found if path.stat().st_mode & 0o004]


@pytest.mark.parametrize("where", PRESENT)
def test_it_is_in_no_log_result_report_export_command_line_or_file_of_others(
    tmp_path: Path, where: str
) -> None:
    secret = secrets.token_hex(16)
    told = hashlib.sha256(secret.encode()).hexdigest()
    check = f'printf %s "$API_TOKEN" | sha256sum | grep {told} && sleep 1'
    argv = (
        "measure", "--in", where, "--env", "API_TOKEN", "--env", "MODE=fast", "--shell", "sh",
        "--blocks", "2", "-r", "1", "-w", "0", "--takes", "1 s", "--out", "result",
        "--export-csv", "a.csv", "--export-json", "a.json", "--", check,
    )  # fmt: skip
    seen, readable = b"", []
    with subprocess.Popen(
        [*HEARING, sys.executable, "-c", LOUD, "loud.log", *argv],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "API_TOKEN": secret, "COLUMNS": "200", "NO_COLOR": "1"},
    ) as child:  # fmt: skip
        mark = f"{child.pid}:{start_time(child.pid)}"
        came = False
        for _ in pauses(PATIENCE_S):
            for pid in traces.processes_of(mark):
                with suppress(OSError):
                    seen += Path(f"/proc/{pid}/cmdline").read_bytes()
            for scratch in Path("/tmp").glob("tare-*"):
                with suppress(OSError):
                    readable += [p for p in others_can_read(scratch) if secret in p.read_text()]
            came = came or told.encode() in seen
            if child.poll() is not None:
                break
        out, err = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == Exit.OK, err.decode()
    assert came or where in ("gvisor", "qemu"), "the command was seen, where the host sees it"
    again = tare("run", "result/experiment.yaml", "--dry-run", "--json", cwd=tmp_path)
    assert again.returncode == Exit.OK, again.stderr
    assert b"API_TOKEN" in files(tmp_path / "result"), "that it is passed on is on record"
    assert b'API_TOKEN="$API_TOKEN"' in (tmp_path / "loud.log").read_bytes() or where != "native"
    for name, content in {
        "what was printed": out + err,
        "a command line": seen,
        "a file": files(tmp_path),
    }.items():
        assert secret.encode() not in content, name
    assert readable == []


def test_a_secret_that_is_not_set_is_told_before_anything_runs(tmp_path: Path) -> None:
    done = tare("measure", "--env", "NO_SUCH_TOKEN", "--out", "result", "--", "true", cwd=tmp_path)
    assert done.returncode == Exit.UNAVAILABLE
    assert "NO_SUCH_TOKEN, which is to be passed on, is not set. Export it" in done.stderr
    assert not (tmp_path / "result").exists()


def test_a_run_that_fails_does_not_tell_it(tmp_path: Path) -> None:
    secret = secrets.token_hex(16)
    done = tare(
        "measure", "--env", "API_TOKEN", "--out", "result", "--", "ls", "--no-such-option",
        cwd=tmp_path, API_TOKEN=secret,
    )  # fmt: skip
    assert done.returncode == Exit.TRIALS_FAILED
    assert secret not in done.stdout + done.stderr
