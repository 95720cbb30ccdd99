"""A plan on the command line: laid out, shown, carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import units
from tare.cli import paths, polite, printing
from tare.command import shell_line
from tare.errors import TareError, UsageError

if TYPE_CHECKING:
    from tare.experiment import Experiment
    from tare.plan import Plan
    from tare.record import Record
    from tare.runner import Outcome
    from tare.runner import Progress as Standing
    from tare.stopwatch import Stopwatch


def measure(
    record: Record,
    programs: Path,
    *,
    whole: Path | None = None,
    quiet: bool = False,
    stopwatch: Stopwatch | None = None,
) -> Outcome:
    """Run a plan to its end, from wherever it stands.

    Args:
        record: the result.
        programs: the build directory.
        whole: the folder to name for going on; the record's own where None.
        quiet: show no progress.
        stopwatch: told where the time goes.
    """
    from tare import runner  # noqa: PLC0415 - so that --help is fast
    from tare.report import gate  # noqa: PLC0415

    for cut in record.plan.cuts:
        printing.say("[yellow]cut:[/]", cut)
    for line in () if quiet else gate.before(record.plan):
        printing.say("", line)
    try:
        with _progress(quiet=quiet) as on_progress:
            cache = paths.cache()
            return runner.run(record, programs, cache, on_progress, stopwatch=stopwatch)
    except KeyboardInterrupt:
        resume = shell_line("tare", "run", "--resume", whole or record.folder)
        printing.say("", f"interrupted; all was cleaned up; go on with: {resume}")
        raise


def refuse_if_changed(record: Record, fingerprint: Mapping[str, Any]) -> None:
    """Refuse to go on where machine or programs are not those of the beginning.

    Raises:
        UsageError: they changed, or the record does not tell what they were.
    """
    from tare import machine  # noqa: PLC0415

    began = record.fingerprint.whole
    differing = machine.unlike(began, fingerprint)
    changed = machine.changed(began, fingerprint, record.plan.workload.programs)
    # Not installed or built then, or begun by a Tare that did not look: it cannot be shown alike.
    untold = [key for key in changed if differing[key][0] is None]
    told = [key for key in changed if key not in untold]
    said = [f"since it began, {', '.join(told)} changed"] if told else []
    said += [f"its record does not tell {', '.join(untold)}"] if untold else []
    if said:
        raise UsageError(
            f"{record.folder} cannot be resumed: {'; '.join(said)}; results from unlike machines or"
            " programs are not merged",
            "start a new run; `tare report` and `tare export` still read this one",
        )


def refuse_other_variables(record: Record) -> None:
    """Refuse to go on where a variable that is passed on by its name is not what it was.

    Raises:
        UsageError: it is not set, or has another value.
    """
    found = record.plan.workload.secrets(record.plan.session)
    values = {name: value for name, value in found.items() if value is not None}
    said = [f"{name}, which is to be passed on, is not set" for name in found if name not in values]
    if record.digests is not None:
        said += [f"{name} is not what it was" for name in record.digests.changed(values)]
    if said:
        raise UsageError(
            f"{record.folder} cannot be resumed: the variable {'; the variable '.join(said)}",
            "export what it was when the run began, or start a new run",
        )


def ready() -> Path:
    """Make sure that measuring can begin; return the build directory."""
    from tare import leftovers  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    programs = paths.programs()
    paths.cache()
    try:
        for what in leftovers.clean():
            printing.say("[dim]cleaned up after a dead run:[/]", what)
    except TareError as error:  # perhaps another user's, with more rights: no reason not to measure
        printing.say("[yellow]still there:[/]", error.what)
    return programs


def lay_out(asked: Experiment, seed: int | None, *, must_run: bool) -> Plan:
    """Lay the plan out, and leave out what cannot run here.

    Raises:
        TareError: nothing of it can run here, where it must.
    """
    from tare import plan as planning  # noqa: PLC0415
    from tare import preflight, repetition  # noqa: PLC0415

    plan = repetition.planned(planning.make(polite.without_priority(asked), seed))
    try:
        preflight.refuse_disturbing(plan)
        plan = preflight.possible(plan, paths.build(), connect=must_run)
    except TareError as error:
        if must_run:
            raise
        printing.say("[yellow]not here:[/]", error.what)
    return plan


def plan_json(plan: Plan) -> dict[str, Any]:
    """What would be done, and how long it takes, for machines."""
    from tare.report import gate  # noqa: PLC0415 - so that --help is fast

    seconds = {
        "least": plan.seconds(),
        "most": plan.seconds(len(plan.blocks)),
    }
    told = gate.before(plan)
    return {**plan.model_dump(mode="json"), "seconds": seconds, **({"told": told} if told else {})}


def print_plan(plan: Plan) -> None:
    """Print what would be done, and how long it takes."""
    from tare.report import gate  # noqa: PLC0415 - so that --help is fast
    from tare.stats.repetition import PILOT_BLOCKS  # noqa: PLC0415

    seconds = plan.seconds(), plan.seconds(len(plan.blocks))
    judged = {
        c.cell: (c.against, "in the family" if c.family else c.kind) for c in plan.comparisons
    }
    rows = [(cell.id, *judged.get(cell.id, ("", ""))) for cell in plan.cells]
    printing.out.print(printing.table("cell", "compared with", "judged", rows=rows))
    first, *others = (set(cell.levels.items()) for cell in plan.cells)
    common = first.intersection(*others)
    shared = (f"{n} {level}" for n, level in plan.cells[0].levels.items() if (n, level) in common)
    if said := ", ".join(shared):
        printing.show(f"every cell: {said}")
    printing.show(
        f"{len(plan.cells)} cells, {span(plan.min_blocks, len(plan.blocks), str)} blocks, seed"
        f" {plan.seed}: about {span(*seconds, units.minutes)}"
    )
    if plan.sessions:
        many = sorted(set(plan.sessions.values()))
        told = plan.experiment.blocks.sessions == "auto"
        printing.show(
            f"of {len(plan.sessions)} cells {span(many[0], many[-1], str)} sessions in a block"
            + (f" until the first {PILOT_BLOCKS} blocks have told how many pay" if told else "")
        )
    if plan.causes:
        few = "; the budget by operation takes two" if plan.causes == 1 else ""
        printing.show(f"of it, sessions that count operations: {plan.causes} of each cell{few}")
    if plan.experiment.polite is not None:
        share = plan.experiment.polite
        printing.show(f"at most {share.processors} of the processors, {share.memory} of the memory")
    if plan.experiment.at_once:
        hosts = {plan.workload.machine(cell.levels) for cell in plan.cells} - {None}
        printing.show(f"up to {len(hosts)} hosts at once: it takes less than that")
    for line in gate.before(plan):
        printing.show(line)
    for cut in plan.cuts:
        printing.show(f"cut: {cut}")


def span(least: float, most: float, show: Callable[[float], str]) -> str:
    """A range in words, or the one value that it is."""
    return show(least) if show(least) == show(most) else f"{show(least)} to {show(most)}"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Standing], None]]:
    """A bar with the time left; a line a block where no terminal shows it; else nothing."""
    if quiet:
        yield lambda _: None
    elif not printing.err.is_terminal:
        yield _LinePerBlock()
    else:
        with _bar() as show:
            yield show


class _LinePerBlock:
    """One line a block, for a log."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, standing: Standing) -> None:
        if (block := _block(standing)) != self._last:
            self._last = block
            printing.say("", f"block {block}: {units.minutes(standing.seconds_left)} left")


@contextmanager
def _bar() -> Iterator[Callable[[Standing], None]]:
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    block = TextColumn("block {task.fields[block]}")
    columns = (block, BarColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=printing.err) as bar:
        task = bar.add_task("starting", block="1", total=None)

        def show(standing: Standing) -> None:
            bar.update(
                task,
                description=f"{units.minutes(standing.seconds_left)} left · {standing.doing}",
                block=_block(standing),
                completed=standing.trials_done,
                total=standing.trials,
            )

        yield show


def _block(standing: Standing) -> str:
    return f"{min(standing.block + 1, standing.blocks)}/{standing.blocks}"
