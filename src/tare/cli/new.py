"""`tare new`: an experiment file, by flags or by questions. No privileges."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tare import units
from tare.cli import completing, printing
from tare.command import shell_line
from tare.errors import Exit, TareError, UsageError

if TYPE_CHECKING:
    from tare.draft import Wishes

T = TypeVar("T")


def new(
    file: Annotated[
        Path | None, typer.Argument(help="The file to write; standard output if absent.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            help="What is measured; request-reply if absent.", autocompletion=completing.workloads
        ),
    ] = None,
    in_: Annotated[
        str | None,
        typer.Option("--in", help="Environments, separated by commas: --in native,container,qemu."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(help="A factor and its levels: --factor payload='64 B,4 KiB'; repeatable."),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            help="What everything is compared with: --baseline environment=native; if absent, the"
            " first factor's first level."
        ),
    ] = None,
    statistic: Annotated[
        str | None,
        typer.Option(
            help="What sessions are judged by; the workload's first if absent.",
            autocompletion=completing.statistics,
        ),
    ] = None,
    margin: Annotated[str, typer.Option(help="Differences within it count as equivalent.")] = "3 %",
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Fewest and most, such as 8..30, or one number; if absent, as many as the"
            " comparisons need, up to 30."
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="As many blocks as fit into a time such as 5m.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The question, the report's headline.")] = None,
) -> None:
    """Write an experiment file with a comment on each line; on a terminal, by asking questions.

    It asks where neither --in nor --factor says what to compare. No file is overwritten.
    """
    from tare.draft import Wishes, draft  # noqa: PLC0415 - so that --help is fast

    if file is not None and file.exists():
        raise _exists(file)
    if blocks is not None and budget is not None:
        raise UsageError("give --blocks or --budget, not both")

    def given(kind: str) -> Wishes:
        named = [*([f"environment={in_}"] if in_ else ()), *(factor or ())]
        return Wishes(
            workload=kind,
            factors=dict(_levels(kind, text) for text in named),
            baseline=dict(_level(kind, text) for text in baseline or ()),
            statistic=statistic,
            blocks=None if blocks is None else _blocks(blocks),
            budget_s=None if budget is None else units.seconds(budget),
            margin=margin,
            title=title,
        )

    if in_ is None and not factor:
        wishes, file = _asked(given, workload, file)
    else:
        wishes = given(workload or "request-reply")
    made = draft(wishes)
    if file is None:
        sys.stdout.write(made.text)
        return
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(made.text)
    except FileExistsError as error:
        raise _exists(file) from error
    except OSError as error:
        raise TareError(f"cannot write {file}: {error.strerror}", "name another file") from error
    printing.show(f"wrote {file}: {len(made.plan.cells)} cells")
    printing.say("", f"what it would do here: {shell_line('tare', 'run', file)} --dry-run")


def _exists(file: Path) -> UsageError:
    return UsageError(f"{file} exists, and is not overwritten", "name another file")


def _levels(workload: str, text: str) -> tuple[str, tuple[str, ...]]:
    """A factor with its levels, as an option gives them."""
    from tare import draft  # noqa: PLC0415 - so that --help is fast

    name, sign, levels = text.partition("=")
    if not sign:
        raise UsageError(f"{text!r} names no levels", "write FACTOR=LEVEL,LEVEL")
    rows = draft.workload(workload).levels.rows
    if name not in rows:
        raise UsageError(f"{workload} has no factor {name!r}", f"choose one of {', '.join(rows)}")
    try:
        return name, draft.levels_in(rows[name], levels)
    except UsageError as error:
        raise UsageError(f"{name}: {error.what}", error.remedy) from error


def _level(workload: str, text: str) -> tuple[str, str]:
    name, (level, *more) = _levels(workload, text)
    if more:
        raise UsageError(f"--baseline {text} names several levels", "name the one to compare with")
    return name, level


def _blocks(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,9})\s*(?:(?:\.\.|-)\s*(\d{1,9})\s*)?", text)
    if found is None:
        raise UsageError(f"{text!r} is no number of blocks", "write 8..30, or one number")
    return int(found[1]), int(found[2] or found[1])


def _asked(
    given: Callable[[str], Wishes], workload: str | None, file: Path | None
) -> tuple[Wishes, Path]:
    """Ask whoever sits at the terminal for what no option says.

    Args:
        given: workload -> what the options say of it.
        workload: what is measured, if it is said.
        file: to write, likewise.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "no option says what to compare, and no terminal is there to ask at",
            "add --in native,container or --factor NAME=LEVEL,LEVEL; `tare new --help` shows all",
        )
    try:
        return _questions(given, workload, file)
    except typer.Abort as error:  # Ctrl-C, or the end of the input
        raise typer.Exit(Exit.INTERRUPTED) from error


