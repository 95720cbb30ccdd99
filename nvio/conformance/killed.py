#!/usr/bin/env python3
"""Kill -9 a rank or manager of a real MPI program under nvio, recover its stores, check each cell.

    killed.py --build DIR --mpi mpich|openmpi --kills 5 [--nodes 2] [--set NVIO_X=VALUE ...]
    killed.py --build DIR --mpi mpich|openmpi --kills 5 --ending terminated|finished

With several (simulated) nodes every other victim is one of their managers.

A cell must hold the round of its last synced write, or a later round that was written to it.
Recovery runs twice: the second time must change nothing. How a job ends otherwise: terminated, all
ranks get SIGTERM, as from a batch system; finished, it is killed under `nvio run`. Then the file
must be so by itself, and no store be left.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from enum import Enum
from pathlib import Path

from launch import Launch, RunError, command_line_of_jobs, say

CELL_BYTES = 1024
WRITES_A_ROUND = 16


class Ending(Enum):
    """What happens to the job, or after it."""

    RECOVERED = "recovered"
    TERMINATED = "terminated"
    FINISHED = "finished"

    def __str__(self) -> str:
        return self.value


MULTIPLIER, INCREMENT, MASK = 6364136223846793005, 1442695040888963407, 2**64 - 1
"""Of killed.cc's generator, whose draws are the upper bits of its states."""


def first_state(seed: int, rank: int) -> int:
    """Before the first draw of a rank."""
    return (seed * 1000 + rank) & MASK


def state_after(state: int, draws: int) -> int:
    """The generator's state so many draws later."""
    multiplier, increment = MULTIPLIER, INCREMENT
    while draws:
        if draws & 1:
            state = (state * multiplier + increment) & MASK
        increment = (multiplier + 1) * increment & MASK
        multiplier = multiplier * multiplier & MASK
        draws >>= 1
    return state


def allowed_rounds(seed: int, ranks: int, cells: int, synced: list[int]) -> list[set[int]]:
    """For each cell of the file, the rounds it may hold after a crash."""
    allowed: list[set[int]] = [{0} for _ in range(cells * ranks)]
    back = pow(MULTIPLIER, -1, MASK + 1)
    for rank in range(ranks):
        last = WRITES_A_ROUND * synced[rank]
        end = state = state_after(first_state(seed, rank), last)
        # Backwards, until it is known of each cell when it was written last.
        seen: dict[int, int] = {}
        for draw in range(last - 1, -1, -1):
            seen.setdefault((state >> 33) % cells, draw // WRITES_A_ROUND + 1)
            if len(seen) == cells:
                break
            state = (state - INCREMENT) * back & MASK
        for cell, round_number in seen.items():
            allowed[cell * ranks + rank] = {round_number}
        # A round can be whole and not yet noted, and another under way.
        for round_number in (synced[rank] + 1, synced[rank] + 2):
            for _ in range(WRITES_A_ROUND):
                end = (end * MULTIPLIER + INCREMENT) & MASK
                allowed[(end >> 33) % cells * ranks + rank].add(round_number)
    return allowed


def check(content: bytes, allowed: list[set[int]]) -> None:
    """Raise RunError at the first cell that holds what it may not."""
    for cell, rounds in enumerate(allowed):
        raw = content[cell * CELL_BYTES : (cell + 1) * CELL_BYTES].ljust(CELL_BYTES, b"\0")
        found = set(struct.unpack(f"<{CELL_BYTES // 4}I", raw))
        if not found <= rounds:
            raise RunError(f"cell {cell} holds rounds {sorted(found)}, may hold {sorted(rounds)}")


def ranks_of(launcher: subprocess.Popen[bytes], program: str) -> list[int]:
    """Process identifiers of our own job's ranks: descendants of the launcher running `program`."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [launcher.pid]
    while queue:
        pid = queue.pop()
        queue.extend(children.get(pid, []))
        try:
            if Path(f"/proc/{pid}/exe").resolve() == Path(program):
                found.append(pid)
        except OSError:
            continue
    return found


def managers_of(store: Path) -> list[int]:
    """Process identifiers of the managers whose store lies in `store`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"/nvio-manager") and words[1] == str(store).encode():
                found.append(int(entry.name))
    return sorted(found)


def read_progress(path: Path, ranks: int) -> list[int]:
    """The last round that each rank noted as synced; 0 before the first."""
    rounds = []
    for rank in range(ranks):
        try:
            raw = Path(f"{path}.{rank}").read_bytes()
        except FileNotFoundError:
            raw = b""
        rounds.append(struct.unpack("<I", raw)[0] if len(raw) == 4 else 0)
    return rounds


def run_until(job: subprocess.Popen[bytes], progress: Path, ranks: int, rounds: int) -> None:
    """Wait until every rank has synced that many rounds."""
    deadline = time.monotonic() + 60
    while min(read_progress(progress, ranks)) < rounds:
        if job.poll() is not None:
            raise RunError(f"the program ended by itself with status {job.returncode}")
        if time.monotonic() > deadline:
            raise RunError("the program did not come far enough in 60 s")
        time.sleep(0.002)  # its ranks need the processors


