"""The command line: parse, call, print. Nothing is computed here."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tare import __version__, document
from tare.cli import (
    check,
    claim,
    doctor,
    explain,
    history,
    man,
    measure,
    new,
    predict,
    printing,
    replay,
    results,
    run,
    slurm,
)
from tare.cli.arguments import EPILOG, FLAG
from tare.errors import Exit, TareError, UnavailableError, UsageError

_ADDRESS_SPACE = 1 << 30
"""What the libraries map, with room for their threads."""


class _Command(TyperCommand):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # A docstring's lines are as long as the code's; a terminal has its own length.
        self.help = re.sub(r"(?<=\S)\n(?=\S)", " ", self.help or "")

    def invoke(self, ctx: Any) -> Any:
        # Where numpy's OpenBLAS cannot map what it wants it spins for ever, deaf to signals.
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
            raise UnavailableError(
                f"this shell lets a process have {limit >> 20} MiB of addresses, and Tare needs"
                f" {_ADDRESS_SPACE >> 20}",
                f"ulimit -v {_ADDRESS_SPACE >> 10} or more, or ulimit -v unlimited",
            )
        return super().invoke(ctx)

    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _flag(super().get_help_option(ctx))


class _Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> TyperOption | None:
        return _flag(super().get_help_option(ctx))

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for param in params:
            if param.name in ("install_completion", "show_completion"):
                param.metavar = FLAG
        return params


def _flag(option: TyperOption | None) -> TyperOption | None:
    """Show `--help` without a value, like every other flag."""
    if option is not None:
        option.metavar = FLAG
    return option


app = typer.Typer(
    name="tare",
    cls=_Group,
    help="What does this layer cost me, and can I pay less?\n\nMeasures what virtualisation and"
    " middleware add to a workload, with intervals that hold. Start with"
    " [bold]tare run experiments/quickstart.yaml[/bold].",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
for command in (
    run.run,
    new.new,
    check.check,
    results.show,
    results.report,
    results.compare,
    explain.explain,
    predict.predict,
    replay.replay,
    slurm.slurm,
    doctor.doctor,
    results.list_,
    results.export,
    history.history,
    doctor.clean,
    doctor.schema,
    man.man,
):
    app.command(command.__name__.rstrip("_"), cls=_Command, epilog=EPILOG)(command)
# What stands behind its command's first word is the command's own.
app.command(
    "measure", cls=_Command, epilog=EPILOG, context_settings={"allow_interspersed_args": False}
)(measure.measure)

claim_app = typer.Typer(cls=_Group, help="Check what CLAIMS.md promises.", no_args_is_help=True)
for claim_command in (claim.list_, claim.table, claim.check):
    name = claim_command.__name__.rstrip("_")
    claim_app.command(name, cls=_Command, epilog=EPILOG)(claim_command)
app.add_typer(claim_app, name="claim")


def main() -> None:
    """Run the command line; the only place that turns an error into an exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What is ignored on purpose stays so: nohup tare run ...
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    # Its threads take addresses for each processor; nothing here is large enough for them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with printing.told():
            document.refuse_bytes("\n".join(sys.argv[1:]))
            _refuse_to_be_nowhere()
            app()
    except TareError as error:
        printing.show_error(error)
        sys.exit(error.exit_code)
    except Exception as error:
        if isinstance(error, OSError) and (told := _of_a_file(error)):
            printing.show_error(told)
            sys.exit(told.exit_code)
        traceback.print_exc()
        printing.say(
            "[bold red]tare:[/]",
            "this is a defect of tare's; please report it with the lines above",
        )
        sys.exit(Exit.DEFECT)
    finally:
        # All is cleaned up: a second Ctrl-C could only tear the interpreter's own end apart.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@app.callback(invoke_without_command=True)
def _global(
    version: Annotated[
        bool, typer.Option("--version", metavar=FLAG, help="Print the version.")
    ] = False,
) -> None:
    if version:
        printing.show(f"tare {__version__}")
        raise typer.Exit


def _of_a_file(error: OSError) -> TareError | None:
    """What the system refused for a file's name or rights, wherever it was; else a defect."""
    if error.filename is None:
        return None
    name = os.fsdecode(error.filename)
    match error.errno:
        case errno.ENAMETOOLONG:
            return UsageError(f"{name!r} is too long for a name")
        case errno.EACCES | errno.EPERM:
            said = f"cannot read or write {name}: {error.strerror}"
            return TareError(said, "ask its owner, or run as root")
        case errno.EROFS:
            return TareError(f"cannot write {name}: {error.strerror}", "name another folder")
    return None


def _refuse_to_be_nowhere() -> None:
    try:
        Path.cwd()
    except OSError as error:
        said = f"there is no folder where you are any more: {error.strerror}"
        raise UsageError(said, "cd to another first") from error


def _interrupt(_number: int, _frame: object) -> None:
    """Treat it as Ctrl-C: everything is cleaned up, and the run can be resumed."""
    raise KeyboardInterrupt
