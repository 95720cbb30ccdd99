"""`tare run`: from an experiment file to a plan, a result and its report."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare import rootless, units
from tare.cli import completing, gate, paths, printing
from tare.cli import polite as bounded
from tare.cli.arguments import FLAG, Json, Out
from tare.cli.plan import (
    lay_out,
    measure,
    plan_json,
    print_plan,
    ready,
    refuse_if_changed,
    refuse_other_variables,
    span,
)
from tare.cli.profile import show as show_profile
from tare.cli.results import draw, draw_suite
from tare.command import shell_line
from tare.errors import Exit, UnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tare.experiment import Experiment
    from tare.plan import Plan
    from tare.record import Record
    from tare.suite import Suite


def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="An experiment file, or a suite of them; or the name of one that ships.",
            autocompletion=completing.experiments,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Resume the run of this result folder.",
            autocompletion=completing.results,
        ),
    ] = None,
    out: Out = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar=FLAG, help="Print the plan and how long it takes; run nothing."
        ),
    ] = False,
    budget: Annotated[
        str | None, typer.Option(help="Fit the plan into this time, such as 5m; says what was cut.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the trials' random order.")
    ] = None,
    fail_on: gate.FailOn = None,
    margin: gate.Margin = None,
    significance: gate.Significance = None,
    markdown: gate.Markdown = None,
    polite: bounded.Polite = False,
    share: bounded.Share = None,
    profile: Annotated[
        bool, typer.Option("--profile", metavar=FLAG, help="Say where the time of the run went.")
    ] = False,
    json_: Json = False,
) -> None:
    """Run an experiment, or a suite of them, and draw its report."""
    rootless.enter()
    rule = (fail_on, margin, significance)
    if resume is not None:
        _refuse_more(file, out, budget, seed, share, *rule, dry_run or None, polite or None)
        _go_on(resume, as_json=json_, profile=profile, markdown=markdown)
        return
    if file is None:
        raise UsageError("give either an experiment file or --resume FOLDER")
    _refuse_result(file)
    file = paths.experiment(file)
    from tare import suite as suites  # noqa: PLC0415 - so that --help is fast

    budget_s = None if budget is None else units.seconds(budget)
    suite = suites.load(file)
    parts = {"": file} if suite is None else suite.files(file)

    def put_on(asked: Experiment) -> Experiment:
        return bounded.put_on(gate.put_on(asked, *rule), share, polite=polite)

    laid_out = partial(lay_out_parts, seed=seed, must_run=not dry_run, put_on=put_on)
    try:
        plans, absent = laid_out(parts)
    except UnavailableError as error:
        file = instead(file, error)
        plans, absent = laid_out({"": file})
    if budget_s is None:
        _refuse_without_end(plans)
    else:
        plans = fitted(plans, budget_s)
    if suite is not None and any(part.plan.gate is not None for part in plans.values()):
        raise UsageError("a gate is one experiment's, and this is a suite", "name one of its parts")
    if markdown is not None:
        _refuse_summary({name: part.plan for name, part in plans.items()})
    if dry_run:
        show_plans(plans, as_json=json_)
        return

    def note(text: str) -> str:
        return bounded.noted(gate.noted(text, *rule), share, polite=polite)

    folder, programs = begin(out, file.stem, plans, suite, absent, note)
    carry_out(folder, programs, as_json=json_, profile=profile, markdown=markdown)


def _refuse_summary(plans: Mapping[str, Plan]) -> None:
    if "" not in plans or plans[""].gate is None:
        raise UsageError(
            "--markdown is a gate's summary, and this is none",
            "a gate is one experiment that is run with --fail-on slower",
        )


def _refuse_more(*given: object) -> None:
    if any(one is not None for one in given):
        raise UsageError("--resume goes on with the plan on record, and takes no more than it")


def instead(file: Path, error: UnavailableError) -> Path:
    """What to run where nothing of an experiment can be compared here: `NAME-native` beside it.

    Raises:
        UnavailableError: `error`, where there is no such file.
    """
    native = file.with_name(f"{file.stem}-native{file.suffix}")
    if not native.is_file():
        raise error
    printing.say("[yellow]not here:[/]", f"{error.what}; {native.stem} instead")
    return native


def begin(
    out: Path | None,
    stem: str,
    plans: Mapping[str, Planned],
    suite: Suite | None,
    absent: Mapping[str, str],
    note: Callable[[str], str] = str,
) -> tuple[Path, Path]:
    """Make a result folder of what is planned; return it, and the build directory.

    Args:
        out: new.
        stem: of its name, where that is not given.
        plans: name of each part -> it; one, named "", where there is no suite.
        suite: of which they are.
        absent: part of it that is not run -> why.
        note: puts into an experiment's text what the command line added.
    """
    from tare import machine, preflight  # noqa: PLC0415 - so that --help is fast
    from tare import suite as suites  # noqa: PLC0415
    from tare.record import Record, made  # noqa: PLC0415

    programs, folder = ready(), out or paths.result(stem)
    for part in plans.values():
        preflight.refuse_without_room(part.plan, folder)
    fingerprint = machine.fingerprint(programs)

    def fill(folder: Path, _: Path) -> None:
        for name, part in plans.items():
            text = note(part.file.read_text(encoding="utf-8"))
            found = machine.with_programs(fingerprint, part.plan.called)
            Record.write(folder / name, text, part.plan, found)
        if suite is not None:
            suites.SuiteResult.create(folder, suite, plans, absent)

    return made(folder, fill, numbered=out is None), programs


def _go_on(folder: Path, *, as_json: bool, profile: bool, markdown: Path | None) -> None:
    """Resume a run, on the machine and with the programs with which it began."""
    from tare import machine  # noqa: PLC0415
    from tare.record import Resumption  # noqa: PLC0415

    records = _records(folder)
    if markdown is not None:
        _refuse_summary({name: record.plan for name, record in records.items()})
    for record in records.values():
        refuse_other_variables(record)
    programs = ready()
    common = machine.fingerprint(programs)
    fingerprints = {
        name: machine.with_programs(common, record.plan.called) for name, record in records.items()
    }
    for name, record in records.items():
        refuse_if_changed(record, fingerprints[name])
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    for name, record in records.items():
        found = machine.Fingerprint.model_validate(fingerprints[name])
        with record.writing() as writer:
            writer.append(Resumption(resumed=now, fingerprint=found))
    carry_out(folder, programs, as_json=as_json, profile=profile, markdown=markdown)


def _records(folder: Path) -> dict[str, Record]:
    """The results that a folder holds: one, or a suite's parts by their names."""
    from tare import suite as suites  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    if suites.is_result(folder):
        return suites.SuiteResult(folder).parts
    return {"": Record(folder)}


