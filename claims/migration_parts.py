"""D7, D8 and D13: what pageshare's own tests and benchmarks show; they are cargo's."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from claims import Claim, Result, Workshop, conclude
from tare import process
from tare.command import Command
from tare.stats import Method, mean_interval
from tare.stats.bounds import Bound, Kept

_KILLS = 100
_KILLS_TIMEOUT_S = 3 * 3600.0
_SPEED_TIMEOUT_S = 1800.0
_CROWD_S = 60
_CROWD_A_SECOND = 1000
_CROWD_FILES = 256
_CROWD_THREADS = 32
_CROWD_MIB = 64
_CROWD_TIMEOUT_S = 1800.0


def _cargo(workshop: Workshop, *argv: str, timeout_s: float, **env: str) -> str:
    # Compilers and crates are found by the caller's own PATH and homes.
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR")
        if name in os.environ
    }
    command = Command(("cargo", *argv), env={**inherited, **env}, cwd=workshop.home)
    return process.run(command, timeout_s).stdout


def _check_kills(workshop: Workshop) -> Result:
    workshop.say(f"{_KILLS} kills at random moments, each of a migration of its own")
    try:
        said = _cargo(
            workshop, "bench", "--quiet", "-p", "pageshare", "--bench", "kills",
            timeout_s=_KILLS_TIMEOUT_S,
            PAGESHARE_KILLS=str(_KILLS),
        )  # fmt: skip
    except process.ProcessError as error:
        return Result(Kept.FAILS, f"the run failed: {error.what}", {"kills": _KILLS})
    data = _document(said)
    kills, aimed, arrived, stayed, lost, doubled, changed = (
        int(data[name])
        for name in ("kills", "aimed", "arrived", "stayed", "lost", "doubled", "changed")
    )
    figure = (
        f"{kills} kills, {aimed} of them aimed: {arrived} guests arrived, {stayed} stayed,"
        f" {lost} lost, {doubled} doubled, {changed} with another memory"
    )
    sound = kills >= _KILLS and aimed * 5 >= kills and arrived + stayed == kills
    return Result(Kept.counted(sound), figure, data)


def _check_crowd(workshop: Workshop) -> Result:
    workshop.say(f"migrations for {_CROWD_S} s under {_CROWD_A_SECOND} idle connections a second")
    try:
        said = _cargo(
            workshop, "bench", "--quiet", "-p", "pageshare", "--bench", "crowd",
            timeout_s=_CROWD_TIMEOUT_S,
            PAGESHARE_SECONDS=str(_CROWD_S),
        )  # fmt: skip
    except process.ProcessError as error:
        return Result(Kept.FAILS, f"the run failed: {error.what}", {"seconds": _CROWD_S})
    data = _document(said)
    migrations, arrived, files, threads = (
        int(data[name]) for name in ("migrations", "arrived", "files_most", "threads_most")
    )
    a_second = float(data["connections"]) / float(data["seconds"])
    mib = float(data["kibibytes_most"]) / 1024
    figure = (
        f"{a_second:.0f} connections a second for {float(data['seconds']):.0f} s: {arrived} of"
        f" {migrations} guests arrived; the receiver had at most {files} files open, {threads}"
        f" threads, {mib:.0f} MiB"
    )
    sound = (
        0 < migrations == arrived
        and a_second >= 0.95 * _CROWD_A_SECOND
        and files <= _CROWD_FILES
        and threads <= _CROWD_THREADS
        and mib <= _CROWD_MIB
    )
    return Result(Kept.counted(sound), figure, data)


def _document(said: str) -> dict[str, Any]:
    """The JSON document that a benchmark prints on a line of its own."""
    found: dict[str, Any] = json.loads(
        next(line for line in said.splitlines() if line.startswith("{"))
    )
    return found


def _check_speed(workshop: Workshop) -> Result:
    workshop.say("building and running pageshare's benchmark of its parts")
    said = _cargo(
        workshop, "bench", "--quiet", "-p", "pageshare", "--bench", "speed",
        timeout_s=_SPEED_TIMEOUT_S,
    )  # fmt: skip
    data = _document(said)
    least = {
        "parse": 20.0,
        "pass_through_send": 1.8,
        "pass_through_receive": 1.8,
        "index_scan": 2.0,
    }
    bounds = [_at_least(data, name, gib_s) for name, gib_s in least.items()]
    parse, *passed, scan = (_median(data, name) for name in least)
    share = float(data["index_memory_share"])
    figure = (
        f"parsing {parse:.1f} GiB/s, passing through {min(passed):.2f} GiB/s at the slower proxy,"
        f" indexing {scan:.2f} GiB/s, a core each; the index takes {share:.2%} of what it covers"
    )
    return conclude(bounds, figure, data, counted=share <= 0.01)


def _at_least(data: dict[str, Any], name: str, gib_s: float) -> Bound:
    """By Student's interval of the mean over the benchmark's repeats."""
    repeats = np.array(data[name]["all"], dtype=np.float64)
    return Bound(name, mean_interval(repeats, method=Method.T), least=gib_s, ratio=False)


def _median(data: dict[str, Any], name: str) -> float:
    return float(data[name]["median"])


CLAIMS = (
    Claim(
        "D7",
        "Every stream arrives byte for byte, and kill -9 at any moment, also while the destination"
        " has loaded and the source does not know, loses no guest and doubles none.",
        f"{_KILLS} random kills, a fifth of them aimed: zero guests lost or doubled",
        _check_kills,
    ),
    Claim(
        "D8",
        "The parts are as fast as memory and sockets let them be.",
        "parser 20 GiB/s, pass-through 1.8 GiB/s, indexing 2 GiB/s or more, each a core; index at"
        " most 1 % of what it indexes",
        _check_speed,
    ),
    Claim(
        "D13",
        "Who has no certificate keeps no migration out, however often he connects, and takes little"
        " of the receiver's room.",
        f"{_CROWD_A_SECOND} idle connections a second for {_CROWD_S} s at {_CROWD_FILES}"
        f" descriptors: every migration arrives; at most {_CROWD_THREADS} threads and"
        f" {_CROWD_MIB} MiB",
        _check_crowd,
    ),
)
