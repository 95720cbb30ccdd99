#!/usr/bin/env python3
"""Call nvio with words that mean nothing, and look at what it says and how it ends.

    words.py NVIO

A command line that is wrong ends with 2 and names what is wrong; a folder that is no store with 1,
unless it is that of a job which is just taking it away. Nothing of it goes to standard output,
which scripts read. Root looks into each folder as its own owner.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from launch import say

GOING = """
store=/dev/shm/nvio-$(id -u)-$NVIO_SESSION
mkdir -m 700 "$store"
(sleep 0.3; rmdir "$store") >/dev/null 2>&1 &
"""
OF_ANOTHER_USER = """
store=$NVIO_STORE/nvio-$(id -u)-$NVIO_SESSION.0123abcd.node0
mkdir -m 700 "$store"
chmod 755 "$NVIO_STORE"
chown 65534 "$store" 2>/dev/null || rmdir "$store"
"""
WRONG = {
    ("bogus",): (2, "there is no command 'bogus'"),
    (): (2, "subcommand"),
    ("inspect",): (2, "store is required"),
    ("run", "--bogus", "--", "true"): (2, "--bogus"),
    ("run",): (2, "stands after --"),
    ("run", "--set", "prefetc=whole", "--", "true"): (2, "did you mean prefetch?"),
    ("run", "--set", "prefetch=most", "--", "true"): (2, "--set prefetch=most: "),
    ("run", "--capacity", "much", "--", "true"): (2, "--capacity much: "),
    ("run", "--store", "here", "--", "true"): (2, "absolute path"),
    ("run", "--stats=more", "--", "true"): (2, "off, job or ranks"),
    ("run", "--stats-file", "/nowhere/stats", "--", "true"): (2, "cannot write /nowhere/stats"),
    ("run", "--stats=off", "--stats-file", "/dev/null", "--", "true"): (2, "nothing to write"),
    ("run", "--stats", "--", "true"): (0, "nvio served no process of this command"),
    ("run", "--", "sh", "-c", GOING): (0, ""),
    ("list", "/nowhere"): (1, "cannot look into /nowhere"),
    ("list", "--", "/nowhere"): (1, "cannot look into /nowhere"),
    ("calibrate", "/proc/version"): (2, "/proc/version"),
    ("calibrate", "--store", "/nowhere", "/"): (1, "cannot look at /nowhere"),
    ("run", "--", "/nowhere/program"): (127, "/nowhere/program"),
    ("inspect", "/nowhere"): (1, "no store at /nowhere"),
    ("inspect", "/proc/version"): (1, "/proc/version is not a folder"),
    ("recover", "/nowhere"): (1, "no store at /nowhere"),
}
NO_TRACE = (1, "made no MPI-IO call, or none of its ranks could write into")


def main() -> int:
    """Return 0 if every call ended and spoke as it should."""
    nvio = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        others = {("run", "--store", folder, "--", "sh", "-c", OF_ANOTHER_USER): (0, "")}
        others[("record", "--output", f"{folder}/trace", "--", "true")] = NO_TRACE
        empty = {(command, folder): (1, "no store of nvio") for command in ("inspect", "recover")}
        wrong = [
            line
            for words, ends in (WRONG | empty | others).items()
            if (line := tried(nvio, words, ends))
        ]
    recording = ("NVIO_RECORD=/tmp", nvio, "run", "--", "true")
    stored = ("NVIO_STORE=/nowhere", nvio, "calibrate", "/")
    lines = [
        tried("env", recording, (2, "recorded in place of cached")),
        tried("env", stored, (1, "cannot look at /nowhere")),
        tried_apart(nvio),
    ]
    wrong += [line for line in lines if line is not None]
    if os.geteuid() == 0:
        wrong += tried_as_owners(nvio)
    say("\n".join(wrong) or "every wrong word was named")
    return 1 if wrong else 0


def tried_apart(nvio: str) -> str | None:
    """Call a copy of nvio in a folder that LD_PRELOAD cannot name."""
    with tempfile.TemporaryDirectory(prefix="nvio of ") as folder:
        (Path(folder) / "libnvio.so").touch()
        copy = shutil.copy(nvio, folder)
        return tried(copy, ("run", "--", "true"), (1, "LD_PRELOAD takes no path"))


def tried_as_owners(nvio: str) -> list[str]:
    """Call nvio as root with folders of several users, of one name; return what went wrong."""
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(user) / "nvio-job" for user in (65533, 0, 65534)]
        for folder in folders:
            folder.mkdir(0o700, parents=True)
            os.chown(folder, int(folder.parent.name), -1)
        ends = [(1, f"{folder} is no store of nvio") for folder in folders]
        words = ("recover", *map(str, folders))
        return [line for end in ends if (line := tried(nvio, words, end))]


def tried(nvio: str, words: tuple[str, ...], ends: tuple[int, str]) -> str | None:
    """Call nvio; return a sentence if it ended otherwise than it should."""
    done = subprocess.run([nvio, *words], text=True, capture_output=True, check=False)
    if done.returncode == ends[0] and ends[1] in done.stderr and not done.stdout:
        return None
    said = (done.stdout + done.stderr).strip()
    return f"nvio {' '.join(words)}: ended with {done.returncode}, not {ends[0]}, saying: {said}"


if __name__ == "__main__":
    sys.exit(main())
