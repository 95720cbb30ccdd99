"""Claims that a benchmark of the parts shows: it prints a JSON document, which is judged here."""

from __future__ import annotations

import json
import os
import random
import sys
from statistics import geometric_mean
from typing import Any

import numpy as np

from claims.checking import Found, Workshop, shown
from claims.rows import bounded, told
from tare import process
from tare.command import Command
from tare.stats import Interval, Method, mean_interval, paired_ratio
from tare.stats.bounds import Bound, Kept

_TIMEOUT_S = 3 * 3600.0
_KILLS = 100
_FAR_KILLS, _ROUND_TRIP_MS, _CHANNELS = 200, 40, 2
_MIGRATIONS = 100
_PREVIOUS = "PAGESHARE_PREVIOUS"
"""The program of an older release, if this build is not to speak the older version itself."""
_CROWD_S, _CROWD_A_SECOND = 60, 1000
_CROWD_FILES, _CROWD_THREADS, _CROWD_MIB = 256, 32, 64
_PARTS_GIB_S = {
    "parse": 20.0, "pass_through_send": 1.8, "pass_through_receive": 1.8, "index_scan": 2.0,
}  # fmt: skip
_OVER_A_COPY, _OVER_AN_ECHO, _IDLE = 2.5, 1.3, 0.01
_SIZE, _REPEATS = 2000, 6
_STARTS, _ROUNDS = 8, 6
"""A program is started so often: where its memory comes to lie is in all of a start's rounds."""
_ONE_PLANE, _MORE_PLANES = 0.9, 0.7
_WITHOUT_VNNI = "AVX2"


def document(command: Command) -> dict[str, Any]:
    """The JSON document that a benchmark prints, perhaps after other words."""
    said = process.run(command, _TIMEOUT_S).stdout
    found: dict[str, Any]
    found, _ = json.JSONDecoder().raw_decode(said, f"\n{said}".index("\n{"))
    return found


def toolchain(*also: str) -> dict[str, str]:
    """The caller's variables by which compilers and crates are found, and these."""
    names = ("PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR")
    return {name: os.environ[name] for name in (*names, *also) if name in os.environ}


def _cargo(workshop: Workshop, bench: str, **env: str) -> dict[str, Any]:
    env |= toolchain(_PREVIOUS)
    argv = ("cargo", "bench", "--quiet", "-p", "pageshare", "--bench", bench)
    return document(Command(argv, env=env, cwd=workshop.home))


def analysis_of_many_samples(workshop: Workshop) -> Found:
    """A7: seconds, memory, and how the processor's time grows."""
    workshop.say("analysing 1, 3 and 10 million samples")
    script = str(workshop.home / "benchmarks/analysis.py")
    data = document(Command((sys.executable, script, "--json")))
    largest = max(data["runs"], key=lambda run: run["samples"])
    both = (largest, data["one_session"])
    seconds = max(run["seconds"] for run in both)
    peak = max(run["peak_rss_bytes"] for run in both)
    figure = (
        f"{largest['samples'] / 1e6:.0f} million samples in {seconds:.1f} s with"
        f" {peak / 2**20:.0f} MiB at worst (many sessions, or one); CPU time grows as samples to"
        f" the power {data['exponent']:.2f}"
    )
    holds = (
        min(run["samples"] for run in both) >= 10_000_000
        and seconds <= 10
        and peak <= 2**30
        and data["exponent"] <= 1.1
    )
    return Found(figure, data, counted=Kept.counted(holds))


def history_of_many_runs(workshop: Workshop) -> Found:
    """A14: what `tare history` takes over many results, from its start to its end."""
    workshop.say("making 10 000 results of 100 000 samples, and reading them once (half an hour)")
    script = str(workshop.home / "benchmarks/history.py")
    data = document(Command((sys.executable, script)))
    overviews = [data["overview_one_run_new"], *data["overview"]]
    overview = max(one["seconds"] for one in overviews)
    cell = max(one["seconds"] for one in data["cell"])
    asked = [data["reading_all"], *overviews, *data["cell"]]
    peak = max(one["peak_rss_bytes"] for one in asked)
    found, true = [at for one in data["changes"] for at in one], data["true_change"]
    figure = (
        f"{data['runs']} runs, {data['samples']:.3g} samples (links to {data['files']} files):"
        f" overview in {overview:.2f} s, a cell of {max(data['runs_of_the_cell'])} runs in"
        f" {cell:.2f} s, {peak / 2**20:.0f} MiB at worst; changes found at {found}, one was made at"
        f" {true}; reading all once took {data['reading_all']['seconds'] / 60:.0f} min,"
        f" {data['kept_bytes'] / 1e6:.0f} MB are kept"
    )
    holds = (
        data["runs"] >= 10_000
        and data["samples"] >= 1e9
        and overview <= 5
        and cell <= 1
        and peak <= 2 << 30
        and len(found) == 1
        and abs(found[0] - true) <= 3
    )
    return Found(figure, data, counted=Kept.counted(holds))


