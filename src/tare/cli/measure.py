"""`tare measure`: any command, in every environment, from one line of a shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from tare import rootless, units
from tare.cli import asked, gate, paths, printing
from tare.cli import polite as bounded
from tare.cli.arguments import FLAG, Json
from tare.cli.plan import lay_out, plan_json, print_plan, ready
from tare.command import shell_line
from tare.document import refuse_bytes
from tare.errors import Exit, FaultyFileError, TareError, TrialError, UsageError

if TYPE_CHECKING:
    from tare.plan import Plan

_WHAT, _HOW, _TOLD = "What is measured", "How", "Output"


def _option(panel: str, *names: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)


def _flag(panel: str, name: str, help: str) -> Any:
    return _option(panel, name, metavar=FLAG, help=help)


def measure(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its arguments; options of tare come before it."),
    ] = None,
    in_: Annotated[
        str, _option(_WHAT, "--in", help="Environments, such as native,container,gvisor,uml,qemu.")
    ] = "native",
    against: Annotated[
        list[str] | None,
        _option(
            _WHAT,
            "--against",
            help="Another command to compare it with; a program by itself is given the same"
            " arguments.",
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        _option(
            _WHAT,
            "--parameter",
            "-P",
            metavar="NAME=A,B",
            help="Values to put in the place of {NAME}; each is measured.",
        ),
    ] = None,
    placement: Annotated[
        str | None,
        _option(_WHAT, "--placement", help="Processors: anywhere, same-core, or sets of them."),
    ] = None,
    vcpus: Annotated[
        str | None, _option(_WHAT, "--vcpus", help="Virtual processors of a guest, such as 1,2.")
    ] = None,
    memory: Annotated[
        str | None, _option(_WHAT, "--memory", help="Memory of a guest, such as '1 GiB'.")
    ] = None,
    interference: Annotated[
        str | None,
        _option(_WHAT, "--interference", help="A load beside it, such as 'none,host cpu 50 %'."),
    ] = None,
    files: Annotated[
        str | None,
        _option(_WHAT, "--files", help="How files get into a guest: shared, copied, or both."),
    ] = None,
    image: Annotated[
        str | None,
        _option(
            _WHAT,
            "--image",
            help="A root to run it in: a folder, docker-archive.tar, or oci:FOLDER.",
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        _option(
            _HOW, "--warmup", "-w", help="Executions before the measured ones, in each session."
        ),
    ] = None,
    runs: Annotated[
        str | None,
        _option(
            _HOW,
            "--runs-per-session",
            "-r",
            help="Executions in a session; if absent, as many as begin within half a second.",
        ),
    ] = None,
    prepare: Annotated[
        str | None,
        _option(_HOW, "--prepare", "-p", help="Shell line before each execution, not timed."),
    ] = None,
    cleanup: Annotated[
        str | None,
        _option(_HOW, "--cleanup", "-c", help="Shell line after each execution, not timed."),
    ] = None,
    shell: Annotated[
        str | None,
        _option(_HOW, "--shell", "-S", help="Give the whole line to a shell, such as sh."),
    ] = None,
    env: Annotated[
        list[str] | None,
        _option(
            _HOW,
            "--env",
            metavar="NAME[=VALUE]",
            help="Set a variable; NAME alone passes yours on as a secret, written nowhere.",
        ),
    ] = None,
    cwd: Annotated[
        str, _option(_HOW, "--cwd", help="The working directory; the current one if absent.")
    ] = ".",
    stdin: Annotated[
        str | None, _option(_HOW, "--stdin", help="A file for its standard input.")
    ] = None,
    timeout: Annotated[
        str | None,
        _option(_HOW, "--timeout", help="Kill an execution after this time; 2 h if absent."),
    ] = None,
    output: Annotated[
        str | None,
        _option(_HOW, "--output", help="Its standard output: captured (if absent) or null."),
    ] = None,
    input_: Annotated[
        list[str] | None,
        _option(_HOW, "--input", help="Another file or folder to copy, with --files copied."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        _option(_HOW, "--keep", help="A path to bring back; all else that it writes is dropped."),
    ] = None,
    expect: Annotated[
        list[str] | None,
        _option(
            _HOW,
            "--expect",
            help="What counts as success: 'exit 3' (-11: by that signal), 'output REGEX', or"
            " 'FILE sha256:HEX'.",
        ),
    ] = None,
    read: Annotated[
        list[str] | None,
        _option(
            _HOW,
            "--read",
            metavar="NAME:UNIT=REGEX",
            help="A number to read from its output, such as 'qps:1/s=([0-9.]+) queries/s' or"
            " 'p99:us=json:latency.p99'.",
        ),
    ] = None,
    statistic: Annotated[
        str | None, _option(_HOW, "--statistic", help="What to judge: wall, or a number of --read.")
    ] = None,
    blocks: Annotated[
        int | None,
        _option(
            _HOW,
            "--blocks",
            help="Exactly so many (a gate: at most); if absent 8 to 20, until all is within 3 %.",
        ),
    ] = None,
    budget: Annotated[
        str | None, _option(_HOW, "--budget", help="Fit the run into this time, such as 5m.")
    ] = None,
    takes: Annotated[
        str | None,
        _option(
            _HOW, "--takes", help="How long it takes; if absent, it is tried once to find out."
        ),
    ] = None,
    seed: Annotated[int | None, _option(_HOW, "--seed", help="Seed of the random order.")] = None,
    fail_on: gate.FailOn = None,
    margin: gate.Margin = None,
    significance: gate.Significance = None,
    summary: gate.Markdown = None,
    polite: Annotated[bool, _flag(_HOW, "--polite", bounded.HELP)] = False,
    share: Annotated[str | None, _option(_HOW, "--share", help=bounded.SHARE_HELP)] = None,
    title: Annotated[str | None, _option(_TOLD, "--title", help="The report's headline.")] = None,
    out: Annotated[
        Path | None,
        _option(_TOLD, "--out", help="The result folder; if absent, a new one in results/."),
    ] = None,
    export_json: Annotated[
        Path | None, _option(_TOLD, "--export-json", help="Every session, as JSON.")
    ] = None,
    export_csv: Annotated[
        Path | None, _option(_TOLD, "--export-csv", help="Every session, as CSV.")
    ] = None,
    export_markdown: Annotated[
        Path | None, _option(_TOLD, "--export-markdown", help="The table of cells.")
    ] = None,
    export: Annotated[
        list[str] | None,
        _option(
            _TOLD,
            "--export",
            metavar="FORMAT=FILE",
            help="Any format of `tare export`, such as hyperfine=F.json or openmetrics=F.prom.",
        ),
    ] = None,
    show_output: Annotated[
        bool, _flag(_TOLD, "--show-output", "Show what it prints when it is first tried.")
    ] = False,
    dry_run: Annotated[
        bool, _flag(_TOLD, "--dry-run", "Print the plan and the experiment file; run nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Measure a command in any environment: how long it takes, what it uses, against another.

    Typed like hyperfine, with randomised blocks, intervals and verdicts behind it. Nothing that the
    command writes reaches this machine, except what --keep names.

    tare measure --in native,container,qemu -- gzip -9 -k -c corpus.tar

    tare measure --against ./old/app --parameter threads=1,2,4 -- ./new/app --threads {threads}
    """
    rootless.enter()
    here = str(Path(cwd).resolve())
    refuse_bytes("\n".join((here, os.environ.get("PATH", ""))))
    session = {
        "runs": runs, "warmup": None if warmup is None else str(warmup), "prepare": prepare,
        "cleanup": cleanup, "shell": shell, "stdin": stdin, "timeout": timeout, "output": output,
        "image": image, "takes": takes,
        "env": asked.variables(env or [], os.environ), "cwd": here,
        "inputs": asked.joined(input_), "keep": asked.joined(keep),
    }  # fmt: skip
    factors = zip(asked.FACTORS, (in_, placement, vcpus, memory, interference, files), strict=True)
    found = asked.Asked(
        command=command or [],
        against=against or [],
        factors={name: asked.levels(name, text) for name, text in factors if text},
        parameters=parameter or [],
        session={name: text for name, text in session.items() if text},
        read=read or [],
        expect=expect or [],
        statistic=statistic,
        title=title,
        blocks=blocks,
        seed=seed,
        gate=gate.declared(fail_on, margin, significance, summary),
        margin=margin,
        polite=bounded.declared(share, polite=polite),
    )
    named = {"json": export_json, "csv": export_csv, "markdown": export_markdown}
    exports = asked.exports(named, export or [])
    telling = {"show": show_output, "dry_run": dry_run, "as_json": json_}
    _measure(found, budget, out, exports, summary, **telling)