@dataclass(frozen=True)
class Planned:
    """One experiment that is going to be run."""

    file: Path
    plan: Plan


def lay_out_parts(
    parts: Mapping[str, Path],
    seed: int | None,
    *,
    must_run: bool,
    put_on: Callable[[Experiment], Experiment] = lambda asked: asked,
) -> tuple[dict[str, Planned], dict[str, str]]:
    """Lay every part out; a suite goes on without absent parts.

    Raises:
        TareError: nothing is left that can run here.
    """
    from tare import experiment  # noqa: PLC0415

    plans: dict[str, Planned] = {}
    absent: dict[str, str] = {}
    for name, file in parts.items():
        asked = put_on(experiment.load(file))
        try:
            plans[name] = Planned(file, lay_out(asked, seed, must_run=must_run))
        except UnavailableError as error:
            if len(parts) == 1:
                raise
            absent[name] = error.what
            printing.say(f"[yellow]without {name}:[/]", error.what)
        except UsageError as error:
            raise UsageError(f"{file}: {error.what}", error.remedy) from error
    if not plans:
        raise UnavailableError(
            "no part of this suite can run here", "`tare doctor` shows what each needs"
        )
    return plans, absent


def fitted(plans: Mapping[str, Planned], budget_s: float) -> dict[str, Planned]:
    """Fit parts into a time, each into its share of it.

    Raises:
        UsageError: the fewest blocks of one take longer.
    """
    from tare import cuts  # noqa: PLC0415 - so that --help is fast

    share = budget_s / (sum(part.plan.seconds() for part in plans.values()) or 1.0)
    found = {}
    for name, part in plans.items():
        try:
            found[name] = replace(part, plan=cuts.fit(part.plan, part.plan.seconds() * share))
        except UsageError as error:
            if len(plans) == 1:
                raise
            # What was asked for is a time for all of them, and no other was named.
            raise UsageError(
                f"{units.minutes(budget_s)} for {len(plans)} parts is too short; {name}, by its"
                f" share: {error.what}",
                "give them more time, or run parts by themselves",
            ) from error
    return found


