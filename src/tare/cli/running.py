"""`tare run`: from an experiment file to a plan, a result and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli import places, printing
from tare.cli.arguments import FLAG, Json
from tare.cli.results import draw
from tare.errors import Exit, TareError, UsageError

if TYPE_CHECKING:
    from tare.experiment import Experiment
    from tare.plan import Plan
    from tare.record import Record
    from tare.runner import Progress as Standing
    from tare.workloads import Workload


def run(
    file: Annotated[Path | None, typer.Argument(help="An experiment file.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a result folder whose run was stopped.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The result folder; by default a new one in results/.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar=FLAG, help="Print the plan and how long it takes; run nothing."
        ),
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="Fit the plan into a time such as 5m; says what was cut.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the order of the trials.")] = None,
    json_: Json = False,
) -> None:
    """Run an experiment and draw its report."""
    if resume is not None:
        if file is not None or out is not None or dry_run or budget is not None or seed is not None:
            raise UsageError("--resume goes on with the plan on record, and takes no more than it")
        _go_on(resume, as_json=json_)
        return
    if file is None:
        raise UsageError("give either an experiment file or --resume FOLDER")
    _refuse_result(file)
    experiment, workload = _load(file)
    if dry_run:
        plan = _plan(experiment, workload, seed, budget, must_run=False)
        _print_plan(plan, workload, as_json=json_)
        return
    from tare import machine  # noqa: PLC0415 - so that --help is fast
    from tare.record import Record  # noqa: PLC0415

    programs = _ready()
    plan = _plan(experiment, workload, seed, budget, must_run=True)
    folder = out or Path("results") / f"{file.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    record = Record.create(
        folder, file.read_text(encoding="utf-8"), plan, machine.fingerprint(programs)
    )
    _measure(record, experiment, workload, programs, as_json=json_)


def _go_on(folder: Path, *, as_json: bool) -> None:
    """Resume a run, on the machine and with the programs with which it began."""
    from tare import machine  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    record = Record(folder)
    experiment, workload = _load(record.experiment_path)
    programs = _ready()
    changed = machine.changed(record.fingerprint, machine.fingerprint(programs))
    if changed:
        raise UsageError(
            f"{folder} cannot be resumed: since it began, {', '.join(changed)} changed, and results"
            " from unlike machines or programs are not merged",
            "start a new run; `tare report` and `tare export` still read this one",
        )
    _measure(record, experiment, workload, programs, as_json=as_json)


def _measure(
    record: Record, experiment: Experiment, workload: Workload, programs: Path, *, as_json: bool
) -> None:
    from tare import runner  # noqa: PLC0415

    for cut in record.plan.cuts:
        printing.say("[yellow]cut:[/]", cut)
    try:
        with _progress(quiet=as_json) as on_progress:
            outcome = runner.run(
                record, experiment, workload, programs, places.cache(), on_progress
            )
    except KeyboardInterrupt:
        printing.say(
            "", f"interrupted; all was cleaned up; go on with: tare run --resume {record.folder}"
        )
        raise
    draw(record, None, as_json=as_json)
    if outcome.failed:
        printing.say(
            "[yellow]failed:[/]",
            f"{outcome.failed} of {outcome.trials} trials; the report lists them",
        )
        raise typer.Exit(Exit.TRIALS_FAILED)


def _ready() -> Path:
    """Make sure that measuring can begin; return the build directory."""
    from tare import leftovers  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    programs = places.programs()
    for what in leftovers.clean():
        printing.say("[dim]cleaned up after a dead run:[/]", what)
    return programs


def _refuse_result(path: Path) -> None:
    if (path / "plan.json").is_file():
        raise UsageError(
            f"{path} is a result, not an experiment file",
            f"go on with it: tare run --resume {path}; do it again: tare run"
            f" {path / 'experiment.yaml'}",
        )


def _load(path: Path) -> tuple[Experiment, Workload]:
    from tare import experiment  # noqa: PLC0415
    from tare.workloads import registry  # noqa: PLC0415

    found = experiment.load(path)
    return found, registry.by_name()[found.workload]


def _plan(
    experiment: Experiment,
    workload: Workload,
    seed: int | None,
    budget: str | None,
    *,
    must_run: bool,
) -> Plan:
    """Lay the plan out, leave out what cannot run here, then fit the rest into the budget."""
    from tare import plan as planning  # noqa: PLC0415
    from tare import runner, units  # noqa: PLC0415
    from tare.doctor import missing_transports  # noqa: PLC0415

    budget_ns = None if budget is None else units.duration(budget, "a time such as '5m' or '90 s'")
    plan = planning.make(experiment, workload, seed)
    try:
        plan = planning.leave_out(plan, "environment", dict(runner.preflight(plan)))
        transports = {c.levels["transport"] for c in plan.cells if "transport" in c.levels}
        plan = planning.leave_out(plan, "transport", missing_transports(places.build(), transports))
    except TareError as error:
        if must_run:
            raise
        printing.say("[yellow]not here:[/]", error.what)
    return plan if budget_ns is None else planning.fit(plan, workload, budget_ns / 1e9)


def _print_plan(plan: Plan, workload: Workload, *, as_json: bool) -> None:
    seconds = plan.seconds(workload), plan.seconds(workload, len(plan.blocks))
    if as_json:
        found = plan.model_dump(mode="json")
        printing.show_json({**found, "seconds": {"least": seconds[0], "most": seconds[1]}})
        return
    table = printing.table("cell", "compared with", "judged")
    against = {c.cell: c for c in plan.comparisons}
    for cell in plan.cells:
        comparison = against.get(cell.id)
        judged = ("in the family" if comparison.family else comparison.kind) if comparison else ""
        printing.add_row(table, (cell.id, comparison.against if comparison else "", judged))
    printing.out.print(table)
    first, *others = (set(cell.levels.items()) for cell in plan.cells)
    common = first.intersection(*others)
    shared = (f"{n} {level}" for n, level in plan.cells[0].levels.items() if (n, level) in common)
    printing.show(f"every cell: {', '.join(shared)}")
    printing.show(
        f"{len(plan.cells)} cells, {_range(plan.min_blocks, len(plan.blocks), str)} blocks, seed"
        f" {plan.seed}: about {_range(*seconds, printing.minutes)}"
    )
    if plan.causes:
        printing.show(f"of it, sessions that count operations: {plan.causes} of each cell")
    for cut in plan.cuts:
        printing.show(f"cut: {cut}")


def _range(least: float, most: float, show: Callable[[float], str]) -> str:
    return show(least) if show(least) == show(most) else f"{show(least)} to {show(most)}"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[Standing], None]]:
    """A bar with the time left; a line a block where no terminal shows it; else nothing."""
    if quiet:
        yield lambda _: None
    elif not printing.err.is_terminal:
        yield _Lines()
    else:
        with _bar() as show:
            yield show


class _Lines:
    """One line a block, for a log."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, standing: Standing) -> None:
        if (block := _block(standing)) != self._last:
            self._last = block
            printing.say("", f"block {block}: {printing.minutes(standing.seconds_left)} left")


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
                description=f"{printing.minutes(standing.seconds_left)} left · {standing.doing}",
                block=_block(standing),
                completed=standing.trials_done,
                total=standing.trials,
            )

        yield show


def _block(standing: Standing) -> str:
    return f"{min(standing.block + 1, standing.blocks)}/{standing.blocks}"
