#!/usr/bin/env python3
"""Record real MPI programs, calibrate the folder they ran in, and predict.

    recorded.py --build DIR --mpi mpich|openmpi

What is recorded must be every call that the program made, the file must be as plain MPI writes it,
a prediction must be in order, and there must be none where a trace is torn or missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from launch import Launch, RunError, command_line, run, say

RANKS = 2
PIECE = 4096
SIZE = 4 << 20
PIECES = SIZE // PIECE
TIMEOUT_S = 120.0


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

    def predict(self, trace: str) -> subprocess.CompletedProcess[str]:
        """What `nvio predict` says."""
        command = [
            str(self.launch.build / "nvio"), "predict", str(self.folder / trace), "--json",
            "--calibration", str(self.folder / "calibration.json"), "--store", str(self.folder),
            "--capacity", "16M",
        ]  # fmt: skip
        environment = self.launch.environment(None)
        return subprocess.run(command, env=environment, text=True, capture_output=True, check=False)


def expect(condition: bool, what: str) -> None:
    """Raise RunError unless it is so."""
    if not condition:
        raise RunError(what)


def check(case: Case) -> None:
    """All that the docstring says."""
    run(case.grid("plain", "write", "strided"), case.launch.environment(None), TIMEOUT_S)
    told = case.record("writes", case.grid("recorded", "write", "strided"))
    expect("next: nvio calibrate DIR" in told, f"a step is left out: {told}")
    same = (case.folder / "plain").read_bytes() == (case.folder / "recorded").read_bytes()
    expect(same, "a recorded program wrote other bytes than a plain one")
    case.record("reads", case.grid("plain", "read", "random"))
    calibrate = [str(case.launch.build / "nvio"), "calibrate", str(case.folder), "--ranks", "1"]
    store = ["--store", str(case.folder), "--output", str(case.folder / "calibration.json")]
    run([*calibrate, *store], case.launch.environment(None), TIMEOUT_S)

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
    left = [path.name for path in case.folder.iterdir() if path.name.startswith((".", "nvio-"))]
    expect(not left, f"left behind: {left}")

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
    with tempfile.TemporaryDirectory(prefix="nvio-recorded-") as name:
        case = Case(Launch(options.mpi, options.build.resolve(), RANKS), Path(name))
        try:
            check(case)
        except RunError as failure:
            say(str(failure))
            return 1
    say("recorded whole, predicted in order, refused without ground")
    return 0


if __name__ == "__main__":
    sys.exit(main())
