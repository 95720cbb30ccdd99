"""Is a history of 10 000 runs and 10^9 samples still usable? (claim A14).

    python benchmarks/history.py [--runs N] [--at FOLDER]

Makes so many results of 100 000 samples each in the layout of docs/formats/results.md, and times
`tare history` on them as a user waits for it: from the start of its process to the end. Results
differ in moment, plan and level, but their sample files are links to a few hundred that differ:
each is read as often as it is linked, and the disk holds it once. One cell's level rises by 10 %
after two thirds of the runs. Files are in the page cache, as where runs have just been made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tare import plan as plans
from tare.experiment import parse
from tare.plan import Plan
from tare.record import Trial

RUNS, SAMPLES, VARIANTS, REPEATS = 10_000, 100_000, 32, 5
EXPERIMENT = """\
title: What does a response cost in a container?
workload: request-reply
factors: {environment: [native, container], transport: [udp, tcp]}
baseline: {environment: native}
family: none
blocks: {min: 2, max: 2}
"""
CELL, SPREAD, STEP = "container/udp", 0.03, 1.1
BEGAN = datetime(2020, 1, 1, tzinfo=UTC)
FINGERPRINT = {
    "cpu": {"model": "Made up", "online": "0-1", "usable": 2, "virtual": True},
    "memory_bytes": 24 << 30,
    "tare": {"version": "0", "commit": "0" * 40},
}


# As `tare history`; getrusage would count this process' memory before exec too.
_ASK = """\
import sys
from tare.cli import app
app(["history", *sys.argv[1:]], standalone_mode=False)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(1024 * int(line.split()[1]), file=sys.stderr)
"""


def make(folder: Path, runs: range, of: int) -> None:
    """Make some results of so many."""
    plan = plans.make(parse(EXPERIMENT, "experiment.yaml"), 1)
    rng = np.random.default_rng(runs.start)
    pool = folder / ".samples"
    if not pool.exists():
        pool.mkdir(parents=True)
        session = -(-SAMPLES // (len(plan.cells) * len(plan.blocks)))
        for step in (1.0, STEP):
            for variant in range(VARIANTS):
                write_session(pool / f"{step}-{variant}.parquet", session, step, rng)
    for number in runs:
        steps = {
            cell.id: STEP if cell.id == CELL and number >= 2 * of // 3 else 1.0
            for cell in plan.cells
        }
        result = folder / f"{number // 100:03}" / f"{number:05}"
        write_result(result, plan.model_copy(update={"seed": number}), steps, pool, rng)


def write_session(path: Path, samples: int, step: float, rng: np.random.Generator) -> None:
    """Write one session: log-normal responses around 7 µs or what they rose to."""
    intended = np.cumsum(rng.integers(10_000, 12_000, samples))
    level = 7_000.0 * step * np.exp(rng.normal(0.0, SPREAD))
    response = level * np.exp(rng.normal(0.0, 0.05, samples))
    table = pa.table(
        {
            "client": np.zeros(samples, dtype=np.int32),
            "sequence": np.arange(samples, dtype=np.int32),
            "intended_ns": intended,
            "sent_ns": intended,
            "received_ns": intended + response.astype(np.int64),
        }
    )
    pq.write_table(table, path, compression="zstd")


def write_result(
    folder: Path, plan: Plan, steps: dict[str, float], pool: Path, rng: np.random.Generator
) -> None:
    """Write a result, without waiting for the disk as a run does."""
    (folder / "samples").mkdir(parents=True)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    (folder / "environment.json").write_text(json.dumps(FINGERPRINT))
    (folder / "plan.json").write_text(plan.model_dump_json())
    began = BEGAN + timedelta(hours=4 * plan.seed)
    lines = []
    for block in range(len(plan.blocks)):
        for position, (cell, step) in enumerate(steps.items()):
            name = f"{block:03}-{position:03}.parquet"
            os.link(pool / f"{step}-{rng.integers(VARIANTS)}.parquet", folder / "samples" / name)
            trial = Trial(
                block=block,
                position=position,
                cell=cell,
                session=f"{block}",
                started=(began + timedelta(seconds=10 * block + position)).isoformat(),
                seconds=1.0,
                status="ok",
                samples=name,
            )
            lines.append(trial.model_dump_json() + "\n")
    (folder / "trials.ndjson").write_text("".join(lines))


def ask(*arguments: str) -> dict[str, float]:
    """Ask in a process of its own; seconds from its start to its end, and its peak memory."""
    began = time.perf_counter()
    command = [sys.executable, "-c", _ASK, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    return {"seconds": round(seconds, 2), "peak_rss_bytes": int(done.stderr.split()[-1])}


def measure(folder: Path, runs: int) -> dict[str, object]:
    """Make all results but one, and ask; then the last one, and ask again."""
    make(folder, range(runs - 1), runs)
    first = ask(str(folder))
    make(folder, range(runs - 1, runs), runs)
    added = ask(str(folder))
    cell = (str(folder), "--cell", CELL)
    plan = plans.make(parse(EXPERIMENT, "experiment.yaml"), 1)
    sessions = runs * len(plan.cells) * len(plan.blocks)
    session = pq.read_metadata(next((folder / ".samples").iterdir())).num_rows
    kept = sum(path.stat().st_size for path in (folder / ".history").rglob("*.parquet"))
    series = json.loads(_said(*cell, "--json"))["series"]
    return {
        "runs": runs,
        "sessions": sessions,
        "samples": sessions * session,
        "files": sum(1 for _ in (folder / ".samples").iterdir()),
        "kept_bytes": kept,
        "reading_all": first,
        "overview_one_run_new": added,
        "overview": [ask(str(folder)) for _ in range(REPEATS)],
        "cell": [ask(*cell) for _ in range(REPEATS)],
        "runs_of_the_cell": [len(one["points"]) for one in series],
        "changes": [[step["at"] for step in one["steps"]] for one in series],
        "true_change": 2 * runs // 3,
    }


def _said(*arguments: str) -> str:
    command = [sys.executable, "-m", "tare", "history", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Measure, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--at", type=Path, help="make them there, and leave them")
    arguments = parser.parse_args()
    if arguments.at:
        found = measure(arguments.at, arguments.runs)
    else:
        with tempfile.TemporaryDirectory(prefix="tare-history-") as folder:
            found = measure(Path(folder), arguments.runs)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
