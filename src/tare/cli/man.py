"""`tare man`: manual pages, made of the help texts of the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tare import __version__
from tare.cli import printing
from tare.errors import TareError, UsageError

_Command = Any
_Context = Any
"""Typer's own, whose types are not its interface."""


def man(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND", help="The command whose page to print; if absent, tare's own."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the pages of all commands into this folder instead, such as"
            " ~/.local/share/man/man1, where `man tare-run` finds them."
        ),
    ] = None,
) -> None:
    """Print a manual page; to read it: tare man run | man -l -."""
    pages = dict(_pages(context.find_root(), ()))
    if out is not None:
        _write(pages, out)
        return
    words = tuple(command or ())
    if words not in pages:
        known = ", ".join(" ".join(words) for words in pages if words)
        raise UsageError(f"there is no command {' '.join(words)!r}", f"choose one of {known}")
    printing.show(pages[words])


def _write(pages: dict[tuple[str, ...], str], out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for words, page in pages.items():
            (out / f"{'-'.join(('tare', *words))}.1").write_text(page + "\n", encoding="utf-8")
    except OSError as error:
        said = f"cannot write the manual pages into {out}: {error.strerror}"
        raise TareError(said, "name another folder: --out") from error
    printing.show(f"{len(pages)} pages in {out}")


def _pages(context: _Context, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command from one on down: its words -> its page."""
    command: _Command = context.command
    yield words, _page(command, context, words)
    for name, inner in getattr(command, "commands", {}).items():
        below = inner.make_context(name, [], parent=context, resilient_parsing=True)
        yield from _pages(below, (*words, name))


def _page(command: _Command, context: _Context, words: tuple[str, ...]) -> str:
    name = "-".join(("tare", *words))
    title, _, rest = (command.help or "").partition("\n\n")
    pieces: list[str] = command.collect_usage_pieces(context)
    synopsis = " ".join(pieces).replace("{", "").replace("}", "")
    lines = [
        f'.TH {_roff(name.upper())} 1 "" "tare {__version__}" "Tare"',
        *(".SH NAME", f"{_roff(name)} \\- {_marked(title)}"),
        *(".SH SYNOPSIS", f"\\fB{_roff(' '.join(('tare', *words)))}\\fR {_roff(synopsis)}"),
    ]
    if rest:
        lines += [".SH DESCRIPTION", *_paragraphs(rest)]
    for heading, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        records = [p.get_help_record(context) for p in command.get_params(context)
                   if p.param_type_name == kind]  # fmt: skip
        if records:
            lines += [f".SH {heading}", *_defined(records)]
    if inner := getattr(command, "commands", {}):
        rows = [(n, c.help.partition("\n\n")[0]) for n, c in inner.items()]
        lines += [".SH COMMANDS", *_defined(rows)]
    if command.epilog:
        lines += [".SH EXIT STATUS", *_paragraphs(command.epilog.removeprefix("Exit codes: "))]
    if words:
        lines += [".SH SEE ALSO", f"\\fB{_roff('-'.join(('tare', *words[:-1])))}\\fR(1)"]
    return "\n".join(lines)


def _defined(rows: list[tuple[str, str]]) -> Iterator[str]:
    for term, text in rows:
        yield from (".TP", f"\\fB{_roff(term)}\\fR", _marked(text))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _marked(paragraph)


def _marked(text: str) -> str:
    """A help text in roff: its lines joined, and in bold what it has in bold."""
    said = _roff(" ".join(text.split())).replace("[bold]", "\\fB").replace("[/bold]", "\\fR")
    return f"\\&{said}" if said.startswith((".", "'")) else said


def _roff(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")
