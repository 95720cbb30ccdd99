#!/usr/bin/env python3
"""Record real MPI programs, calibrate the folder they ran in, and predict.

    recorded.py --build DIR --mpi mpich|openmpi

What is recorded must be every call that the program made, the file must be as plain MPI writes it,
a prediction must be in order, and there must be none where a trace is torn or missing.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

RANKS = 2
PIECE = 4096
SIZE = 4 << 20
PIECES = SIZE // PIECE
SPARSE_ROUNDS, SPARSE_PIECES = 2 * 6, 1000  # of the program `sparse`, a rank, in two files
SPARSE_BYTES = 64 * SPARSE_PIECES  # of a call
READ_VIEW, WRITE_VIEW = 11, 12
TIMEOUT_S = 120.0


TRIES = 4


class OtherwiseBusyError(RunError):
    """The machine has other things to do than when it was calibrated: nothing is predicted."""


@dataclass(frozen=True)
class Case:
    """A folder, and programs in it."""

    launch: Launch
    folder: Path

    def grid(self, name: str, operation: str, order: str) -> list[str]:
        """The command line of a small measurement on a file."""
        program = str(self.launch.build / f"grid-{self.launch.mpi}")
        words = [program, str(self.folder / name), operation, order, str(PIECE), str(SIZE), "1"]
        return self.launch.command(words)

    def record(self, trace: str, command: list[str]) -> str:
        """Run a command under `nvio record`, and return what was printed."""
        nvio = [str(self.launch.build / "nvio"), "record", "--output", str(self.folder / trace)]
        return run([*nvio, "--", *command], self.launch.environment(None), TIMEOUT_S)

    def prediction(self, trace: str, calibration: str = "calibration.json") -> list[str]:
        """The command line of `nvio predict`."""
        return [
            str(self.launch.build / "nvio"), "predict", str(self.folder / trace), "--json",
            "--calibration", str(self.folder / calibration), "--store", str(self.folder),
            "--capacity", "16M",
        ]  # fmt: skip

    def predict(self, trace: str, **hints: str) -> subprocess.CompletedProcess[str]:
        """What `nvio predict` says."""
        command, environment = self.prediction(trace), {**self.launch.environment(None), **hints}
        said = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        if "calibrate again" in said.stderr:
            raise OtherwiseBusyError(said.stderr)
        return said

    def calibration(self, output: str) -> list[str]:
        """The command line of `nvio calibrate`, with its store in the folder too."""
        nvio = str(self.launch.build / "nvio")
        where = ["--store", str(self.folder), "--output", str(self.folder / output)]
        return [nvio, "calibrate", str(self.folder), "--ranks", "1", *where]

    def left(self) -> list[str]:
        """What `nvio` made in the folder that is still there."""
        return [path.name for path in self.folder.iterdir() if path.name.startswith((".", "nvio-"))]


def expect(condition: bool, what: str) -> None:
    """Raise RunError unless it is so."""
    if not condition:
        raise RunError(what)


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    """A process whose signals are not ignored, whatever is here."""
    command = ["env", "--default-signal=INT,TERM,HUP", *command]
    return subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE)


def stop_predicting(case: Case, number: int) -> None:
    """A replay that is stopped leaves no store, which would name the job's own files."""
    pipe = case.folder / "pipe"
    os.mkfifo(pipe)
    nvio = start(case.prediction("writes", pipe.name), case.launch.environment(None))
    # Once it reads its calibration it has all before it.
    with pipe.open("w") as calibration:
        nvio.send_signal(number)
        calibration.write((case.folder / "calibration.json").read_text())
    _, said = nvio.communicate(timeout=TIMEOUT_S)
    pipe.unlink()
    expect(nvio.returncode == 1 and "stopped" in said, f"predict, signal {number}: {said}")
    expect(not case.left(), f"predict, signal {number}, left behind: {case.left()}")


def stop_calibrating(case: Case, number: int) -> None:
    """A calibration that is stopped leaves no file."""
    nvio = start(case.calibration("unfinished.json"), case.launch.environment(None))
    limit = time.monotonic() + TIMEOUT_S
    while not case.left() and nvio.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    nvio.send_signal(number)
    _, said = nvio.communicate(timeout=TIMEOUT_S)
    expect(nvio.returncode == 1 and "stopped" in said, f"calibrate, signal {number}: {said}")
    expect(not case.left(), f"calibrate, signal {number}, left behind: {case.left()}")


def calls_of(trace: Path) -> list[tuple[int, int]]:
    """(kind, length) of each call of a rank (docs/formats/nvio-trace.md)."""
    whole, at, found = trace.read_bytes(), 96, []
    while at < len(whole):
        _, kind, length = struct.unpack_from("<3I", whole, at)
        payload = whole[at + 24 : at + 24 + length]
        at += 24 + length
        if kind == 1:
            found += [(one[0], one[5]) for one in struct.iter_unpack("<BBHIQQQQ", payload)]
    return found


