"""Runs experiments for the claims that rest on one: those that ship, and a claim's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from claims.checking import Workshop
from tare import analysis, experiment, machine, plan, preflight, repetition, runner
from tare.analysis.questions import ratio_of
from tare.analysis.sessions import Sessions
from tare.errors import UnavailableError, UsageError
from tare.record import Record
from tare.stats import Ratio
from tare.stats.bounds import LOOKS


@dataclass(frozen=True)
class Measured:
    """A result, read once for every claim that rests on it."""

    record: Record
    analysis: analysis.Analysis

    @property
    def sessions(self) -> Sessions:
        """Those that were analysed."""
        return self.analysis.sessions

    def ratio(self, cell: str, against: str, statistic: str, confidence: float) -> Ratio:
        """One cell over another, as a promise is judged."""
        return ratio_of(self.sessions, cell, against, statistic, confidence).promised


def run_shipped(workshop: Workshop, name: str) -> Measured:
    """Run `experiments/NAME` to its end, and analyse it; once, for however many claims."""
    if name not in workshop.measured:
        text = (workshop.home / "experiments" / name).read_text(encoding="utf-8")
        record = run_text(workshop, text, Path(name).stem)
        look, least = workshop.look, record.plan.min_blocks
        # A later look may have been interrupted: what it measured is not this one's.
        until = math.inf if look is None else look.blocks(least)
        trials = [trial for trial in record.trials() if trial.block < until]
        found = analysis.analyse(record, workshop.confidence, trials)
        workshop.measured[name] = Measured(record, found)
    return workshop.measured[name]


def run_text(
    workshop: Workshop,
    text: str,
    name: str,
    also_tell: Callable[[runner.Progress], None] = lambda _: None,
) -> Record:
    """Run the text of an experiment file to its end, or to this look's number of blocks.

    Where blocks are added to what an earlier look measured, that result is gone on with.

    Args:
        workshop: what the claim may use.
        text: of the experiment file.
        name: of the result's folder; errors call the experiment by it.
        also_tell: told of every trial before it begins, as the user is.

    Raises:
        UsageError: what was measured before was of another machine, or of other programs.
        UnavailableError: this machine cannot run all of it.
    """
    asked = experiment.parse(text, f"{name}.yaml")
    folder, here = workshop.scratch / name, machine.fingerprint(workshop.programs)
    if look := workshop.look:
        # All looks are planned at once: an order that is drawn further is the same order.
        most = replace(look, number=LOOKS).blocks(asked.blocks.min)
        blocks = asked.blocks.model_copy(update={"max": most})
        asked = asked.model_copy(update={"blocks": blocks})
    if (folder / "plan.json").is_file():
        record = Record(folder)
        if changed := machine.changed(
            record.fingerprint.whole, here, record.plan.workload.programs
        ):
            raise UsageError(
                f"no blocks can be added to {folder}: since it began, {', '.join(changed)} changed",
                f"remove {workshop.scratch}, and begin again",
            )
    else:
        whole = repetition.planned(plan.make(asked))
        _refuse_parts(whole, preflight.possible(whole, workshop.programs, connect=True))
        record = Record.create(folder, text, whole, here)

    def tell(progress: runner.Progress) -> None:
        left = progress.seconds_left
        workshop.say(f"block {progress.block + 1}, {progress.doing}, about {left:.0f} s left")
        also_tell(progress)

    until = None if look is None else look.blocks(asked.blocks.min)
    runner.run(record, workshop.programs, workshop.cache, tell, blocks=until)
    return record


def _refuse_parts(whole: plan.Plan, possible: plan.Plan) -> None:
    """A claim is not checked on a part of what it speaks of."""
    if cuts := possible.cuts[len(whole.cuts) :]:
        raise UnavailableError(
            f"this machine cannot measure all of it: {'; '.join(cuts)}",
            "`tare doctor` shows what each needs",
        )