def kill_one(
    launch: Launch, job: subprocess.Popen[bytes], program: str, pick: int, managers: list[int]
) -> None:
    """Kill -9 one of the managers, or else one rank; see that the job ends and no rank is left."""
    ranks = ranks_of(job, program)
    if len(ranks) != launch.ranks:
        raise RunError(f"found {len(ranks)} ranks of {launch.ranks}")
    victims = managers or ranks
    os.kill(victims[pick % len(victims)], signal.SIGKILL)
    try:
        job.wait(timeout=60)
    except subprocess.TimeoutExpired:
        # Open MPI may wait for a rank that it killed, and MPICH for those of another host; a lost
        # manager must end the program itself.
        if managers:
            raise RunError("the program goes on without the manager") from None
    finally:
        for pid in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            job.wait(timeout=60)  # without ranks its launcher ends, and `nvio run` behind it


def terminate_all_ranks(launch: Launch, job: subprocess.Popen[bytes], program: str) -> None:
    """SIGTERM for every rank, and wait until none is left."""
    victims = ranks_of(job, program)
    if len(victims) != launch.ranks:
        raise RunError(f"found {len(victims)} ranks of {launch.ranks}")
    for pid in victims:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while any(pid in ranks_of(job, program) for pid in victims):
        if time.monotonic() > deadline:
            raise RunError("ranks are still there 60 s after SIGTERM")
        time.sleep(0.05)


def recover(tool: Path, sessions: list[Path], *options: str) -> None:
    """Run `nvio recover`; ranks killed a moment ago may hold the store until they are gone."""
    for _ in range(100):
        done = subprocess.run(
            [tool, "recover", *options, *sessions], text=True, capture_output=True, check=False
        )
        if "still running" not in done.stderr:
            break
        time.sleep(0.1)
    if done.returncode != 0:
        raise RunError(f"recovery failed: {done.stdout}{done.stderr}")


def see_managers_end(store: Path) -> None:
    """Raise RunError if a manager outlives its job."""
    deadline = time.monotonic() + 60
    while left := managers_of(store):
        if time.monotonic() > deadline:
            raise RunError(f"managers {left} outlive their job")
        time.sleep(0.02)


def one_kill(
    launch: Launch,
    seed: int,
    settings: dict[str, str],
    folder: Path,
    nodes: int,
    *,
    ending: Ending,
) -> None:
    """One program and how it ends; raises RunError when something is wrong."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable test, no secret
    cells = 2000
    store = folder / "store"
    store.mkdir()
    nvio = {"NVIO_STORE": str(store), "NVIO_SESSION": "kill", "NVIO_ADMIT": "always"}
    # Open MPI terminates the ranks that are left: what they would write back is not to be mistaken
    # for what recovery does.
    nvio |= {"NVIO_SIGTERM": "on" if ending is Ending.TERMINATED else "off"}
    nvio |= {"NVIO_CAPACITY": "4M", **settings}
    if nodes > 1:
        nvio["NVIO_NODES"] = str(nodes)
    program = str((launch.build / f"killed-{launch.mpi}").resolve())
    progress = folder / "progress"
    wrapper = [str(launch.build / "nvio"), "run", "--"] if ending is Ending.FINISHED else []
    command = launch.command([program, str(folder / "file"), str(progress), str(cells), str(seed)])
    job = subprocess.Popen(
        [*wrapper, *command],
        env=launch.environment(nvio),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        run_until(job, progress, launch.ranks, chance.randint(1, 40))
        if ending is Ending.TERMINATED:
            terminate_all_ranks(launch, job, program)
        else:
            managers = managers_of(store) if seed % 2 == 1 else []
            kill_one(launch, job, program, chance.randrange(launch.ranks), managers)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
    see_managers_end(store)
    sessions = sorted(store.iterdir())
    if ending is not Ending.RECOVERED:
        content = (folder / "file").read_bytes()
        if sessions:
            raise RunError(f"the {ending} job left its store {sessions[0]}")
        meeting = settings.get("NVIO_RENDEZVOUS")
        if meeting and (met := list(Path(meeting).glob(f"nvio-*-run-{job.pid}-*"))):
            raise RunError(f"the {ending} job left {met[0]}, where its nodes met")
    else:
        if len(sessions) != nodes:
            raise RunError(f"{len(sessions)} stores are left of {nodes}")
        recover(launch.build / "nvio", sessions, "--keep")
        content = (folder / "file").read_bytes()
        recover(launch.build / "nvio", sessions[::-1])
        if list(store.iterdir()) or (folder / "file").read_bytes() != content:
            raise RunError("the second recovery changed the file, or left a store")
    check(content, allowed_rounds(seed, launch.ranks, cells, read_progress(progress, launch.ranks)))


def main() -> int:
    """Kill as often as asked; 0 when nothing that was synced was lost."""
    parser = command_line_of_jobs(__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=1, help="simulated nodes (default 1)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first kill")
    parser.add_argument(
        "--ending", type=Ending, choices=list(Ending), default=Ending.RECOVERED, help="see above"
    )
    options = parser.parse_args()
    launch = Launch(options.mpi, options.build.resolve(), 4, tuple(options.launch))
    settings = dict(pair.split("=", 1) for pair in options.set)
    failures = 0
    for seed in range(options.first, options.first + options.kills):
        folder = Path(tempfile.mkdtemp(prefix="nvio-killed-"))
        try:
            one_kill(launch, seed, settings, folder, options.nodes, ending=options.ending)
        except RunError as problem:
            say(f"kill {seed}: {problem}")
            failures += 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    say(f"{options.kills} kills, {failures} files inconsistent with their last sync")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
