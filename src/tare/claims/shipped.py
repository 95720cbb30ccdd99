"""Runs an experiment that ships, for the claims that rest on one."""

from __future__ import annotations

from pathlib import Path

from tare import analysis, experiment, machine, plan, runner
from tare.claims import Workshop
from tare.record import Record
from tare.workloads import registry


def run_shipped(workshop: Workshop, name: str, folder: Path) -> analysis.Analysis:
    """Run `experiments/NAME` to its end below a folder, and analyse it."""
    path = workshop.home / "experiments" / name
    asked = experiment.load(path)
    workload = registry.by_name()[asked.workload]
    record = Record.create(
        folder / path.stem,
        path.read_text(encoding="utf-8"),
        plan.make(asked, workload),
        machine.fingerprint(workshop.programs),
    )

    def tell(progress: runner.Progress) -> None:
        left = progress.seconds_left
        workshop.say(f"block {progress.block + 1}, {progress.doing}, about {left:.0f} s left")

    runner.run(record, asked, workload, workshop.programs, workshop.cache, tell)
    return analysis.analyse(record)
