#!/usr/bin/env python3
"""Run random MPI-IO programs with plain MPI and under nvio, and compare all they observed.

    compare.py --build DIR --mpi mpich|openmpi --seeds 0:20 [--steps 30] [--set NVIO_X=VALUE ...]

The oracle is the MPI without nvio. Exit status 1 and the first differing line on a difference.
A program that fails under nvio, or observes something else, is run again and again without: where
that fails too, or does not observe the same every time, it is no oracle.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch import (
    MEMORY,
    HangError,
    Launch,
    Lines,
    RunError,
    command_line_of_jobs,
    leave_on_sigterm,
    left_stores,
    remove_stores,
    run,
    say,
)

PLAIN_TRIES = 20
"""Runs of a program without nvio before its failure under nvio is believed to be nvio's."""
Seen = tuple[Lines, str]
REMOTE = (["remote_reads"], ["remote_writes"])
SERVED = (["read_hits"], ["writes_cached"], *REMOTE)


class WrongBytesError(RunError):
    """A program that knows where its bytes belong found others there."""


class NoOracleError(Exception):
    """There is nothing to compare with; the message says what plain MPI does."""


def observations(folder: Path, ranks: int) -> Lines:
    """What each rank wrote down, by line."""
    return [(folder / f"out.{rank}").read_text().splitlines() for rank in range(ranks)]


def history(
    launch: Launch,
    seed: int,
    steps: int,
    data: Path,
    nvio: dict[str, str] | None,
    timeout: float,
    kind: tuple[str, ...] = (),
) -> Seen:
    """What every rank of one random program wrote down, and what it printed."""
    with tempfile.TemporaryDirectory(dir=data) as name:
        folder = Path(name)
        program = [
            str(launch.build / f"histories-{launch.mpi}"),
            str(seed),
            str(steps),
            str(folder / "file"),
            str(folder / "out"),
            *kind,
        ]
        output = run(launch.command(program), launch.environment(nvio), timeout)
        if wrong := [line for line in output.splitlines() if " wrong bytes " in line]:
            raise WrongBytesError(f"{wrong[0]}: {' '.join(program)}")
        return observations(folder, launch.ranks), output


def both_arms(arm: Callable[..., Seen], nvio: dict[str, str]) -> tuple[Lines, Lines, str]:
    """What a program observed with plain MPI and under nvio, and what nvio told of itself.

    Raises:
        NoOracleError: plain MPI fails or hangs (Open MPI 4.1's vulcan component does now and then),
            or is not the same every time; too many of these are a failure of the test.
        RunError: it does not, but under nvio.
    """
    try:
        plain, _ = arm(nvio=None)
    except RunError as failure:
        how = "hangs" if isinstance(failure, HangError) else "failed"
        raise NoOracleError(f"{how}: {str(failure).splitlines()[0]}") from failure
    try:
        cached, report = arm(nvio=nvio)
    except RunError:
        try_plain_again(arm, plain)
        raise
    if cached != plain:
        try_plain_again(arm, plain)
    return plain, cached, report


def try_plain_again(arm: Callable[..., Seen], plain: Lines) -> None:
    """Look whether a program could have gone wrong without nvio too.

    Raises:
        NoOracleError: it could.
    """
    for _ in range(PLAIN_TRIES):
        try:
            again, _ = arm(nvio=None)
        except RunError as failure:
            raise NoOracleError("ends well not every time, nor did it under nvio") from failure
        if again != plain:
            raise NoOracleError("observes not the same every time, nor did it under nvio")


def fails_alike(arm: Callable[..., Seen], failure: RunError) -> bool:
    """Whether a program hangs, or crashes, without nvio as it did under it."""
    if isinstance(failure, WrongBytesError):
        return False
    for _ in range(PLAIN_TRIES):
        try:
            arm(nvio=None)
        except RunError as plain:
            if type(plain) is type(failure):
                return True
    return False


def session_of(settings: dict[str, str], seed: int) -> str:
    """How a program's session is called, or how its name begins where the launcher gives it."""
    is_unnamed = settings.get("NVIO_SESSION") == ""
    return "launcher-" if is_unnamed else f"compare-{os.getpid()}-{seed}"


def first_difference(plain: Lines, cached: Lines) -> str | None:
    """The first line in which a rank saw something else, with the lines before it."""
    for rank, (want, got) in enumerate(zip(plain, cached, strict=True)):
        for line, (a, b) in enumerate(zip(want, got, strict=False)):
            if a != b:
                before = "\n".join(f"      {text}" for text in want[max(0, line - 6) : line])
                return f"rank {rank}, line {line + 1}:\n{before}\n  plain {a}\n  nvio  {b}"
        if len(want) != len(got):
            return f"rank {rank} wrote {len(want)} lines with plain MPI and {len(got)} under nvio"
    return None


def arguments() -> argparse.Namespace:
    """The command line, parsed."""
    parser = command_line_of_jobs(__doc__)
    parser.add_argument("--seeds", default="0:10", help="FIRST:STOP (default 0:10)")
    parser.add_argument("--steps", type=int, default=30, help="phases of a program (default 30)")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument(
        "--types",
        type=int,
        metavar="DEPTH",
        help="random datatypes alone, trees of this depth, all served by nvio itself unless --slow",
    )
    parser.add_argument("--slow", action="store_true", help="0.1 ms more for each pread and pwrite")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="with --types: not with plain MPI too; the program itself knows its bytes' places",
    )
    parser.add_argument("--nodes", type=int, default=1, help="simulated nodes (default 1)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--data", type=Path, help="folder for the files (default: a temporary one)")
    return parser.parse_args()


