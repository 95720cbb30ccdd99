"""How long does analysing a result take, and how much memory? (claim A7).

    python benchmarks/analysis.py [--json] [--samples N ...]

Makes results of 1, 3 and 10 million samples in the layout of docs/formats/results.md (sessions of
100 000 samples, and the largest once more as one single session), analyses each in a fresh process
from Parquet to verdicts, and prints what it took. Making the samples is not timed; starting Python
and imports are reported beside. `seconds` is what a user waits. `cpu_seconds` is what it costs; the
exponent of growth is fitted to it, since it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = time.perf_counter()

import numpy as np  # noqa: E402 (imports are part of what is timed)
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from tare.analysis.sessions import summarise_session  # noqa: E402
from tare.stats import across, judge_family, paired_ratio  # noqa: E402

SESSION = 100_000
CELLS = 5
DEADLINES_NS = (10_000, 100_000)


def write_session(path: Path, samples: int, rng: np.random.Generator) -> None:
    """Write one session: log-normal responses around 7 µs, bursts of late ones, a few lost."""
    intended = np.cumsum(rng.integers(10_000, 12_000, samples))
    response = 7_000.0 * np.exp(rng.normal(rng.normal(0.0, 0.03), 0.05, samples))
    bursts = rng.integers(0, samples, max(1, samples // 5_000))
    response[(bursts[:, np.newaxis] + np.arange(20)).ravel() % samples] *= 5.0
    lost = np.zeros(samples, dtype=bool)
    lost[rng.integers(0, samples, samples // 10_000)] = True
    table = pa.table(
        {
            "client": np.zeros(samples, dtype=np.int32),
            "sequence": np.arange(samples, dtype=np.int32),
            "intended_ns": intended,
            "sent_ns": intended,
            "received_ns": pa.array(intended + response.astype(np.int64), mask=lost),
        }
    )
    pq.write_table(table, path)


def write_result(folder: Path, samples: int, session: int) -> None:
    """Write sessions until all samples are on disk."""
    rng = np.random.default_rng(samples)
    for number, start in enumerate(range(0, samples, session)):
        write_session(folder / f"{number:05}.parquet", min(session, samples - start), rng)


def analyse(folder: Path) -> dict[str, float]:
    """Summarise every session, estimate every cell, judge every cell against the first."""
    imported, cpu = time.perf_counter(), time.process_time()
    sessions = [summarise_session(path, DEADLINES_NS) for path in sorted(folder.iterdir())]
    p50 = [session.summary.percentile(50).value for session in sessions]
    cells = [p50[cell::CELLS] for cell in range(CELLS)]
    blocks = min(map(len, cells))
    for cell in cells:
        across(cell)
    judge_family({str(i): paired_ratio(c[:blocks], cells[0][:blocks]) for i, c in enumerate(cells)})
    return {
        "replies": sum(session.replies for session in sessions),
        "seconds": round(time.perf_counter() - imported, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
        "import_seconds": round(imported - START, 3),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def peak_rss_bytes() -> int:
    """Peak resident memory of this program; getrusage would count its parent's before exec too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM line")


def measure(samples: int, session: int) -> dict[str, float]:
    """Make a result in a temporary folder and analyse it in a fresh process."""
    with tempfile.TemporaryDirectory(prefix="tare-analysis-") as folder:
        write_result(Path(folder), samples, session)
        command = [sys.executable, __file__, "--analyse", folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return {"samples": samples, "sessions": -(-samples // session), **found}


def main() -> None:
    """Measure each size and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--samples", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000]
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--analyse", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.analyse:
        print(json.dumps(analyse(arguments.analyse)))
        return
    sizes = sorted(arguments.samples)
    runs = [measure(samples, SESSION) for samples in sizes]
    single = measure(sizes[-1], sizes[-1])
    exponent = None
    if len(set(sizes)) > 1:
        spent = [run["cpu_seconds"] for run in runs]
        exponent = round(float(np.polyfit(np.log(sizes), np.log(spent), 1)[0]), 3)
    found = {
        "cores": len(os.sched_getaffinity(0)),
        "runs": runs,
        "one_session": single,
        "exponent": exponent,
    }
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'samples':>12} {'sessions':>9} {'seconds':>8} {'CPU':>6} {'peak MiB':>9}")
    for run in [*runs, single]:
        print(
            f"{run['samples']:>12,} {run['sessions']:>9} {run['seconds']:>8.1f}"
            f" {run['cpu_seconds']:>6.1f} {run['peak_rss_bytes'] / 2**20:>9.0f}"
        )
    if exponent is not None:
        print(f"CPU time grows as samples to the power {exponent}, on {found['cores']} cores.")


if __name__ == "__main__":
    main()