def _measure(
    found: asked.Asked,
    budget: str | None,
    out: Path | None,
    exports: list[tuple[str, Path]],
    summary: Path | None,
    *,
    show: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from tare import export, machine, preflight  # noqa: PLC0415 - so that --help is fast
    from tare.cli.run import carry_out  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    document = found.document()
    limit_s = None if budget is None else units.seconds(budget)
    # How long a command takes is not known before it was tried, and what a budget allows neither.
    known = dry_run or "takes" in document["session"]
    text, plan = _planned(document, limit_s if known else None, must_run=not dry_run)
    for format_, _ in exports:
        export.refuse_untold(format_, plan)
    if dry_run:
        if as_json:
            printing.show_json(plan_json(plan))
        else:
            print_plan(plan)
            printing.show(f"\n{text}")
        return
    programs = ready()
    if show or "takes" not in document["session"]:
        try:
            to = sys.stderr if as_json else sys.stdout
            document["session"]["takes"] = _tried(plan, programs, to if show else None)
        except TrialError as error:
            error.exit_code = Exit.TRIALS_FAILED  # a gate's 1 would say that it is slower
            raise
        text, plan = _planned(document, limit_s, must_run=True)
    name = next(iter(document["factors"]["command"]))
    folder = out or paths.result(f"measure-{name}")
    preflight.refuse_without_room(plan, folder)
    found_here = machine.with_programs(machine.fingerprint(programs), plan.called)
    record = Record.create(folder, text, plan, found_here, numbered=out is None)
    least = units.minutes(plan.seconds())
    printing.say("", f"{len(plan.cells)} cells, {plan.min_blocks} blocks or more: {least} or more")
    code = int(Exit.OK)
    try:
        carry_out(record.folder, programs, as_json=as_json, profile=False, markdown=summary)
    except typer.Exit as ended:
        code = ended.exit_code
    finally:
        lost = _export(record, exports)
        printing.say("[dim]again:[/]", shell_line("tare", "run", record.experiment_path))
    raise typer.Exit(code or lost)


def _planned(
    document: dict[str, Any], limit_s: float | None, *, must_run: bool
) -> tuple[str, Plan]:
    """The experiment file's text, and what it makes within a time."""
    from tare import cuts, experiment  # noqa: PLC0415 - so that --help is fast
    from tare.document import MOST_BYTES  # noqa: PLC0415

    text = asked.written(document, ["tare", *sys.argv[1:]])
    if len(text.encode()) > MOST_BYTES:
        raise UsageError(
            f"what was typed is more than the {MOST_BYTES >> 10} KiB of an experiment file",
            "have a shell find the names: --shell sh -- 'cat logs/*.log'",
        )
    try:
        plan = lay_out(experiment.parse(text, "what was typed"), None, must_run=must_run)
    except FaultyFileError as error:
        raise asked.by_option(error) from error
    if limit_s is not None:
        plan = cuts.fit(plan, limit_s)
    return text, plan


def _tried(plan: Plan, programs: Path, to: TextIO | None) -> str:
    """Run each command once, so that a slip shows at once; return how long they took, their mean.

    With what is run beside them.

    Args:
        plan: whose commands they are.
        programs: the build directory.
        to: where what they print is shown, if it is.

    Raises:
        TrialError: one failed, or does not print what is to be read.
    """
    from tare import rehearsal  # noqa: PLC0415 - so that --help is fast
    from tare.workloads.command.rows import CommandLevels  # noqa: PLC0415
    from tare.workloads.command.workload import CommandBench  # noqa: PLC0415

    once = plan.model_copy(update={"session": plan.session.but(runs="1", warmup="0")})
    here = plan.cells[0].levels["environment"]
    cells = [cell for cell in plan.cells if cell.levels["environment"] == here]
    first = {cell.levels["command"]: cell for cell in reversed(cells)}
    took = []
    with rehearsal.rehearsed(once, programs, paths.cache()) as bench:
        assert isinstance(bench, CommandBench)
        for command in dict.fromkeys(cell.levels["command"] for cell in cells):
            levels = first[command].levels
            assert isinstance(levels, CommandLevels)
            printing.say("[dim]trying it once:[/]", first[command].id)
            session = bench.executed(levels, tell=to is not None)
            (execution,) = session.executions
            if to is not None:
                to.write(execution.stdout)
                sys.stderr.write(execution.stderr)
            bench.readings(session)
            printing.say("[dim]it took[/]", units.show_duration(execution.wall_ns))
            took.append(execution.round_ns)
    return units.exact_duration(max(1, round(fmean(took) / 1e5)) * 100_000)


def _export(record: Any, exports: list[tuple[str, Path]]) -> Exit:
    """Write each of them that can be written; one that cannot takes no verdict's exit code."""
    from tare import analysis, report  # noqa: PLC0415 - so that --help is fast
    from tare import export as exporting  # noqa: PLC0415

    if not record.trials():
        return Exit.OK
    code = Exit.OK
    for format_, path in exports:
        try:
            if format_ == "markdown":
                report.write(report.markdown(analysis.analyse(record)), path)
            else:
                exporting.export(record, format_, path)
        except TareError as error:
            if any(trial.status == "ok" for trial in record.trials()):
                printing.show_error(error)
                code = Exit.UNAVAILABLE
            else:  # the run's own end says more
                printing.say("[yellow]not written:[/]", f"{path}: {error.what}")
        else:
            printing.say("[dim]written:[/]", str(path))
    return code
