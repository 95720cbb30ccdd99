#!/usr/bin/env python3
"""The long runs behind nvio's claims of sameness and crash safety; resumable, with a JSON result.

    campaign.py same  --build DIR [--own 100] [--mpi4py 100] [--suites 10] [--minutes M]
    campaign.py crash --build DIR [--points 10000] [--kills 200] [--minutes M]
    campaign.py types --build DIR [--programs 5000] [--minutes M]
    campaign.py beside --build DIR [--pairs 1000] --data ext4=FOLDER --data glusterfs=FOLDER

`same`: whatever passes with plain MPI passes under nvio: our own random programs (conformance/
compare.py; on one, two and four simulated nodes in turns), mpi4py's I/O tests, and the parallel
tests of HDF5 and PnetCDF (conformance/run), so many times each, on both MPIs. `crash`: simulated
crash points, as many of one log (nvio-tests) as of jobs on several nodes (nvio-crash-tests), and
kill -9 of a rank (conformance/killed.py). `types`: so many random programs of derived datatypes on
each MPI (compare.py --types), which know by MPI_Pack where each byte belongs, on one, two and four
nodes; nvio has to serve all of each by itself. `beside`: so many pairs of random programs on each
MPI, of two jobs that write disjoint bytes of one file at once (conformance/neighbours.py), on the
file systems that --data names, in turns.

Parts of different kinds run beside each other (--jobs): MPI's launchers and time slices leave a
processor idle for half of the time. Each part is a line of BUILD/campaign-NAME.ndjson once it has
ended, with a digest of the programs that it ran. Starting again goes on with what is missing for
these very programs, and --minutes stops early. The result goes to BUILD/campaign-NAME.json and
tells how much of what was asked is done; what failed parts printed is in
BUILD/campaign-failures.txt. Exit status: 0 all done and none failed, 1 a failure, 3 none failed so
far but parts are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from launch import DIES_WITH_US, LAUNCHERS, leave_on_sigterm, say

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


FAILURES = "campaign-failures.txt"
RUNNING: set[subprocess.Popen[str]] = set()
STOPPING = threading.Event()


def stop(child: subprocess.Popen[str]) -> None:
    """Tell a program and the shells that it started to end."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)


