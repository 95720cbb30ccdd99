"""`tare slurm`: an MPI experiment as an array job, and its blocks as one result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tare import rootless, units
from tare.cli import completing, paths, printing
from tare.cli.arguments import FLAG, Json, Out
from tare.cli.plan import lay_out, plan_json, print_plan, ready
from tare.cli.results import draw, drawn_for_machines
from tare.command import shell_line
from tare.errors import Exit, UnavailableError, UsageError

if TYPE_CHECKING:
    from tare.plan import Plan
    from tare.slurm import Gathered, Job


def slurm(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An experiment file of MPI programs, or the name of one that ships.",
            autocompletion=completing.experiments,
        ),
    ] = None,
    out: Out = None,
    ntasks: Annotated[
        int | None,
        typer.Option(min=1, help="Tasks that Slurm counts; by default the most ranks of any cell."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            help="Time limit of a task, such as 30m; by default 10 min plus twice a block."
        ),
    ] = None,
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    at_once: Annotated[
        int, typer.Option(min=1, help="Blocks to run at the same time; they share a file system.")
    ] = 1,
    sbatch_option: Annotated[
        list[str] | None,
        typer.Option(help="A further option of sbatch, such as --account=mine; repeatable."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the trials' random order.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar=FLAG, help="Print the plan; write nothing.")
    ] = False,
    submit: Annotated[
        bool, typer.Option("--submit", metavar=FLAG, help="Submit the script with sbatch.")
    ] = False,
    gather: Annotated[
        Path | None, typer.Option(help="Join the blocks of a folder, and say which are missing.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Measure one block of a folder, as the script does.")
    ] = None,
    block: Annotated[int | None, typer.Option(min=0, help="Which block, with --run.")] = None,
    json_: Json = False,
) -> None:
    """Run an MPI experiment by Slurm: a block is a task of an array job.

    [bold]tare slurm FILE --submit[/bold] writes a result folder with a batch script, and submits
    it. The folder has to be where all nodes see it. Each task has a node for itself and measures
    one block, so that a task that is killed costs its block and no other.

    [bold]tare slurm --gather FOLDER[/bold] joins what is complete into one result, draws its
    report, and prints the [bold]sbatch --array[/bold] that measures what is missing. Do it as often
    as you like: no block counts twice. Exit code 5 says that blocks are still to be measured.
    """
    if [file, gather, run].count(None) != 2:
        raise UsageError("give one of: an experiment file, --gather FOLDER, --run FOLDER")
    if (run is None) != (block is None):
        raise UsageError("--run FOLDER and --block NUMBER go together")
    if file is None:
        options = (out, ntasks, time, partition, sbatch_option, seed, dry_run or None)
        if any(one is not None for one in (*options, submit or None)) or at_once != 1:
            raise UsageError("--gather and --run go by what the folder says, and take no more")
    if run is not None and block is not None:
        _measure(run, block)
    if gather is not None:
        _gather(gather, as_json=json_)
    assert file is not None
    plan, text = _planned(file, seed)
    if dry_run:
        if json_:
            printing.show_json(plan_json(plan))
        else:
            print_plan(plan)
        return
    from tare import machine, preflight  # noqa: PLC0415 - so that --help is fast
    from tare.slurm import Asked, Job, ranges  # noqa: PLC0415
    from tare.slurm import submit as hand_over  # noqa: PLC0415

    asked = Asked(
        tasks=ntasks or max(cell.levels.read(cell.levels.rows["ranks"]) for cell in plan.cells),
        seconds=Asked.limit(plan.block_seconds()) if time is None else units.seconds(time),
        partition=partition,
        at_once=at_once,
        options=tuple(sbatch_option or ()),
    )
    folder = out or paths.result(Path(file).stem)
    preflight.refuse_without_room(plan, folder)
    found = machine.fingerprint(paths.programs())
    job = Job.create(folder, text, plan, asked, found, numbered=out is None)
    number = hand_over(job.script) if submit else None
    if json_:
        blocks = list(range(plan.min_blocks))
        said = {
            "result": str(job.folder),
            "script": str(job.script),
            "blocks": blocks,
            "job": number,
        }
        printing.show_json(said)
        return
    tasks = f"blocks {ranges(range(plan.min_blocks))}"
    printing.show(f"script  {job.script}" + (f"\njob     {number}" if number else ""))
    then = "" if number else f"{shell_line('sbatch', job.script)}; "
    gather_it = shell_line("tare", "slurm", "--gather", job.folder)
    printing.say("", f"{tasks}, a task each: {then}when it has ended: {gather_it}")


def _planned(file: Path, seed: int | None) -> tuple[Plan, str]:
    """The plan of a file, and its text; what is wrong with it, or lacks here, is said."""
    file = paths.experiment(file)
    from tare import experiment, suite  # noqa: PLC0415 - so that --help is fast
    from tare.slurm import apart  # noqa: PLC0415

    if suite.load(file) is not None:
        raise UsageError(f"{file} is a suite of experiments", "name one of its parts")
    plan = apart(lay_out(experiment.load(file), seed, must_run=True))
    for cut in plan.cuts:
        printing.say("[yellow]cut:[/]", cut)
    return plan, file.read_text(encoding="utf-8")


def _measure(folder: Path, block: int) -> NoReturn:
    """Measure one block, on the node that this is."""
    rootless.enter()
    from tare import machine, preflight, runner  # noqa: PLC0415 - so that --help is fast
    from tare.slurm import Job  # noqa: PLC0415

    job = Job(folder)
    job.part(block)  # there is such a block
    programs = ready()
    fingerprint = machine.fingerprint(programs)
    found = machine.Fingerprint.model_validate(fingerprint)
    for one in job.attempts().get(block, []):
        if job.holds(one, block) and not job.unlike(one, found):
            printing.say("", f"block {block} is complete already, in {one.folder}")
            raise typer.Exit
    if absent := preflight.absent(job.plan, programs):
        raise UnavailableError(
            f"block {block} cannot be measured on this node: "
            + "; ".join(f"{one.what}: {one.why}" for one in absent),
            "all blocks have the same cells: have the node provide it, or name other nodes",
        )
    record = job.begin(block, fingerprint)
    printing.say("", f"block {block}: {len(job.trials(block))} trials, into {record.folder}")
    try:
        ended = runner.run(record, programs, paths.cache(), blocks=block + 1)
    except KeyboardInterrupt:
        printing.say(
            "",
            f"block {block} was interrupted, and is lost alone; all was cleaned up; measure it"
            f" again: {job.again([block])}",
        )
        raise
    printing.say("", f"block {block} is complete; {ended.failed} of {ended.trials} trials failed")
    raise typer.Exit(Exit.TRIALS_FAILED if ended.failed or ended.lost else Exit.OK)


def _gather(folder: Path, *, as_json: bool) -> NoReturn:
    """Join what is there, draw it, and say what is missing."""
    from tare.slurm import Job, waiting  # noqa: PLC0415 - so that --help is fast
    from tare.slurm import gather as join  # noqa: PLC0415

    job = Job(folder)
    found = join(job)
    for note in found.notes:
        printing.say("[yellow]blocks:[/]", note)
    in_queue = waiting(job.folder) or frozenset()
    if as_json:
        said = {"blocks": found.blocks, "missing": found.missing, "more": found.more}
        coming = sorted(in_queue & set(found.wanted))
        report = found.record and drawn_for_machines(found.record)
        printing.show_json({**said, "waiting": coming, "notes": found.notes, "report": report})
    elif found.record is not None:
        draw(found.record, None, as_json=False)
    _say_wanted(job, found, in_queue)
    if found.wanted:
        raise typer.Exit(Exit.INCONCLUSIVE)
    assert found.record is not None
    failed = any(trial.status == "failed" for trial in found.record.trials())
    lost = bool(found.record.losses())
    raise typer.Exit(Exit.TRIALS_FAILED if failed or lost else Exit.OK)


def _say_wanted(job: Job, found: Gathered, in_queue: frozenset[int]) -> None:
    from tare.slurm import ranges  # noqa: PLC0415 - so that --help is fast

    printing.say("", f"{len(found.blocks)} blocks on record: {ranges(found.blocks) or 'none'}")
    if coming := in_queue & set(found.wanted):
        printing.say("", f"waiting or running: {ranges(coming)}; gather again when they have ended")
    if left := set(found.wanted) - in_queue:
        why = "missing" if found.missing else "intervals are still wide, more are needed"
        printing.say("[yellow]blocks:[/]", f"{why}: {ranges(left)}")
        printing.say("  [dim]→[/]", job.again(left))
