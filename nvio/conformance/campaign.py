#!/usr/bin/env python3
"""The long runs behind nvio's claims of sameness and crash safety; resumable, with a JSON result.

    campaign.py same  --build DIR [--own 100] [--mpi4py 100] [--suites 10] [--minutes M]
    campaign.py crash --build DIR [--points 10000] [--kills 200] [--minutes M]

`same`: whatever passes with plain MPI passes under nvio: our own random programs (conformance/
compare.py; on one, two and four simulated nodes in turns), mpi4py's I/O tests, and the parallel
tests of HDF5 and PnetCDF (conformance/run), so many times each, on both MPIs. `crash`: simulated
crash points, as many of one log (nvio-tests) as of jobs on several nodes (nvio-crash-tests), and
kill -9 of a rank (conformance/killed.py).

Each part of a campaign is a line of BUILD/campaign-NAME.ndjson once it has ended, with a digest of
the programs that it ran. Starting again goes on with what is missing for these very programs, and
--minutes stops early. The result goes to BUILD/campaign-NAME.json (or --json FILE) and tells how
much of what was asked is done. Exit status: 0 all done and none failed, 1 a failure, 3 none failed
so far but parts are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from compare import LAUNCHERS, say

HERE = Path(__file__).resolve().parent
# By their programs: of one redo log, and of jobs on two and four nodes.
CRASH_TESTS = {
    "nvio-tests": ["RedoLog.LeavesTheLastSyncAtEveryCrashPoint"],
    "nvio-crash-tests": [
        "NodesCrash.LeavesWhatWasSyncedAtEveryCrashPointOfTwoNodes",
        "NodesCrash.LeavesWhatWasSyncedAtEveryCrashPointOfFourNodes",
    ],
}
# A store smaller than the files, and one that admission decides about.
OWN_SETTINGS = (
    ["--set", "NVIO_ADMIT=always", "--set", "NVIO_CAPACITY=2M"],
    ["--set", "NVIO_CAPACITY=64M"],
)
OWN_NODES = (1, 2, 4)
KILLS_A_PART = 5

Outcome = dict[str, int]  # how many of what: passed, failed, skipped, ...


@dataclass(frozen=True)
class Part:
    """One step of a campaign: its name, and what runs it and counts."""

    name: str
    run: Callable[[], Outcome]


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of our conformance scripts to its end."""
    return subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def own_program(build: Path, mpi: str, nodes: int, seed: int, extra: list[str]) -> Outcome:
    """One random program, both arms; without an oracle when plain MPI itself fails in it."""
    seeds = f"{seed}:{seed + 1}"
    settings = OWN_SETTINGS[seed % len(OWN_SETTINGS)]
    options = ["--build", str(build), "--mpi", mpi, "--seeds", seeds, "--timeout", "120"]
    if nodes > 1:
        options += ["--nodes", str(nodes)]
    done = python("compare.py", *options, *settings, *extra)
    counts = re.search(r"(\d+) without an oracle, (\d+) failures", done.stdout)
    if counts is None or counts[2] != "0":
        say(done.stdout)
        return {"failed": 1}
    return {"skipped": 1} if counts[1] != "0" else {"passed": 1}