def pieces(report: str, names: Iterable[list[str]]) -> int:
    """How many pieces of these kinds nvio tells of."""
    return sum(
        int(line.split()[1]) for line in report.splitlines() if line.split()[:1] in tuple(names)
    )


def passed_on(report: str) -> list[str]:
    """What of a program's transfers the MPI's own code did, windows of data sieving included."""
    told = re.findall(r"^  (MPI_File_i?(?:read|write)\w*) +\d+ calls, (\d+) by", report, re.M)
    windows = re.findall(r"^  (windows) +(\d+)", report, re.M)
    return [f"{name} {count}" for name, count in [*told, *windows] if count != "0"]


@dataclass
class Tally:
    """What the programs came to."""

    failures: int = 0
    without_oracle: int = 0
    served: int = 0
    remote: int = 0

    def fail(self, seed: int, why: object) -> None:
        """A program failed."""
        say(f"seed {seed}: {why}")
        self.failures += 1


def observed(
    arm: Callable[..., Seen],
    nvio: dict[str, str],
    seed: int,
    tally: Tally,
    *,
    knows: bool,
    alone: bool,
) -> tuple[Lines, Lines, str] | None:
    """As `both_arms`; nothing where that failed, or can say nothing.

    A program that `knows` where its bytes belong is run under nvio also where plain MPI errs (MPICH
    4.0 hangs, crashes or moves other bytes in every third program of datatypes), or `alone`: then
    plain MPI is asked only of what did not end.
    """
    try:
        if not alone:
            try:
                return both_arms(arm, nvio)
            except NoOracleError as reason:
                say(f"seed {seed}: no oracle, plain MPI {reason}")
                tally.without_oracle += 1
                if not knows:
                    return None
        cached, report = arm(nvio=nvio)
    except RunError as failure:
        if alone and fails_alike(arm, failure):
            say(f"seed {seed}: no oracle, plain MPI fails alike: {str(failure).splitlines()[0]}")
            tally.without_oracle += 1
        else:
            tally.fail(seed, failure)
        return None
    return cached, cached, report


def judge(
    seen: tuple[Lines, Lines, str], seed: int, tally: Tally, left: list[Path], *, all_served: bool
) -> None:
    """Count what a program that ended shows."""
    plain, cached, report = seen
    # Equal because nvio was never there would prove nothing.
    if "nvio: process" not in report or "without the cache" in report:
        tally.fail(seed, f"nvio did not serve this program:\n{report}")
        return
    tally.served += pieces(report, SERVED)
    tally.remote += pieces(report, REMOTE)
    if left:
        tally.fail(seed, f"the job ended and left its store {left[0]}")
    if all_served and (passed := passed_on(report)):
        tally.fail(seed, f"not served by nvio itself: {', '.join(passed)}")
    difference = first_difference(plain, cached)
    if difference is not None:
        tally.fail(seed, difference)


def compare(
    launch: Launch,
    seeds: range,
    steps: int,
    settings: dict[str, str],
    *,
    timeout: float,
    data: Path | None = None,
    memories: Sequence[Path] = (MEMORY,),
    types: int | None = None,
    alone: bool = False,
) -> int:
    """Compare the programs of these seeds; 0 when all were equal.

    Args:
        launch: how they are started.
        seeds: which programs.
        steps: phases of each.
        settings: of nvio, by their variables.
        timeout: seconds for one run.
        data: folder for the files; None is a temporary one.
        memories: folders where the job's nodes have their stores.
        types: programs of random datatypes of this depth, of which the MPI's own code must transfer
            nothing, unless the launch is slow.
        alone: not with plain MPI too.
    """
    folder = data or Path(tempfile.mkdtemp(prefix="nvio-compare-"))
    tally = Tally()
    try:
        for seed in seeds:
            session = session_of(settings, seed)
            nvio = {"NVIO_STATS": "ranks", "NVIO_SESSION": session, **settings}
            kind = (str(types),) if types else ()
            whole = bool(types) and not launch.slow
            arm = partial(history, launch, seed, steps, folder, timeout=timeout, kind=kind)
            seen = observed(arm, nvio, seed, tally, knows=bool(types), alone=alone)
            if seen is not None:
                judge(seen, seed, tally, left_stores(session, memories), all_served=whole)
    finally:
        remove_stores(f"compare-{os.getpid()}-", memories)
        if data is None:
            shutil.rmtree(folder, ignore_errors=True)
    say(
        f"{len(seeds)} programs, {tally.without_oracle} without an oracle, "
        f"{tally.failures} failures, {tally.served} pieces served from the store, "
        f"{tally.remote} of them at another node"
    )
    if launch.slow and not tally.served:
        say("nothing was admitted on a slow file system")
        tally.failures += 1
    if settings.keys() & {"NVIO_NODES", "NVIO_RENDEZVOUS"} and tally.served and not tally.remote:
        say("no node served another one")
        tally.failures += 1
    return 1 if tally.failures or (not types and tally.without_oracle > len(seeds) // 4) else 0


def main() -> int:
    """Compare all programs asked for; 0 when all were equal."""
    options = arguments()
    leave_on_sigterm()
    extra = tuple(options.launch)
    launch = Launch(options.mpi, options.build.resolve(), options.ranks, extra, slow=options.slow)
    settings = dict(pair.split("=", 1) for pair in options.set)
    if options.nodes > 1:
        settings["NVIO_NODES"] = str(options.nodes)
    first, stop = (int(part) for part in options.seeds.split(":"))
    return compare(
        launch,
        range(first, stop),
        options.steps,
        settings,
        timeout=options.timeout,
        data=options.data,
        types=options.types,
        alone=options.alone,
    )


if __name__ == "__main__":
    sys.exit(main())
