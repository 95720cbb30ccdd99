"""A8: `kill -9` at random moments loses no trial, repeats none and leaves nothing running."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from claims.checking import Found, Workshop
from tare import leftovers, process
from tare.command import Command, start_time
from tare.record import Record
from tare.stats.bounds import Kept
from tare.testing import traces

_KILLS = 20
_EXPERIMENT = """\
title: Does a killed run lose anything?
factors: {environment: [native, container], transport: [icmp, udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8, sessions: auto}
session: {requests: 500, warmup: 50, timeout: 1 s}
"""


def killed_run(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Run an experiment, kill it with SIGKILL at random moments, resume it each time to the end.

    Args:
        folder: where experiment and result are put.
        kills: how often it is killed at most; a run that ends earlier is not killed again.
        seed: of the moments.

    Returns:
        Counts: kills, trials expected, found, failed, repeated, and things left behind.
    """
    moments = random.Random(seed)  # noqa: S311 - moments, not secrets
    file, result = folder / "killed.yaml", folder / "result"
    file.write_text(_EXPERIMENT)
    tare = [sys.executable, "-m", "tare", "run"]
    done = 0
    marks, runs = set[str](), set[str]()

    def words() -> list[str]:
        begun = (result / "plan.json").is_file()
        return ["--resume", str(result)] if begun else [str(file), "--out", str(result)]

    for _ in range(kills):
        # Not process.start: that would kill the whole session, and what survives is the question.
        victim = subprocess.Popen(
            [*tare, *words()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            victim.wait(timeout=moments.uniform(1.5, 5.0))
        except subprocess.TimeoutExpired:
            mark = f"{victim.pid}:{start_time(victim.pid)}"
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            done += 1
            marks.add(mark)
            runs |= _runs_of(mark)
        else:
            break
    process.run(Command((*tare, *words())), timeout_s=300)
    return {"kills": done, "left": _left(marks, runs), **_inventory(result)}


def _runs_of(mark: str) -> set[str]:
    """Names of the runs whose owner bears a mark, from the lists that it left."""
    owners = leftovers.ROOT.glob("*/owner")
    return {path.parent.name for path in owners if f'"{mark}"' in path.read_text()}


def _left(marks: set[str], runs: set[str]) -> int:
    """Count what is still there of killed runs once the last resumed one has ended.

    Nothing is cleaned here: that the next start does so is what is claimed.
    """
    lists = sum((leftovers.ROOT / run).exists() for run in runs)
    there = sum(len(traces.of_run(run)) for run in runs)
    return lists + there + sum(len(traces.processes_of(mark)) for mark in marks)


def _inventory(result: Path) -> dict[str, int]:
    record = Record(result)
    plan = record.plan
    lines = (result / "trials.ndjson").read_text().splitlines()
    trials = record.trials()
    written = Counter(trial.key for trial in trials)
    return {
        "expected": sum(
            record.course(block).sessions.get(cell.id, 1)
            for block in range(len(plan.blocks))
            for cell in plan.cells
        ),
        "found": len(written),
        "failed": sum(trial.status == "failed" for trial in trials),
        "repeated": len(lines) - len(written),
    }


def kills(workshop: Workshop) -> Found:
    """A8: runs that are killed and resumed until there were enough kills."""
    totals: Counter[str] = Counter()
    seed = 0
    while totals["kills"] < _KILLS:
        workshop.say(f"{totals['kills']} of {_KILLS} kills")
        folder = workshop.scratch / f"killed-{seed}"
        folder.mkdir()
        totals += Counter(killed_run(folder, _KILLS - totals["kills"], seed))
        seed += 1
    lost = totals["expected"] - totals["found"]
    figure = (
        f"{totals['kills']} kills over {seed} runs of {totals['expected']} trials: {lost} lost,"
        f" {totals['repeated']} repeated, {totals['failed']} failed, {totals['left']} things left"
    )
    holds = lost == totals["repeated"] == totals["failed"] == totals["left"] == 0
    return Found(figure, dict(totals), counted=Kept.counted(holds))