def _questions(
    given: Callable[[str], Wishes], workload: str | None, file: Path | None
) -> tuple[Wishes, Path]:
    from tare import draft, workloads  # noqa: PLC0415 - so that --help is fast

    if workload is None:
        _offer({name: workloads.about(name) for name in workloads.by_name()})
        workload = _ask("What is measured?", "request-reply", _one_of(workloads.by_name()))
    kind = draft.workload(workload)
    rows = kind.levels.rows
    _offer({name: f"{row.help} Default: {row.default}." for name, row in rows.items()})
    usual = "environment" if "environment" in rows else next(iter(rows))
    wishes = given(workload)
    required = [name for name, row in rows.items() if not row.default]
    varied = _ask("Which of these vary? (separated by commas)", usual, _several_of(rows))
    for name in dict.fromkeys([*required, *varied]):
        some = rows[name].choices or rows[name].examples or (rows[name].default,)
        question = f"Levels of {name}? (separated by commas)"
        levels = _ask(question, ",".join(some[:2]), partial(draft.levels_in, rows[name]))
        wishes = replace(wishes, factors={**wishes.factors, name: levels})
    varied = [name for name, levels in wishes.factors.items() if len(levels) > 1]
    if varied and not wishes.baseline:
        along = _ask("Along which is compared?", varied[0], _one_of(varied))
        known = wishes.factors[along]
        base = _ask(f"With which {along}?", known[0], _one_of(known))
        wishes = replace(wishes, baseline={along: base})
    if wishes.statistic is None:
        _offer({name: statistic.help for name, statistic in kind.statistics.items()})
        by = _ask("Judged by what?", next(iter(kind.statistics)), _one_of(kind.statistics))
        wishes = replace(wishes, statistic=by)
    draft.draft(wishes)  # what is wrong by now is not for the next question to say

    def within(text: str) -> Wishes:
        found = replace(wishes, budget_s=units.seconds(text)) if text != _NO_LIMIT else wishes
        draft.draft(found)
        return found

    if wishes.blocks is None and wishes.budget_s is None:
        wishes = _ask("How long may it take, such as 10m?", _NO_LIMIT, within)
    if wishes.title is None:
        title = draft.draft(wishes).plan.experiment.title
        wishes = replace(wishes, title=_ask("Its title, a question?", title, str))
    return wishes, file or _ask("Write it to which file?", "experiment.yaml", _free)


_NO_LIMIT = "as long as it needs"


def _ask(question: str, default: str, parse: Callable[[str], T]) -> T:
    """Ask until the answer can be read."""
    while True:
        try:
            return parse(typer.prompt(question, default=default, err=True).strip())
        except UsageError as error:
            printing.show_error(error)


def _offer(rows: Mapping[str, str]) -> None:
    printing.err.print(printing.table("", "", rows=rows.items()))


def _one_of(known: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise UsageError(f"{text!r} is none of them", f"choose one of {', '.join(known)}")
        return text

    return parse


def _several_of(known: Collection[str]) -> Callable[[str], list[str]]:
    one = _one_of(known)
    return lambda text: [one(part.strip()) for part in text.split(",")]


def _free(text: str) -> Path:
    if Path(text).exists():
        raise _exists(Path(text))
    return Path(text)
