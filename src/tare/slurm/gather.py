"""Joins blocks that were measured apart into one result, and tells which are missing.

Of a block the first attempt counts that has every trial on record and comes from a machine like the
others'; no block counts twice. Of unlike machines that one counts that measured most blocks, also
where fewer of another one's are on record already.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tare import analysis, lines
from tare.errors import TareError, UsageError
from tare.plan import Plan
from tare.record import Loss, Record, Trial
from tare.slurm.job import Job
from tare.stats.stopping import Action, decide


@dataclass(frozen=True)
class Gathered:
    """What came of it."""

    record: Record | None
    """The result; None while no block is complete."""
    blocks: tuple[int, ...]
    """That it holds."""
    missing: tuple[int, ...]
    """Of those that are needed as yet: no attempt at them is complete, or it does not count."""
    more: tuple[int, ...]
    """What the stopping rule asks for beyond, where none is missing."""
    notes: tuple[str, ...]
    """What was left out and why, in sentences."""

    @property
    def wanted(self) -> tuple[int, ...]:
        """What is still to be measured."""
        return self.missing or self.more


def gather(job: Job) -> Gathered:
    """Put every complete block that is not on record yet into the folder's result.

    Raises:
        UsageError: an attempt cannot be read.
        TareError: the result cannot be written.
    """
    notes: list[str] = []
    complete = _complete(job, notes)
    record = _made(job)
    if complete:
        commonest = _commonest(job, record, complete)
        if record is None:
            record = _make(job, commonest)
        elif commonest is not record:
            _begin_anew(record, commonest, notes)
    if record is None:
        return Gathered(None, (), tuple(range(job.plan.min_blocks)), (), tuple(notes))
    _append(job, record, _counted(job, record, complete, notes))
    return _ask(job, record, notes)


def _complete(job: Job, notes: list[str]) -> dict[int, list[Record]]:
    """Block -> the attempts at it that have all of its trials on record, in their order."""
    found: dict[int, list[Record]] = {}
    for block, attempts in job.attempts().items():
        torn = ""
        for attempt in attempts:
            if not _is_part(job, block, attempt):
                notes.append(f"{attempt.folder} is of another experiment, and does not count")
            elif job.holds(attempt, block):
                found.setdefault(block, []).append(attempt)
            else:
                done, of = len(attempt.trials()), len(job.trials(block))
                torn = f"block {block} is not complete: {done} of its {of} trials are on record"
        if torn and block not in found:
            notes.append(torn)
    return found


def _is_part(job: Job, block: int, attempt: Record) -> bool:
    return block < len(job.plan.blocks) and _text(attempt.plan) == _text(job.part(block))


def _text(plan: Plan) -> str:
    return plan.model_dump_json()


def _made(job: Job) -> Record | None:
    """The result that was gathered before."""
    if not (job.folder / "plan.json").is_file():
        return None
    record = Record(job.folder)
    if _text(record.plan) != _text(job.plan):
        raise UsageError(
            f"{job.folder} holds the result of another plan than its jobs'",
            f"move its plan.json, trials.ndjson and samples away; the blocks lie in {job.folder}/"
            ".slurm",
        )
    return record


def _commonest(job: Job, record: Record | None, complete: Mapping[int, list[Record]]) -> Record:
    """A block of the machine, or of the alike ones, that measured most; of as many, the first's.

    The record itself where its own are as many as any other's.
    """
    kinds = [] if record is None else [(record, set(_held(job, record)))]
    for block, attempts in complete.items():
        for attempt in attempts:
            alike = (of for one, of in kinds if not job.unlike(one, attempt.fingerprint))
            blocks = next(alike, None)
            if blocks is None:
                kinds.append((attempt, {block}))
            else:
                blocks.add(block)
    return max(kinds, key=lambda kind: len(kind[1]))[0]


def _counted(
    job: Job, record: Record, complete: Mapping[int, list[Record]], notes: list[str]
) -> dict[int, Record]:
    """Block -> the attempt that counts: the first on a machine like the result's."""
    found: dict[int, Record] = {}
    for block, attempts in complete.items():
        differing: list[str] = []
        for attempt in attempts:
            if unlike := job.unlike(record, attempt.fingerprint):
                differing = unlike
            elif block in found:
                kept, name = found[block].folder.name, attempt.folder.name
                notes.append(f"block {block} was measured twice: {kept} counts, {name} does not")
            else:
                found[block] = attempt
        if block not in found:
            notes.append(
                f"block {block} does not count: it was measured on another machine or with other"
                f" programs ({', '.join(differing)} differ), and unlike ones are not merged; name"
                " alike nodes, as by sbatch --constraint"
            )
    return found


