"""Runs experiments for the claims that rest on one: those that ship, and a claim's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tare import analysis, experiment, machine, plan, runner
from tare.claims import Workshop
from tare.record import Record
from tare.workloads import registry

__all__ = ["run_shipped", "run_text"]

Tell = Callable[[runner.Progress], None]


def run_shipped(workshop: Workshop, name: str, folder: Path) -> analysis.Analysis:
    """Run `experiments/NAME` to its end below a folder, and analyse it."""
    path = workshop.home / "experiments" / name
    text = path.read_text(encoding="utf-8")
    return analysis.analyse(run_text(workshop, text, folder / path.stem))


def run_text(workshop: Workshop, text: str, folder: Path, also_tell: Tell | None = None) -> Record:
    """Run the text of an experiment file to its end, into a folder that is not there yet.

    Args:
        workshop: what the claim may use.
        text: of the experiment file.
        folder: of the result; errors call the experiment by its name.
        also_tell: told of every trial before it begins, as the user is.
    """
    asked = experiment.parse(text, f"{folder.name}.yaml")
    workload = registry.by_name()[asked.workload]
    record = Record.create(
        folder, text, plan.make(asked, workload), machine.fingerprint(workshop.programs)
    )

    def tell(progress: runner.Progress) -> None:
        left = progress.seconds_left
        workshop.say(f"block {progress.block + 1}, {progress.doing}, about {left:.0f} s left")
        if also_tell is not None:
            also_tell(progress)

    runner.run(record, asked, workload, workshop.programs, workshop.cache, tell)
    return record