def check_views(case: Case) -> None:
    """What a program asks of its views is noted, and replayed in place of its MPI's calls."""
    sparse = [str(case.launch.build / f"sparse-{case.launch.mpi}"), str(case.folder)]
    told = case.record("views", case.launch.command(sparse))
    expect("0 differences" in told, f"a recorded program reads other bytes: {told}")
    for trace in (case.folder / "views").glob("*.trace"):
        calls = calls_of(trace)
        for kind in (READ_VIEW, WRITE_VIEW):
            lengths = [length for one, length in calls if one == kind]
            expect(lengths == [SPARSE_BYTES] * SPARSE_ROUNDS, f"{trace.name}: {kind}: {lengths}")
    said = case.predict("views", NVIO_ADMIT="always")
    expect(said.returncode == 0, said.stderr)
    found = json.loads(said.stdout)
    asked = RANKS * SPARSE_ROUNDS * SPARSE_PIECES
    expect((found["reads"], found["writes"]) == (asked, asked), f"pieces: {said.stdout}")
    expect(found["writes_cached"] == asked, f"pieces that the cache takes: {said.stdout}")


def check_cut(case: Case) -> None:
    """Where a trace is not whole, `nvio record` fails, though its command did not."""
    cut = f'"$@"; truncate --size=-1 {case.folder}/cut/*.trace'
    try:
        case.record("cut", ["sh", "-c", cut, "sh", *case.grid("plain", "read", "random")])
    except RunError as failure:
        expect("ends before" in str(failure), f"a trace that was cut: {failure}")
    else:
        raise RunError("a trace that was cut is not told")


def check_late(case: Case) -> None:
    """A rank that begins while another is in MPI_Finalize is no second program of a script."""
    late = [str(case.launch.build / f"late-{case.launch.mpi}"), str(case.folder)]
    case.record("late", case.launch.command(late))
    said = case.predict("late")
    expect(said.returncode == 0, f"a rank that begins late: {said.stderr}")


def check_exit(case: Case) -> None:
    """A program that ends without MPI_Finalize is recorded to its end all the same."""
    ended = str(case.launch.build / f"ended-{case.launch.mpi}")
    case.record("exit", [ended, str(case.folder), "exit.file"])
    said = case.predict("exit")
    expect(said.returncode == 0, f"a program that ends by exit: {said.stderr}")


def check(case: Case) -> None:
    """All that the docstring says."""
    run(case.grid("plain", "write", "strided"), case.launch.environment(None), TIMEOUT_S)
    told = case.record("writes", case.grid("recorded", "write", "strided"))
    expect("next: nvio calibrate DIR" in told, f"a step is left out: {told}")
    same = (case.folder / "plain").read_bytes() == (case.folder / "recorded").read_bytes()
    expect(same, "a recorded program wrote other bytes than a plain one")
    case.record("reads", case.grid("plain", "read", "random"))
    run(case.calibration("calibration.json"), case.launch.environment(None), TIMEOUT_S)

    for trace, reads, writes in (("writes", 0, PIECES), ("reads", PIECES, 0)):
        ranks = sorted((case.folder / trace).glob("*.trace"))
        expect(len(ranks) == RANKS, f"{len(ranks)} traces of {RANKS} ranks")
        said = case.predict(trace)
        expect(said.returncode == 0, said.stderr)
        found = json.loads(said.stdout)
        expect((found["reads"], found["writes"]) == (reads, writes), f"calls: {said.stdout}")
        times = found["cached_seconds"]
        expect(0 < times["low"] <= times["median"] <= times["high"], f"times: {said.stdout}")
        expect(found["recorded_io_seconds"] < found["recorded_seconds"], said.stdout)
    expect(not case.left(), f"left behind: {case.left()}")
    check_views(case)
    check_cut(case)
    check_late(case)
    check_exit(case)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        stop_predicting(case, number)
        stop_calibrating(case, number)

    torn, missing = sorted((case.folder / "writes").glob("*.trace"))
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-1])
    said = case.predict("writes")
    expect(said.returncode == 1 and "ends before" in said.stderr, f"a torn trace: {said.stderr}")
    torn.write_bytes(whole)
    missing.unlink()
    said = case.predict("writes")
    expect(said.returncode == 1 and "only 1 traces" in said.stderr, f"a lost one: {said.stderr}")


def main() -> int:
    """Check; 0 when all is as it should be."""
    parser = command_line(__doc__)
    options = parser.parse_args()
    for attempt in range(1, TRIES + 1):
        with tempfile.TemporaryDirectory(prefix="nvio-recorded-") as name:
            try:
                check(Case(Launch(options.mpi, options.build.resolve(), RANKS), Path(name)))
                break
            except RunError as failure:
                say(str(failure))
                if attempt == TRIES or not isinstance(failure, OtherwiseBusyError):
                    return 1
    say("recorded whole, predicted in order, refused without ground")
    return 0


if __name__ == "__main__":
    sys.exit(main())
