#!/usr/bin/env python3
"""Run two jobs that write disjoint bytes of one file at once, and look for bytes that are lost.

    neighbours.py --build DIR --mpi mpich|openmpi [--seeds 0:4] [--data FOLDER] [--set NVIO_X=VALUE]

Random programs (neighbours.cc), both under nvio, or, for every other pair of seeds, one of them
without. Meanwhile this process keeps writing the gaps between the jobs' bytes, each time with
another value (under a lock where the jobs write through views: ROMIO locks what it reads and
writes back there). At the end each extent must hold what its job wrote last, and each gap at all
times what we did: else somebody wrote bytes that no program wrote. Programs in which that goes
wrong without nvio too are told apart.
"""

from __future__ import annotations

import fcntl
import os
import random
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compare import session_of
from launch import Launch, RunError, command_line_of_jobs, leave_on_sigterm, left_stores, run, say

RANKS = 2
JOBS = 2
GAP = 2
SIZE = 3 << 19
"""Of the file, as in neighbours.cc."""
SETTINGS: Sequence[dict[str, str]] = (
    {"NVIO_ADMIT": "always", "NVIO_CAPACITY": "1M"},
    {"NVIO_ADMIT": "always", "NVIO_SYNC": "file", "NVIO_CLOSE": "durable"},
    {},
    {"NVIO_ADMIT": "always", "NVIO_NODES": "2"},
)
"""Of the programs in turns."""


@dataclass(frozen=True)
class Extent:
    """A part of the file, and whose it is."""

    offset: int
    length: int
    job: int
    rank: int