def suite(build: Path, name: str, settings: dict[str, str]) -> Outcome:
    """One pass over another project's suite: its programs that passed, failed, were skipped."""
    done = subprocess.run(
        [str(HERE / "run"), name],
        env={**os.environ, "NVIO_BUILD": str(build), **settings},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    words = Counter(line.split(" ", 1)[0] for line in done.stdout.splitlines())
    if words["FAIL"] or not words["pass"]:
        say(done.stdout)
    # A suite that could not even start is no success.
    failed = words["FAIL"] or int(not words["pass"])
    return {"passed": words["pass"], "failed": failed, "skipped": words["skip"]}


def crash_points(build: Path, program: str, tests: list[str], points: int) -> Outcome:
    """Simulated crash points over random histories, in equal parts of some tests of a program."""
    report = build / f"campaign-{program}.json"
    report.unlink(missing_ok=True)
    subprocess.run(
        [
            str(build / program),
            f"--gtest_filter={':'.join(tests)}",
            f"--gtest_output=json:{report}",
        ],
        env={**os.environ, "NVIO_CRASH_POINTS": str(-(-points // len(tests)))},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    outcome: Counter[str] = Counter(points=0, failed=0)
    for case in json.loads(report.read_text())["testsuites"][0]["testsuite"]:
        outcome["failed"] += len(case.get("failures", []))
        counted = ("points", "in_sync", "in_checkpoint")
        outcome.update({key: int(case[key]) for key in counted if key in case})
    return dict(outcome)


def kills(build: Path, mpi: str, first: int, count: int, extra: list[str]) -> Outcome:
    """Real programs, each killed once."""
    options = ["--build", str(build), "--mpi", mpi, "--first", str(first), "--kills", str(count)]
    done = python("killed.py", *options, *extra)
    counts = re.search(r"(\d+) kills, (\d+) files inconsistent", done.stdout)
    if counts is None:
        say(done.stdout)
        return {"kills": 0, "failed": 1}
    if counts[2] != "0":
        say(done.stdout)
    return {"kills": int(counts[1]), "failed": int(counts[2])}


def same_parts(options: argparse.Namespace) -> Iterator[Part]:
    """Random programs first: they find most; suites after, by rounds."""
    build, extra = options.build, [word for pair in options.set for word in ("--set", pair)]
    settings = dict(pair.split("=", 1) for pair in options.set)
    for seed in range(max(options.own, options.mpi4py, options.suites)):
        for mpi in sorted(LAUNCHERS):
            if seed < options.own:
                nodes = OWN_NODES[seed % len(OWN_NODES)]
                own = partial(own_program, build, mpi, nodes, seed, extra)
                yield Part(f"own/{mpi}/{nodes} nodes/{seed}", own)
        for name, wanted in (
            ("mpi4py", options.mpi4py),
            ("pnetcdf", options.suites),
            ("hdf5", options.suites),
        ):
            if seed < wanted:
                yield Part(f"{name}/{seed}", partial(suite, build, name, settings))


def crash_parts(options: argparse.Namespace) -> Iterator[Part]:
    """The simulator, then kills in turns on both MPIs."""
    build, extra = options.build, [word for pair in options.set for word in ("--set", pair)]
    if points := options.points:
        for kind, (program, tests) in zip(("points", "nodes"), CRASH_TESTS.items(), strict=True):
            yield Part(f"{kind}/{points}", partial(crash_points, build, program, tests, points))
    mpis = sorted(LAUNCHERS)
    for part in range(options.kills // KILLS_A_PART):
        mpi = mpis[part % len(mpis)]
        first = 1000 + part * KILLS_A_PART
        yield Part(
            f"kills/{mpi}/{first}",
            partial(kills, build, mpi, first, KILLS_A_PART, extra),
        )


def digest_of(build: Path, settings: list[str]) -> str:
    """Of what a campaign tries: the build's programs and libraries, and what they are set to.

    A part that passed with others says nothing about these.
    """
    digest = hashlib.sha256(json.dumps(sorted(settings)).encode())
    for path in sorted(build.iterdir()):
        if path.is_file() and os.access(path, os.X_OK):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def go_on(parts: list[Part], log: Path, digest: str, minutes: float | None) -> dict[str, Outcome]:
    """Run the parts that the log has not of the same `digest`; returns all outcomes there are."""
    wanted = {part.name for part in parts}
    written = log.read_text() if log.exists() else ""
    whole, _, torn = written.rpartition("\n")
    if torn:  # by a kill; that part has to be done again
        log.write_text(whole + "\n" if whole else "")
    outcomes: dict[str, Outcome] = {}
    for line in whole.splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry["part"] in wanted and entry.get("digest") == digest:
            outcomes[entry["part"]] = entry["outcome"]
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    for part in parts:
        if part.name in outcomes:
            continue
        if deadline is not None and time.monotonic() > deadline:
            break
        outcomes[part.name] = part.run()
        entry = {"part": part.name, "outcome": outcomes[part.name], "digest": digest}
        with log.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        say(f"{len(outcomes)}/{len(parts)}  {part.name}: {json.dumps(outcomes[part.name])}")
    return outcomes


def totals(outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Sums by the parts' names without their numbers: by suite, MPI and nodes."""
    sums: dict[str, Counter[str]] = {}
    for name, outcome in outcomes.items():
        kind, _, _ = name.rpartition("/")
        sums.setdefault(kind, Counter()).update({"parts": 1, **outcome})
    return {kind: dict(counts) for kind, counts in sorted(sums.items())}


def arguments() -> argparse.Namespace:
    """The command line, parsed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("campaign", choices=["same", "crash"])
    parser.add_argument("--build", type=Path, required=True, help="nvio's build folder")
    parser.add_argument("--own", type=int, default=100, help="random programs on each MPI")
    parser.add_argument("--mpi4py", type=int, default=100, help="passes over mpi4py's I/O tests")
    parser.add_argument("--suites", type=int, default=10, help="passes over HDF5's and PnetCDF's")
    parser.add_argument(
        "--points", type=int, default=10000, help="simulated crash points of each kind"
    )
    parser.add_argument("--kills", type=int, default=200, help="kill -9 of a rank")
    parser.add_argument("--minutes", type=float, help="start no part after so long")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", help="log and result: BUILD/campaign-NAME.* (default CAMPAIGN)")
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument("--again", action="store_true", help="forget the parts already done")
    return parser.parse_args()


def main() -> int:
    """Go on with a campaign, and write down how it stands."""
    options = arguments()
    options.build = options.build.resolve()
    stem = options.build / f"campaign-{options.name or options.campaign}"
    log = stem.with_suffix(".ndjson")
    if options.again:
        log.unlink(missing_ok=True)
    parts = list((same_parts if options.campaign == "same" else crash_parts)(options))
    digest = digest_of(options.build, options.set)
    outcomes = go_on(parts, log, digest, options.minutes)
    failed = sum(outcome.get("failed", 0) for outcome in outcomes.values())
    missing = len(parts) - len(outcomes)
    result = {
        "campaign": options.campaign,
        "settings": options.set,
        "digest": digest,
        "wanted": len(parts),
        "done": len(outcomes),
        "failed": failed,
        "holds": None if missing and not failed else not failed,
        "totals": totals(outcomes),
    }
    target = options.json or stem.with_suffix(".json")
    target.write_text(json.dumps(result, indent=1) + "\n")
    say(f"{len(outcomes)} of {len(parts)} parts done, {failed} failures; {target}")
    return 1 if failed else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