def _make(job: Job, first: Record) -> Record:
    """The folder as a result, with the fingerprint of the first block's node."""
    with suppress(OSError):
        (job.folder / "samples").rmdir()  # left by one that was killed before it had a plan
    text = job.asked.experiment_path.read_text(encoding="utf-8")
    fingerprint = first.fingerprint.whole
    return Record.create(job.folder, text, job.plan, fingerprint, beside=True)


def _begin_anew(record: Record, first: Record, notes: list[str]) -> None:
    """Forget what is on record, which the attempts still have, for the blocks of another machine.

    The fingerprint comes last: killed before, it is done again.
    """
    notes.append(
        "what was on record is of a machine that measured fewer blocks than another one, whose"
        " blocks count from now on"
    )
    with record.writing():
        for kind in (Trial, Loss):
            (record.folder / kind.file).unlink(missing_ok=True)
        for samples in (record.folder / "samples").glob("*"):  # none, where the folder was lost
            samples.unlink()
        found = json.dumps(first.fingerprint.whole, indent=1, default=str)
        lines.replace(record.folder / "environment.json", found)


def _held(job: Job, record: Record) -> list[int]:
    """The blocks that are whole on record."""
    on_record = {trial.key for trial in record.trials()}
    return [n for n in range(len(job.plan.blocks)) if job.trials(n) <= on_record]


def _append(job: Job, record: Record, counted: Mapping[int, Record]) -> None:
    """Add what is not on record yet, whole blocks at a time.

    Of a block that was cut off by a kill all trials come again: of two lines of one trial, the last
    counts, so that all are of one attempt.
    """
    with record.writing() as writer:
        on_record = {trial.key for trial in record.trials()}
        lost = {loss.key for loss in record.losses()}
        for block, attempt in counted.items():
            # Also of what was gathered before: a task loses what it leaves last.
            for loss in attempt.losses():
                if loss.key not in lost:
                    writer.append(loss)
            if job.trials(block) <= on_record:
                continue
            for trial in attempt.trials():
                if (samples := attempt.samples_path(trial)) is not None:
                    _copy(samples, record.folder / "samples" / samples.name)
                writer.append(trial)


def _copy(samples: Path, to: Path) -> None:
    try:
        part = to.with_suffix(".parquet.part")
        shutil.copyfile(samples, part)
        lines.sync(part)
        part.rename(to)
    except OSError as error:
        raise TareError(
            f"cannot copy {samples} to {to}: {error.strerror}", "make room, then gather again"
        ) from error


def _ask(job: Job, record: Record, notes: list[str]) -> Gathered:
    """Which blocks are missing; where none is, whether the stopping rule asks for more."""
    plan, held = job.plan, _held(job, record)
    needed = max([plan.min_blocks, *(n + 1 for n in held)])
    missing = tuple(n for n in range(needed) if n not in held)
    more: tuple[int, ...] = ()
    if not missing:
        decision = decide(
            analysis.half_widths(record),
            blocks=needed,
            min_blocks=plan.min_blocks,
            max_blocks=len(plan.blocks),
            target_percent=plan.experiment.blocks.until_percent,
        )
        if decision.action is Action.CONTINUE:
            projected = decision.projected_blocks or len(plan.blocks)
            more = tuple(range(needed, min(max(needed + 1, projected), len(plan.blocks))))
    return Gathered(record, tuple(held), missing, more, tuple(notes))