class Gaps(threading.Thread):
    """Keeps writing the gaps of a file until it is told to stop."""

    def __init__(self, path: Path, extents: list[Extent], *, locked: bool) -> None:
        super().__init__()
        self.path = path
        self.gaps = [extent for extent in extents if extent.job == GAP]
        self.locked = locked
        self.wanted = dict.fromkeys(self.gaps, b"")
        self.lost: set[Extent] = set()
        self.writes = 0
        self.enough = threading.Event()

    def run(self) -> None:
        """Write one gap after the other, each time with the count of writes so far."""
        order = random.Random(0)  # noqa: S311 - no secret
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            while not self.enough.is_set():
                for gap in order.sample(self.gaps, len(self.gaps)):
                    if self.enough.is_set() and all(self.wanted.values()):
                        break
                    self.write(descriptor, gap)
        finally:
            os.close(descriptor)

    def write(self, descriptor: int, gap: Extent) -> None:
        """Write a gap whole, once it was seen to hold what was written last."""
        self.writes += 1
        value = (self.writes.to_bytes(4, "little") * (gap.length // 4 + 1))[: gap.length]
        if self.locked:
            fcntl.lockf(descriptor, fcntl.LOCK_EX, gap.length, gap.offset)
        if self.wanted[gap] and os.pread(descriptor, gap.length, gap.offset) != self.wanted[gap]:
            self.lost.add(gap)
        os.pwrite(descriptor, value, gap.offset)
        if self.locked:
            fcntl.lockf(descriptor, fcntl.LOCK_UN, gap.length, gap.offset)
        self.wanted[gap] = value


def deal_of(launch: Launch, seed: int, folder: Path, timeout: float) -> list[Extent]:
    """How the programs of a seed share the file out, as the first of them says."""
    out = folder / "first"
    scratch = folder / "scratch"
    scratch.write_bytes(bytes(SIZE))
    run(command(launch, seed, 0, 0, scratch, out), launch.environment(None), timeout)
    lines = out.with_suffix(".deal").read_text().splitlines()
    return [Extent(*map(int, line.split())) for line in lines]


def command(launch: Launch, seed: int, job: int, steps: int, path: Path, out: Path) -> list[str]:
    """The command line of one of the jobs."""
    words = [str(word) for word in (seed, job, steps, path, out)]
    return launch.command([str(launch.build / f"neighbours-{launch.mpi}"), *words])


def wrong_bytes(
    launch: Launch,
    seed: int,
    steps: int,
    data: Path,
    settings: list[dict[str, str] | None],
    timeout: float,
) -> list[str]:
    """Run both jobs, each with these settings (None: without nvio); what is wrong afterwards."""
    with tempfile.TemporaryDirectory(dir=data) as name, tempfile.TemporaryDirectory() as temporary:
        folder, path = Path(name), Path(name) / "file"
        extents = deal_of(launch, seed, folder, timeout)
        locked = seed % 2 == 1
        path.write_bytes(bytes(SIZE if locked else SIZE * (seed % 3) // 2))
        gaps = Gaps(path, extents, locked=locked)

        def job(number: int) -> str:
            # Open MPI's launchers would fall over each other in one folder.
            own = Path(temporary) / str(number)
            own.mkdir()
            environment = launch.environment(settings[number]) | {"TMPDIR": str(own)}
            argv = command(launch, seed, number, steps, path, folder / "out")
            return run(argv, environment, timeout)

        gaps.start()
        try:
            with ThreadPoolExecutor(JOBS) as pool:
                said = list(pool.map(job, range(JOBS)))
        finally:
            gaps.enough.set()
            gaps.join()
        wrong = [sums_of(text) for text in said if "neighbours: 0 differences" not in text]
        for number, text in enumerate(said):
            served = "nvio: process" in text and "without the cache" not in text
            if settings[number] is not None and not served:
                wrong.append(f"nvio did not serve job {number}:\n{text}")
        return wrong + differences(path.read_bytes(), extents, folder / "out", gaps)


def sums_of(text: str) -> str:
    """What a job printed of itself, and not each difference."""
    lines = [line for line in text.splitlines() if line.startswith("neighbours: ")]
    return lines[-1] if lines else text


def differences(found: bytes, extents: list[Extent], out: Path, gaps: Gaps) -> list[str]:
    """Whose bytes are not what they were written last."""
    owners = [(job, rank) for job in range(JOBS) for rank in range(RANKS)]
    images = {(job, rank): out.with_suffix(f".{job}.{rank}").read_bytes() for job, rank in owners}
    lost = {"gaps": 0, **{f"pieces of job {job}": 0 for job in range(JOBS)}}
    at = dict.fromkeys(owners, 0)
    for extent in extents:
        whose = "gaps" if extent.job == GAP else f"pieces of job {extent.job}"
        if extent.job == GAP:
            wanted = b"" if extent in gaps.lost else gaps.wanted[extent]
        else:
            owner = extent.job, extent.rank
            wanted = images[owner][at[owner] : at[owner] + extent.length]
            at[owner] += extent.length
        lost[whose] += found[extent.offset : extent.offset + extent.length] != wanted
    return [f"{count} {whose} lost" for whose, count in lost.items() if count]


def settings_of_pair(seed: int, session: str, more: dict[str, str]) -> list[dict[str, str] | None]:
    """What nvio is set to in both jobs of a seed, of which the second may be without it."""
    own = {"NVIO_STATS": "1", **SETTINGS[seed // 4 % len(SETTINGS)], **more}
    first = {**own, "NVIO_SESSION": f"{session}a"}
    return [first, {**own, "NVIO_SESSION": f"{session}b"} if seed // 2 % 2 == 0 else None]


def try_pair(launch: Launch, seed: int, steps: int, data: Path, more: dict[str, str],
             timeout: float) -> bool | None:  # fmt: skip
    """Whether a seed's programs leave the right bytes; None: not without nvio either."""
    session = session_of(more, seed)
    settings = settings_of_pair(seed, session, more)
    try:
        wrong = wrong_bytes(launch, seed, steps, data, settings, timeout)
    except RunError as failure:
        wrong = [str(failure)]
    wrong += [f"the jobs ended and left their store {left}" for left in left_stores(session)]
    if not wrong:
        return True
    say(f"seed {seed}: {'; '.join(wrong)}")
    try:
        plain = wrong_bytes(launch, seed, steps, data, [None, None], timeout)
    except RunError as failure:
        plain = [str(failure)]
    say(f"seed {seed} without nvio: {'; '.join(plain) or 'right'}")
    return None if plain else False


def main() -> int:
    """Try all programs asked for; 0 when all left the right bytes."""
    parser = command_line_of_jobs(__doc__)
    parser.add_argument("--seeds", default="0:4", help="FIRST:STOP (default 0:4)")
    parser.add_argument("--steps", type=int, default=12, help="of a program (default 12)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--data", type=Path, help="folder for the files (default: a temporary one)")
    options = parser.parse_args()
    leave_on_sigterm()
    launch = Launch(options.mpi, options.build.resolve(), RANKS, tuple(options.launch))
    more = dict(pair.split("=", 1) for pair in options.set)
    first, stop = (int(part) for part in options.seeds.split(":"))
    with tempfile.TemporaryDirectory(prefix="nvio-neighbours-") as temporary:
        data = options.data or Path(temporary)
        tried = [
            try_pair(launch, seed, options.steps, data, more, options.timeout)
            for seed in range(first, stop)
        ]
    failures, no_oracle = tried.count(False), tried.count(None)
    say(f"{len(tried)} pairs of programs, {no_oracle} without an oracle, {failures} failures")
    return 1 if failures or no_oracle > len(tried) // 4 else 0


if __name__ == "__main__":
    sys.exit(main())
