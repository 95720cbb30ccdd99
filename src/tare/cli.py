"""The command line: parse, call, print. Nothing is computed here."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tare import __version__
from tare.errors import Exit, TareError, UnavailableError, UsageError

if TYPE_CHECKING:
    from tare.experiment import Experiment
    from tare.plan import Plan
    from tare.record import Record
    from tare.runner import Progress as Standing
    from tare.workloads import Workload

_EPILOG = (
    "Exit codes: 0 done. 1 it ran, and what was asked does not hold (a claim, --fail-on). 2 the"
    " command line or an input file is wrong; nothing was started. 3 this machine lacks something;"
    " the message says what. 4 the run ended, but some trials failed. 130 interrupted; everything"
    " was cleaned up, and the run can be resumed."
)

app = typer.Typer(
    name="tare",
    help="What does this layer cost me, and can I pay less?\n\nMeasures what virtualisation and"
    " middleware add to a workload, with intervals that hold. Start with"
    " [bold]tare run experiments/quickstart.yaml[/bold].",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
)
claim_app = typer.Typer(help="Check what CLAIMS.md promises.", no_args_is_help=True)
app.add_typer(claim_app, name="claim")

_out = Console()
_err = Console(stderr=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
ResultArgument = Annotated[Path, typer.Argument(help="A result folder, as `tare run` printed it.")]


def main() -> None:
    """Run the command line; the only place that turns an error into an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app(standalone_mode=True)
    except TareError as error:
        _err.print(f"[bold red]tare:[/] {_escape(error.what)}", highlight=False)
        if error.remedy:
            _err.print(f"  [dim]→[/] {_escape(error.remedy)}", highlight=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _err.print("interrupted; everything was cleaned up")
        sys.exit(Exit.INTERRUPTED)


@app.callback(invoke_without_command=True)
def _global(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        _out.print(f"tare {__version__}", highlight=False)
        raise typer.Exit


@app.command(epilog=_EPILOG)
def run(
    file: Annotated[Path | None, typer.Argument(help="An experiment file.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with a result folder whose run was stopped.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The result folder; by default a new one in results/.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and how long it takes; run nothing.")
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="Fit the plan into a time such as 5m; says what was cut.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the order of the trials.")] = None,
    json_: Json = False,
) -> None:
    """Run an experiment and draw its report."""
    from tare.record import Record  # noqa: PLC0415 - so that --help is fast

    if (file is None) == (resume is None):
        raise UsageError("give either an experiment file or --resume FOLDER")
    if resume is not None:
        record = Record(resume)
        experiment, workload = _load(record.experiment_path)
        plan = record.plan
    else:
        assert file is not None
        experiment, workload = _load(file)
        plan = _plan(experiment, workload, seed, budget)
        if dry_run:
            _print_plan(plan, workload, as_json=json_)
            return
    from tare import leftovers, machine, runner  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    programs = _programs()
    for what in leftovers.clean():
        _err.print(f"[dim]cleaned up after a dead run: {_escape(what)}[/]", highlight=False)
    if resume is None:
        assert file is not None
        plan = _without_absent(plan)
        folder = out or Path("results") / f"{file.stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        record = Record.create(
            folder, file.read_text(encoding="utf-8"), plan, machine.fingerprint(programs)
        )
    for cut in plan.cuts:
        _err.print(f"[yellow]cut:[/] {_escape(cut)}", highlight=False)
    try:
        with _progress(quiet=json_) as on_progress:
            outcome = runner.run(record, experiment, workload, programs, _cache(), on_progress)
    except KeyboardInterrupt:
        _err.print(f"interrupted; go on with: tare run --resume {record.folder}", highlight=False)
        raise
    _draw(record, as_json=json_)
    if outcome.failed:
        _err.print(
            f"[yellow]{outcome.failed} of {outcome.trials} trials failed; the report lists them[/]"
        )
        raise typer.Exit(Exit.TRIALS_FAILED)


@app.command(epilog=_EPILOG)
def report(result: ResultArgument, json_: Json = False) -> None:
    """Draw the report of a result again."""
    from tare.record import Record  # noqa: PLC0415

    _draw(Record(result), as_json=json_)