def output_of(argv: list[str], settings: dict[str, str] | None = None) -> str:
    """Run a program to its end; what it printed."""
    with subprocess.Popen(
        [*DIES_WITH_US, *argv],
        env={**os.environ, **(settings or {})},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        RUNNING.add(child)
        if STOPPING.is_set():  # since before it was among those that were told to end
            stop(child)
        output, _ = child.communicate()
        RUNNING.discard(child)
    return output


def python(script: str, *arguments: str) -> str:
    """Run one of our conformance scripts to its end; what it printed."""
    return output_of([sys.executable, str(HERE / script), *arguments])


def tell_failure(build: Path, said: str) -> None:
    """Show and keep what a part that failed has printed: the log holds counts alone."""
    sys.stderr.write(said)
    with (build / FAILURES).open("a") as file:
        file.write(said)


def compared(build: Path, said: str, what: str) -> Outcome:
    """What a script's last line counts; without an oracle is where plain MPI itself fails."""
    pieces = r"(?:, (\d+) pieces served from the store, (\d+) of them at another node)?"
    counts = re.search(rf"(\d+) {what}, (\d+) without an oracle, (\d+) failures{pieces}", said)
    if counts is None or counts[3] != "0":
        tell_failure(build, said)
    if counts is None:
        return {"failed": 1}
    tried, skipped, failed, *served = (int(count) for count in counts.groups() if count)
    outcome = {"passed": tried - skipped - failed, "skipped": skipped, "failed": failed}
    return outcome | dict(zip(("served", "remote"), served, strict=False))


def programs(
    build: Path, mpi: str, nodes: int, seeds: range, settings: Sequence[str], extra: list[str]
) -> Outcome:
    """Some random programs on so many nodes."""
    options = ["--build", str(build), "--mpi", mpi, "--seeds", f"{seeds.start}:{seeds.stop}"]
    options += ["--timeout", "120"]
    if nodes > 1:
        options += ["--nodes", str(nodes)]
    return compared(build, python("compare.py", *options, *settings, *extra), "programs")


def suite(build: Path, name: str, settings: dict[str, str]) -> Outcome:
    """One pass over another project's suite: its programs that passed, failed, were skipped."""
    said = output_of([str(HERE / "run"), name], {"NVIO_BUILD": str(build), **settings})
    words = Counter(
        "unbuilt"
        if "): does not build, see " in line
        else "skip"
        if line.endswith("without any file opened by MPI-IO")
        else line.split(" ", 1)[0]
        for line in said.splitlines()
    )
    if words["FAIL"] or not words["pass"]:
        tell_failure(build, said)
    # A suite that could not even start is no success.
    failed = words["FAIL"] or int(not words["pass"])
    counts = {"passed": words["pass"], "failed": failed, "skipped": words["skip"]}
    return {**counts, "unbuilt": words["unbuilt"]}


def crash_points(build: Path, program: str, tests: list[str], points: int) -> Outcome:
    """Simulated crash points over random histories, in equal parts of some tests of a program."""
    report = build / f"campaign-{program}.json"
    report.unlink(missing_ok=True)
    argv = [
        str(build / program),
        f"--gtest_filter={':'.join(tests)}",
        f"--gtest_output=json:{report}",
    ]
    output_of(argv, {"NVIO_CRASH_POINTS": str(-(-points // len(tests)))})
    outcome: Counter[str] = Counter(points=0, failed=0)
    for case in json.loads(report.read_text())["testsuites"][0]["testsuite"]:
        outcome["failed"] += len(case.get("failures", []))
        counted = ("points", "in_sync", "in_checkpoint")
        outcome.update({key: int(case[key]) for key in counted if key in case})
    return dict(outcome)


def kills(build: Path, mpi: str, first: int, count: int, extra: list[str]) -> Outcome:
    """Real programs, each killed once."""
    options = ["--build", str(build), "--mpi", mpi, "--first", str(first), "--kills", str(count)]
    said = python("killed.py", *options, *extra)
    counts = re.search(r"(\d+) kills, (\d+) files inconsistent", said)
    if counts is None:
        tell_failure(build, said)
        return {"kills": 0, "failed": 1}
    if counts[2] != "0":
        tell_failure(build, said)
    return {"kills": int(counts[1]), "failed": int(counts[2])}


def settings_of(options: argparse.Namespace) -> list[str]:
    """The settings of nvio that were asked for, as other scripts take them."""
    return [word for pair in options.set for word in ("--set", pair)]


def same_parts(options: argparse.Namespace) -> Iterator[Part]:
    """Random programs first: they find most; suites after, by rounds."""
    build, extra = options.build, settings_of(options)
    settings = dict(pair.split("=", 1) for pair in options.set)
    for seed in range(max(options.own, options.mpi4py, options.suites)):
        for mpi in sorted(LAUNCHERS):
            if seed < options.own:
                nodes = OWN_NODES[seed % len(OWN_NODES)]
                how = OWN_SETTINGS[seed % len(OWN_SETTINGS)]
                own = partial(programs, build, mpi, nodes, range(seed, seed + 1), how, extra)
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
    build, extra = options.build, settings_of(options)
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


TYPES_A_PART = 10
DEEPEST = 3
PAIRS_A_PART = 10


def types_parts(options: argparse.Namespace) -> Iterator[Part]:
    """Types of every depth on as many nodes; a lane an MPI."""
    build, extra = options.build, settings_of(options)
    for turn, first in enumerate(range(0, options.programs, TYPES_A_PART)):
        nodes = OWN_NODES[turn % len(OWN_NODES)]
        depth = 1 + turn // len(OWN_NODES) % DEEPEST
        how = ["--types", str(depth), "--alone", "--set", "NVIO_ADMIT=always"]
        seeds = range(first, first + TYPES_A_PART)
        for mpi in sorted(LAUNCHERS):
            one = partial(programs, build, mpi, nodes, seeds, how, extra)
            yield Part(f"{mpi}/{nodes} nodes/depth {depth}/{first}", one)


def pairs(build: Path, mpi: str, folder: Path, first: int, extra: list[str]) -> Outcome:
    """Pairs of jobs that share a file."""
    seeds = f"{first}:{first + PAIRS_A_PART}"
    options = ["--build", str(build), "--mpi", mpi, "--seeds", seeds, "--data", str(folder)]
    return compared(build, python("neighbours.py", *options, *extra), "pairs of programs")


def beside_parts(options: argparse.Namespace) -> Iterator[Part]:
    """Both MPIs on each file system; a lane a file system."""
    build, extra = options.build, settings_of(options)
    folders = [pair.split("=", 1) for pair in options.data]
    for turn, first in enumerate(range(0, options.pairs, PAIRS_A_PART)):
        for number, mpi in enumerate(sorted(LAUNCHERS)):
            name, folder = folders[(turn + number) % len(folders)]
            one = partial(pairs, build, mpi, Path(folder), first, extra)
            yield Part(f"{name}/{mpi}/{first}", one)


PARTS = {"same": same_parts, "crash": crash_parts, "types": types_parts, "beside": beside_parts}


def digest_of(build: Path, settings: list[str]) -> str:
    """Of what a campaign tries: the build's programs and libraries, and what they are set to.

    A part that passed with others says nothing about these.
    """
    digest = hashlib.sha256(json.dumps(sorted(settings)).encode())
    for path in sorted(build.iterdir()):
        if path.is_file() and os.access(path, os.X_OK):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@dataclass
class Log:
    """The parts that ended: those before us, of these very programs, and those that we add."""

    path: Path
    digest: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, wanted: set[str]) -> None:
        """Take what ended before; a line that a kill has torn goes, and its part is done again."""
        written = self.path.read_text() if self.path.exists() else ""
        whole, _, torn = written.rpartition("\n")
        if torn:
            self.path.write_text(whole + "\n" if whole else "")
        for line in whole.splitlines():
            entry: dict[str, Any] = json.loads(line)
            if entry["part"] in wanted and entry.get("digest") == self.digest:
                self.outcomes[entry["part"]] = entry["outcome"]

    def add(self, part: str, outcome: Outcome) -> int:
        """Note a part; returns how many have ended."""
        entry = {"part": part, "outcome": outcome, "digest": self.digest}
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
            self.outcomes[part] = outcome
            return len(self.outcomes)


def lanes_of(parts: list[Part]) -> list[list[Part]]:
    """Parts by kind: two of one kind would write into the same folder."""
    lanes: dict[str, list[Part]] = {}
    for part in parts:
        lanes.setdefault(part.name.partition("/")[0], []).append(part)
    return list(lanes.values())


def words_of(event: dict[str, Any]) -> str:
    """What is told of a part that has ended."""
    counts = json.dumps(event["outcome"])
    return f"{event['done']}/{event['wanted']}  {event['part']}: {counts}"


def go_on(
    parts: list[Part],
    path: Path,
    digest: str,
    minutes: float | None,
    jobs: int = 1,
    tell: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Outcome]:
    """Run the parts that the log has not of the same `digest`; returns all outcomes there are.

    `tell` hears of each part that has ended.

    However it is interrupted, what it started ends, and a part that was cut off counts as not done.
    """
    log = Log(path, digest)
    log.read({part.name for part in parts})
    deadline = None if minutes is None else time.monotonic() + 60 * minutes

    def lane(missing: list[Part]) -> None:
        for part in missing:
            if STOPPING.is_set() or (deadline is not None and time.monotonic() > deadline):
                return
            outcome = part.run()
            if STOPPING.is_set():
                return
            ended = log.add(part.name, outcome)
            tell({"part": part.name, "outcome": outcome, "done": ended, "wanted": len(parts)})

    missing = [part for part in parts if part.name not in log.outcomes]
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(lane, one) for one in lanes_of(missing)]):
                done.result()
        except BaseException:
            STOPPING.set()
            for child in tuple(RUNNING):
                stop(child)
            raise
    return log.outcomes


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
    parser.add_argument("campaign", choices=list(PARTS))
    parser.add_argument("--build", type=Path, required=True, help="nvio's build folder")
    parser.add_argument("--own", type=int, default=100, help="random programs on each MPI")
    parser.add_argument("--mpi4py", type=int, default=100, help="passes over mpi4py's I/O tests")
    parser.add_argument("--suites", type=int, default=10, help="passes over HDF5's and PnetCDF's")
    parser.add_argument(
        "--points", type=int, default=10000, help="simulated crash points of each kind"
    )
    parser.add_argument("--kills", type=int, default=200, help="kill -9 of a rank")
    parser.add_argument(
        "--programs", type=int, default=5000, help="of random datatypes, on each MPI"
    )
    parser.add_argument("--pairs", type=int, default=1000, help="of jobs, on each MPI")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=FOLDER", help="where pairs' files lie"
    )
    parser.add_argument("--minutes", type=float, help="start no part after so long")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="kinds of parts at once"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--name", help="log and result: BUILD/campaign-NAME.* (default CAMPAIGN)")
    parser.add_argument(
        "--json", action="store_true", help="print a JSON line a part, and the result as the last"
    )
    parser.add_argument("--again", action="store_true", help="forget the parts already done")
    return parser.parse_args()


def main() -> int:
    """Go on with a campaign, and write down how it stands."""
    options = arguments()
    if options.campaign == "beside" and not options.data:
        say("campaign.py: beside needs a folder: --data NAME=FOLDER")
        return 2
    options.build = options.build.resolve()
    stem = options.build / f"campaign-{options.name or options.campaign}"
    log = stem.with_suffix(".ndjson")
    if options.again:
        log.unlink(missing_ok=True)
    parts = list(PARTS[options.campaign](options))
    digest = digest_of(options.build, options.set)
    leave_on_sigterm()
    shown: Callable[[dict[str, Any]], str] = json.dumps if options.json else words_of
    outcomes = go_on(
        parts, log, digest, options.minutes, options.jobs, lambda event: say(shown(event))
    )
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
    target = stem.with_suffix(".json")
    target.write_text(json.dumps(result, indent=1) + "\n")
    words = f"{len(outcomes)} of {len(parts)} parts done, {failed} failures; {target}"
    say(json.dumps({"result": result}) if options.json else words)
    return 1 if failed else 3 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
