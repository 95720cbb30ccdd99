"""Runs experiments for the claims that rest on one: those that ship, and a claim's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from claims import Workshop
from tare import analysis, experiment, machine, plan, preflight, runner
from tare.errors import UnavailableError, UsageError
from tare.record import Record
from tare.stats.bounds import LOOKS

__all__ = ["run_shipped", "run_text"]

Tell = Callable[[runner.Progress], None]


def run_shipped(workshop: Workshop, name: str, folder: Path) -> analysis.Analysis:
    """Run `experiments/NAME` to its end below a folder, and analyse it.

    Where blocks are added to what an earlier look measured, that look's folder is gone on with.
    """
    path = workshop.home / "experiments" / name
    text = path.read_text(encoding="utf-8")
    within = folder if workshop.look is None else workshop.look.folder
    record = run_text(workshop, text, within / path.stem)
    return analysis.analyse(record, workshop.confidence)


def _refuse_parts(whole: plan.Plan, possible: plan.Plan) -> None:
    """A claim is not checked on a part of what it speaks of."""
    if cuts := possible.cuts[len(whole.cuts) :]:
        raise UnavailableError(
            f"this machine cannot measure all of it: {'; '.join(cuts)}",
            "`tare doctor` shows what each needs",
        )


def run_text(workshop: Workshop, text: str, folder: Path, also_tell: Tell | None = None) -> Record:
    """Run the text of an experiment file to its end, or to this look's number of blocks.

    Args:
        workshop: what the claim may use.
        text: of the experiment file.
        folder: of the result, not there yet but for a later look; errors call the experiment by
            its name.
        also_tell: told of every trial before it begins, as the user is.

    Raises:
        UsageError: an earlier look was of another machine, or of other programs.
        UnavailableError: this machine cannot run all of it.
    """
    asked = experiment.parse(text, f"{folder.name}.yaml")
    here, look = machine.fingerprint(workshop.programs), workshop.look
    blocks = None
    if look is not None:
        # All looks are planned at once: an order that is drawn further is the same order.
        blocks = look.blocks(asked.blocks.min)
        most = replace(look, number=LOOKS).blocks(asked.blocks.min)
        asked = asked.model_copy(update={"blocks": asked.blocks.model_copy(update={"max": most})})
    if look is not None and (folder / "plan.json").is_file():
        record = Record(folder)
        if changed := machine.changed(
            record.fingerprint.whole, here, record.plan.workload.programs
        ):
            raise UsageError(
                f"no blocks can be added to {folder}: since it began, {', '.join(changed)} changed",
                f"remove {look.folder}, and begin again",
            )
    else:
        whole = plan.make(asked)
        _refuse_parts(whole, preflight.possible(whole, workshop.programs, connect=True))
        record = Record.create(folder, text, whole, here)

    def tell(progress: runner.Progress) -> None:
        left = progress.seconds_left
        workshop.say(f"block {progress.block + 1}, {progress.doing}, about {left:.0f} s left")
        if also_tell is not None:
            also_tell(progress)

    runner.run(record, workshop.programs, workshop.cache, tell, blocks=blocks)
    return record