@app.command(epilog=_EPILOG)
def compare(
    a: ResultArgument,
    b: ResultArgument,
    fail_on: Annotated[
        str | None, typer.Option(help="Exit with 1 on a verdict: slower, faster or different.")
    ] = None,
    across_machines: Annotated[
        bool,
        typer.Option(
            "--across-machines", help="Compare results that come from different machines."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Compare two results, cell by cell: what does B take over A?"""
    from tare import compare as comparing  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    if fail_on not in (None, "slower", "faster", "different"):
        raise UsageError(f"--fail-on takes slower, faster or different, not {fail_on!r}")
    found = comparing.compare(Record(a), Record(b), across_machines=across_machines)
    if json_:
        _print_json(comparing.as_json(found))
    else:
        _out.print(comparing.table(found))
    if fail_on is not None and comparing.fails(found, fail_on):
        raise typer.Exit(Exit.FAILED)


@app.command(epilog=_EPILOG)
def doctor(json_: Json = False) -> None:
    """Tell what this machine can do, and for each "no" the reason and the remedy."""
    from tare import doctor as examining  # noqa: PLC0415

    findings = examining.examine(_programs())
    if json_:
        _print_json([f.as_json() for f in findings])
        return
    table = Table(box=None, pad_edge=False, title="What this machine can do", title_justify="left")
    for heading in ("", "part", "finding", "can", "remedy"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        mark = "[green]yes[/]" if finding.available else "[red]no[/]"
        table.add_row(
            mark,
            _escape(finding.name),
            _escape(finding.detail),
            ", ".join(sorted(finding.can)),
            _escape(finding.remedy or ""),
        )
    _out.print(table)


@app.command("list", epilog=_EPILOG)
def list_(
    results: Annotated[Path, typer.Option(help="Where results lie.")] = Path("results"),
    json_: Json = False,
) -> None:
    """List the experiments that ship, and the results so far."""
    from tare import catalogue  # noqa: PLC0415

    rows = [*catalogue.experiments(_home() / "experiments"), *catalogue.results(results)]
    if json_:
        _print_json([row.as_json() for row in rows])
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("kind", "path", "title", "state"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row.kind, str(row.path), _escape(row.title), _escape(row.state))
    _out.print(table)


@app.command(epilog=_EPILOG)
def export(
    result: ResultArgument,
    format_: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="Where to write; standard output if absent.")
    ] = None,
) -> None:
    """Write every session of a result with its statistics as one table."""
    from tare import export as exporting  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    exporting.export(Record(result), format_, out)


@app.command(epilog=_EPILOG)
def clean(json_: Json = False) -> None:
    """Remove what dead runs left behind (namespaces, mounts, processes), and only that."""
    from tare import leftovers  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    undone = leftovers.clean()
    if json_:
        _print_json(undone)
        return
    for what in undone:
        _out.print(what, highlight=False, markup=False)
    _out.print(f"{len(undone)} things removed" if undone else "nothing was left behind")


@app.command(epilog=_EPILOG)
def schema() -> None:
    """Print the JSON Schema of an experiment file, for editors."""
    from tare import experiment  # noqa: PLC0415

    _print_json(experiment.json_schema())


@claim_app.command("list", epilog=_EPILOG)
def claim_list(json_: Json = False) -> None:
    """List the claims that can be checked, and what would satisfy each."""
    from tare import claims  # noqa: PLC0415

    found = claims.every()
    if json_:
        _print_json([{"id": c.id, "sentence": c.sentence, "wanted": c.wanted} for c in found])
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "claim", "wanted"):
        table.add_column(heading, overflow="fold")
    for claim in found:
        table.add_row(claim.id, _escape(claim.sentence), _escape(claim.wanted))
    _out.print(table)


@claim_app.command("table", epilog=_EPILOG)
def claim_table(
    write: Annotated[bool, typer.Option("--write", help="Draw it into CLAIMS.md.")] = False,
) -> None:
    """Print the claims with their last results, as CLAIMS.md shows them."""
    from tare import claims  # noqa: PLC0415
    from tare.claims import ledger  # noqa: PLC0415

    if write:
        ledger.write(_home(), claims.every())
    sys.stdout.write(ledger.table(_home(), claims.every()) + "\n")


@claim_app.command("check", epilog=_EPILOG)
def claim_check(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="Such as A1.")],
    record: Annotated[
        bool, typer.Option("--record", help="Keep the result in claims/ID.json and CLAIMS.md.")
    ] = False,
    json_: Json = False,
) -> None:
    """Run the experiment behind a claim; exits with 0 only if the claim holds."""
    from tare import claims, leftovers, machine  # noqa: PLC0415
    from tare.claims import ledger  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    claim = claims.by_id(claim_id)
    require_root()
    leftovers.clean()
    with _err.status(f"{claim.id}: {_escape(claim.sentence)}") as status:
        workshop = claims.Workshop(_home(), _programs(), _cache(), status.update)
        result = claim.check(workshop)
    if record:
        ledger.keep(_home(), claim, result, machine.commit())
        ledger.write(_home(), claims.every())
    if json_:
        _print_json({"id": claim.id, **result.as_json()})
    else:
        mark = "[green]holds[/]" if result.holds else "[red]does not hold[/]"
        _out.print(f"{claim.id} {mark}: {_escape(result.figure)}", highlight=False, soft_wrap=True)
    if not result.holds:
        raise typer.Exit(Exit.FAILED)


def _load(path: Path) -> tuple[Experiment, Workload]:
    from tare import experiment  # noqa: PLC0415
    from tare.workloads import registry  # noqa: PLC0415

    found = experiment.load(path)
    return found, registry.by_name()[found.workload]


def _plan(experiment: Experiment, workload: Workload, seed: int | None, budget: str | None) -> Plan:
    from tare import plan, units  # noqa: PLC0415

    made = plan.make(experiment, workload, seed)
    return made if budget is None else plan.fit(made, workload, units.duration(budget) / 1e9)


def _without_absent(plan: Plan) -> Plan:
    from tare import plan as planning  # noqa: PLC0415
    from tare import runner  # noqa: PLC0415

    absent = dict(runner.preflight(plan))
    return planning.leave_out(plan, absent) if absent else plan


def _print_plan(plan: Plan, workload: Workload, *, as_json: bool) -> None:
    seconds = plan.seconds(workload), plan.seconds(workload, len(plan.blocks))
    if as_json:
        found = plan.model_dump(mode="json")
        _print_json({**found, "seconds": {"least": seconds[0], "most": seconds[1]}})
        return
    first, *others = (set(cell.levels.items()) for cell in plan.cells)
    common = first.intersection(*others)
    table = Table(box=None, pad_edge=False)
    for heading in ("cell", "compared with", "judged"):
        table.add_column(heading, overflow="fold")
    against = {c.cell: c for c in plan.comparisons}
    for cell in plan.cells:
        comparison = against.get(cell.id)
        table.add_row(
            cell.id,
            comparison.against if comparison else "",
            ("in the family" if comparison.family else comparison.kind) if comparison else "",
        )
    _out.print(table)
    shared = ", ".join(
        f"{name} {level}" for name, level in plan.cells[0].levels.items() if (name, level) in common
    )
    _out.print(f"every cell: {shared}", highlight=False, markup=False)
    _out.print(
        f"{len(plan.cells)} cells, {plan.min_blocks} to {len(plan.blocks)} blocks,"
        f" seed {plan.seed}: about {_minutes(seconds[0])} to {_minutes(seconds[1])}",
        highlight=False,
    )
    for cut in plan.cuts:
        _out.print(f"cut: {cut}", highlight=False, markup=False)


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Any]:
    """A bar with the time left, or nothing where a machine reads."""
    if quiet:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    block = TextColumn("block {task.fields[block]}")
    columns = (block, BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=_err) as bar:
        task = bar.add_task("starting", block="1", total=None)

        def show(progress: Standing) -> None:
            bar.update(
                task,
                description=f"{_minutes(progress.seconds_left)} left · {progress.doing}",
                block=f"{min(progress.block + 1, progress.blocks)}/{progress.blocks}",
                completed=progress.trials_done,
                total=progress.trials,
            )

        yield show


def _draw(record: Record, *, as_json: bool) -> None:
    from tare import analysis  # noqa: PLC0415
    from tare import report as reporting  # noqa: PLC0415

    found = analysis.analyse(record)
    page = record.folder / "report.html"
    reporting.write(found, page)
    if as_json:
        _print_json({"result": str(record.folder), "report": str(page), **reporting.as_json(found)})
        return
    _out.print(reporting.summary(found))
    _out.print(f"result  {record.folder}\nreport  {page}", highlight=False)


def _programs() -> Path:
    """Where the native programs were built."""
    path = _home() / "build"
    if not (path / "echo").is_dir():
        raise UnavailableError(f"there are no native programs below {path}", "run `make build`")
    return path


def _home() -> Path:
    """The checkout: where the experiments and the build are."""
    return Path(__file__).resolve().parents[2]


def _cache() -> Path:
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path("tare", ensure_exists=True)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, default=str) + "\n")


def _escape(text: str) -> str:
    from rich.markup import escape  # noqa: PLC0415

    return escape(text)


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