def _refuse_without_end(plans: Mapping[str, Planned]) -> None:
    """Refuse what takes so long that nobody can mean it, unless a budget says so."""
    seconds = sum(part.plan.seconds() for part in plans.values())
    if seconds > units.WEEK_NS / 1e9:
        raise UsageError(
            f"the least that is asked for takes about {seconds / 86_400:.3g} days",
            "ask for fewer requests, blocks or levels; or say that you mean it: --budget"
            f" '{math.ceil(seconds / 3600)} h'",
        )


def show_plans(plans: Mapping[str, Planned], *, as_json: bool) -> None:
    """Print what would be done."""
    if as_json:
        shown = {n: plan_json(part.plan) for n, part in plans.items()}
        printing.show_json(shown.get("", shown))
        return
    for name, part in plans.items():
        if name:
            printing.heading(name)
        print_plan(part.plan)
    show_whole(plans)


def show_whole(plans: Mapping[str, Planned]) -> None:
    """Print how long all parts take together, where there are several."""
    if len(plans) > 1:
        printing.show(f"\n{len(plans)} parts: about {takes(*plans.values())} in all")


def takes(*parts: Planned) -> str:
    """How long parts take together, by the fewest blocks and by all."""
    least = sum(part.plan.seconds() for part in parts)
    most = sum(part.plan.seconds(len(part.plan.blocks)) for part in parts)
    return span(least, most, units.minutes)


def carry_out(
    folder: Path, programs: Path, *, as_json: bool, profile: bool, markdown: Path | None
) -> None:
    """Run what a folder's plans say and is not on record yet, and draw it."""
    from tare import suite as suites  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415
    from tare.stopwatch import Stopwatch  # noqa: PLC0415

    failed = tried = lost = 0
    ended: Exit | None = None
    for name, record in _records(folder).items():
        if name:
            printing.say("[bold]part[/]", name)
        stopwatch = Stopwatch()
        outcome = measure(record, programs, whole=folder, quiet=as_json, stopwatch=stopwatch)
        failed, tried = failed + outcome.failed, tried + outcome.trials
        lost += outcome.lost
        if profile:
            show_profile(stopwatch)
    if suites.is_result(folder):
        draw_suite(suites.SuiteResult(folder), None, as_json=as_json)
    else:
        draw(Record(folder), None, as_json=as_json)
        ended = gate.end(Record(folder), markdown)
    if failed:
        printing.say("[yellow]failed:[/]", f"{failed} of {tried} trials; the report lists them")
    if lost:
        printing.say("[yellow]failed:[/]", f"{lost} times after trials; the report says what")
    raise typer.Exit(ended or (Exit.TRIALS_FAILED if failed or lost else Exit.OK))


def _refuse_result(path: Path) -> None:
    from tare import suite as suites  # noqa: PLC0415 - so that --help is fast
    from tare.record import Record  # noqa: PLC0415

    again = ""
    if (path / "plan.json").is_file():
        more = Record(path).experiment.options
        again = f"; do it again: {shell_line('tare', 'run', path / 'experiment.yaml', *more)}"
    elif not suites.is_result(path):
        return
    raise UsageError(
        f"{path} is a result, not an experiment file",
        f"go on with it: {shell_line('tare', 'run', '--resume', path)}{again}",
    )
