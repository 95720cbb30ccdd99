"""A Slurm of two machines, and in it an MPI experiment as its user runs it.

    on_slurm.py FOLDER      (as root; FOLDER is what both machines see)

Two of four blocks are killed, one without notice and one as `scancel` does; what was measured is
gathered, and what is missing is measured by the line that the gathering prints.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parents[2]
sys.path[:0] = [str(HOME / room) for room in ("nvio/conformance", "tests")]

import cluster  # noqa: E402 - stands beside the build
from cluster import Cluster, wait_until  # noqa: E402
from opening import open_to_users  # noqa: E402

PATIENCE_S = 120.0
SETTINGS = {"PYTHONPATH": str(HOME / "src"), "NO_COLOR": "1"}
EXPERIMENT = """\
title: Does a cache serve small pieces on a cluster?
workload: mpi-io
factors:
  program: [grid]
  cache: [plain, nvio]
  filesystem: [folder {files}]
  operation: [write, read]
  order: [strided, sequential]
  ranks: [2]
  size: [256 KiB]
baseline: {{cache: plain}}
family: none
statistic: time
blocks: {{min: 4, max: 4, sessions: 1}}
"""


def try_it(running: Cluster) -> None:
    """From the file to a whole result."""
    (cluster.HOME / "files").mkdir()
    os.chown(cluster.HOME / "files", cluster.UID, cluster.UID)
    (cluster.HOME / "cluster.yaml").write_text(EXPERIMENT.format(files=cluster.HOME / "files"))
    held = ("--submit", "--at-once", "2", "--sbatch-option=--hold", "--json")
    said = json.loads(tare(running, 0, "cluster.yaml", "--out", "out", *held).stdout)
    assert said["blocks"] == [0, 1, 2, 3]
    out = cluster.HOME / "out"
    early = tare(running, 5, "--gather", "out").stderr
    assert "waiting or running: 0-3" in early, early
    running.output_of("scontrol", "release", said["job"])

    await_trial(out, 1)
    kill(1)
    await_trial(out, 2)
    running.output_of("scancel", f"{said['job']}_2")
    end_all(running)
    logs = {path.name[0]: path.read_text() for path in (out / "logs").iterdir()}
    assert "interrupted" not in logs["1"], logs
    assert "block 2 was interrupted, and is lost alone" in logs["2"], logs

    found = tare(running, 5, "--gather", "out").stderr
    assert "block 1 is not complete" in found, found
    assert "missing: 1-2" in found, found
    again = re.search(r"sbatch --array=1-2%2 \S+", found)
    assert again is not None
    number = running.output_of("sh", "-c", again[0], **SETTINGS).split()[-1]
    running.output_of("scontrol", "release", number)  # it is the same script
    end_all(running)

    whole = tare(running, 0, "--gather", "out", "--json")
    assert "block 0 is complete already" in tare(running, 0, "--run", "out", "--block", "0").stderr
    report = json.loads(whole.stdout)["report"]["report"]
    assert "Does a cache serve small pieces" in (cluster.HOME / report).read_text()
    assert list((cluster.HOME / "files").iterdir()) == []  # nor is anything of the killed ones left
    lines = (out / "trials.ndjson").read_text().splitlines()
    trials = [json.loads(line) for line in lines]
    plan = json.loads((out / "plan.json").read_text())
    wanted = [(block, cell["id"]) for block in range(4) for cell in plan["cells"]]
    assert sorted((t["block"], t["cell"]) for t in trials) == sorted(wanted)
    assert [t["error"] for t in trials if t["status"] != "ok"] == []


def tare(running: Cluster, status: int, *words: str) -> subprocess.CompletedProcess[str]:
    """`tare slurm` as the user; what it printed, if it ended with this status."""
    done = running.as_user(sys.executable, "-m", "tare", "slurm", *words, **SETTINGS)
    said = f"{done.returncode}: {done.stdout[-500:]}{done.stderr}{tasks_said()}"
    assert done.returncode == status, said
    return done


def await_trial(out: Path, block: int) -> None:
    """Wait until a block has its first trial on record."""
    file = out / f".slurm/{block:03d}-1/trials.ndjson"
    try:
        wait_until(lambda: file.exists() and file.stat().st_size > 0, PATIENCE_S, f"block {block}")
    except cluster.RunError as problem:
        raise AssertionError(f"{problem}\n{tasks_said()}{cluster.logs()}") from None


def kill(block: int) -> None:
    """End the process that measures a block, without notice."""
    ending = f"\0--block\0{block}\0".encode()
    (process,) = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if path.read_bytes().endswith(ending)
    ]
    os.kill(process, signal.SIGKILL)


def tasks_said() -> str:
    """What the tasks printed."""
    logs = sorted((cluster.HOME / "out/logs").glob("*.log"))
    return "".join(f"--- {path.name}\n{path.read_text()}" for path in logs)


def end_all(running: Cluster) -> None:
    """Wait until no job is there any more."""

    def are_gone() -> bool:
        return not running.output_of("squeue", "--noheader").strip()

    try:
        wait_until(are_gone, PATIENCE_S, "the end of all jobs")
    except cluster.RunError as problem:
        raise AssertionError(f"{problem}\n{running.output_of('squeue')}{cluster.logs()}") from None


def main() -> int:
    """Try it in namespaces of its own."""
    if not cluster.is_inside():
        return cluster.run_inside(sys.argv)
    folder = Path(sys.argv[1])
    folder.chmod(0o755)
    open_to_users()
    with cluster.cluster(2, folder) as running:
        try_it(running)
    return 0


if __name__ == "__main__":
    sys.exit(main())