def nodes(workshop: Workshop) -> Found:
    """C2: 4 KiB here beside a copy of shared memory, at another node beside a bare epoll echo.

    A time would tell of the machine: all but the idle manager is judged by what the same run took
    for that without which it cannot be done.
    """
    workshop.say("4 KiB here and a bare copy, at another node and a bare echo: 1 and 4 clients")
    program = str(workshop.programs / "nvio/nvio-bench")
    latency = Command((program, "latency", "--rounds", str(_ROUNDS)))
    starts = [document(latency)["runs"] for _ in range(_STARTS)]
    bounds = (
        *bounded(_over(starts, "copy", "a copy of shared memory"), most=_OVER_A_COPY),
        *bounded(_over(starts, "echo", "a bare echo"), most=_OVER_AN_ECHO),
    )
    idle = max(run["idle_manager_share"] for runs in starts for run in runs)
    figure = f"{told(bounds)}; an idle manager takes {idle:.2%} of a core"
    return Found(figure, {"starts": starts}, bounds, Kept.counted(idle < _IDLE))


def _over(starts: list[list[dict[str, Any]]], what: str, words: str) -> dict[str, Interval]:
    """Reads and writes over what they cannot do without, one value a start of the program."""
    found = {}
    for runs in zip(*starts, strict=True):
        for way in ("read", "write"):
            logs = np.log([run[f"{way}_over_{what}"]["median"] for run in runs])
            name = f"{runs[0]['clients']} clients {way} over {words}"
            found[name] = mean_interval(logs).exponential
    return found


def product(workshop: Workshop) -> Found:
    """C8: raw time of as many planes over the exact product's, with and without VNNI."""
    # In random order, so that neither is always the one that finds the processor warm.
    order = random.Random(1)  # noqa: S311 - an order, not a secret
    program = str(workshop.programs / "walks/walks-mpich")
    argv = (program, "bench", "--size", str(_SIZE), "--repeats", str(_REPEATS))
    usual, slow = list[dict[str, Any]](), list[dict[str, Any]]()
    kinds = [(usual, {}), (slow, {"ONEDNN_MAX_CPU_ISA": _WITHOUT_VNNI})]
    for start in range(_STARTS):
        workshop.say(f"products of {_SIZE} x {_SIZE}: {start} of {_STARTS} starts, of each kind")
        for said, env in order.sample(kinds, k=2):
            said.append(document(Command(argv, env=env)))
    if any(one["vnni"] for one in slow) or not all(one["vnni"] for one in usual):
        why = "VNNI could not be left out" if slow[0]["vnni"] else "there is no VNNI here"
        return Found(f"{why}: not shown with and without it", counted=Kept.INCONCLUSIVE)
    bounds = tuple(
        Bound(f"{planes} planes over raw", speed, _ONE_PLANE if planes == "1 x 1" else _MORE_PLANES)
        for planes, speed in _speeds(usual).items()
    )
    # The product checked itself in each case, or the program would have failed.
    widths = sorted({width for case in usual[0]["cases"] for width in case["cells"]})
    figure = f"{told(bounds)}; exact with cells of {', '.join(map(str, widths))} bytes, with and"
    figure += " without VNNI"
    data = {
        "without VNNI": {name: shown(speed, 2) for name, speed in _speeds(slow).items()},
        "oneDNN": usual[0]["onednn"],
        "threads": usual[0]["threads"],
        "starts": [one["cases"] for one in usual],
    }
    return Found(figure, data, bounds)


def _speeds(starts: list[dict[str, Any]]) -> dict[str, Interval]:
    """Planes -> raw time over the product's, one value a start of the program.

    Raw is the faster of oneDNN's two interfaces, k times where the product needs k.
    """
    found = {}
    for cases in zip(*(one["cases"] for one in starts), strict=True):
        raw, product = [], []
        for case in cases:
            both = zip(case["raw_gemm_s"], case["raw_matmul_s"], strict=True)
            raw.append(case["pairs"] * geometric_mean(min(times) for times in both))
            product.append(geometric_mean(case["product_s"]))
        found[" x ".join(map(str, cases[0]["planes"]))] = paired_ratio(raw, product).ratio
    return found


def kills(workshop: Workshop) -> Found:
    """D7: what becomes of guests whose migration is killed."""
    return _killed(workshop, _KILLS)


def far_kills(workshop: Workshop) -> Found:
    """D12: the same at a distance, where QEMU sends pages by channels of multifd."""
    return _killed(workshop, _FAR_KILLS, _ROUND_TRIP_MS, _CHANNELS)


def _killed(workshop: Workshop, wanted: int, round_trip_ms: int = 0, channels: int = 0) -> Found:
    where = f" at {round_trip_ms} ms over {channels} channels of multifd" if round_trip_ms else ""
    workshop.say(f"{wanted} kills at random moments{where}, each of a migration of its own")
    asked = {"kills": wanted, "round_trip": round_trip_ms, "channels": channels}
    env = {f"PAGESHARE_{name.upper()}": str(value) for name, value in asked.items()}
    try:
        data = _cargo(workshop, "kills", **env)
    except process.ProcessError as error:
        return _failed(error, **asked)
    figure = (
        "{kills} kills{where}, {aimed} of them aimed, and {late} more behind the migration's end:"
        " {arrived} guests arrived, {stayed} stayed, {lost} lost, {doubled} doubled, {changed} with"
        " another memory"
    ).format(**data, where=where)
    enough = data["kills"] >= wanted and data["aimed"] * 5 >= data["kills"]
    as_asked = (data["round_trip_ms"], data["channels"]) == (round_trip_ms, channels)
    sound = enough and as_asked and data["arrived"] + data["stayed"] == data["kills"] + data["late"]
    # Two parts of one claim may find kills.
    return Found(figure, {f"kills{where}": data} if where else data, counted=Kept.counted(sound))


def versions(workshop: Workshop) -> Found:
    """D12: what becomes of guests between hosts of which one is not upgraded yet."""
    workshop.say(f"{_MIGRATIONS} migrations between two versions of the wire")
    try:
        data = _cargo(workshop, "versions", PAGESHARE_MIGRATIONS=str(_MIGRATIONS))
    except process.ProcessError as error:
        return _failed(error, migrations=_MIGRATIONS)
    figure = (
        "{migrations} migrations between versions {wire_version} and {newest} of the wire,"
        " {older_sends} of them from the older: {arrived} guests arrived"
    ).format_map(data)
    both_ways = data["older_sends"] * 2 == data["migrations"] >= _MIGRATIONS
    sound = both_ways and data["arrived"] == data["migrations"]
    return Found(figure, {"versions": data}, counted=Kept.counted(sound))


def crowd(workshop: Workshop) -> Found:
    """D13: migrations among connections that have no certificate."""
    workshop.say(f"migrations for {_CROWD_S} s under {_CROWD_A_SECOND} idle connections a second")
    try:
        data = _cargo(workshop, "crowd", PAGESHARE_SECONDS=str(_CROWD_S))
    except process.ProcessError as error:
        return _failed(error, seconds=_CROWD_S)
    a_second, mib = data["connections"] / data["seconds"], data["kibibytes_most"] / 1024
    figure = (
        "{a_second:.0f} connections a second for {seconds:.0f} s: {arrived} of {migrations} guests"
        " arrived; the receiver had at most {files_most} files open, {threads_most} threads,"
        " {mib:.0f} MiB"
    ).format(**data, a_second=a_second, mib=mib)
    sound = (
        0 < data["migrations"] == data["arrived"]
        and a_second >= 0.95 * _CROWD_A_SECOND
        and data["files_most"] <= _CROWD_FILES
        and data["threads_most"] <= _CROWD_THREADS
        and mib <= _CROWD_MIB
    )
    return Found(figure, data, counted=Kept.counted(sound))


def _failed(error: process.ProcessError, **asked: int) -> Found:
    return Found(f"the run failed: {error.what}", asked, counted=Kept.FAILS)


def parts(workshop: Workshop) -> Found:
    """D8: GiB/s of pageshare's parts, by Student's interval of the mean over the repeats."""
    workshop.say("building and running pageshare's benchmark of its parts")
    data = _cargo(workshop, "speed")
    every = {name: np.array(data[name]["all"], dtype=np.float64) for name in _PARTS_GIB_S}
    bounds = tuple(
        Bound(name, mean_interval(one, method=Method.T), least=_PARTS_GIB_S[name], ratio=False)
        for name, one in every.items()
    )
    parse, *passed, scan = (float(data[name]["median"]) for name in _PARTS_GIB_S)
    share = float(data["index_memory_share"])
    figure = (
        f"parsing {parse:.1f} GiB/s, passing through {min(passed):.2f} GiB/s at the slower proxy,"
        f" indexing {scan:.2f} GiB/s, a core each; the index takes {share:.2%} of what it covers"
    )
    return Found(figure, data, bounds, Kept.counted(share <= 0.01))
