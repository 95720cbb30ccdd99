"""`tare check`: experiment files, before anything is run. No privileges."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tare import units
from tare.cli import completing, paths, printing
from tare.cli.arguments import Json
from tare.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tare.check import Checked


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help="Experiment files or suites, or names of those that ship; - is standard input.",
            autocompletion=completing.experiments,
        ),
    ],
    json_: Json = False,
) -> None:
    """Check experiment files: print every fault with its line, and what to do about it.

    It does not look at this machine: `tare run FILE --dry-run` says what can run here.
    """
    found = [checked for file in files for checked in _checked(file)]
    wrong = [checked for checked in found if not checked.valid]
    if json_:
        shown = [_as_json(checked) for checked in found]
        printing.show_json({"valid": not wrong, "files": shown})
    else:
        for checked in found:
            _print(checked)
        for remedy in dict.fromkeys(checked.remedy for checked in wrong if checked.remedy):
            printing.say("  [dim]→[/]", remedy)
    if wrong:
        raise typer.Exit(Exit.USAGE)


def _checked(file: str) -> Iterator[Checked]:
    from tare import document  # noqa: PLC0415 - so that --help is fast
    from tare.check import Checked, check  # noqa: PLC0415
    from tare.errors import FaultyFileError, UsageError  # noqa: PLC0415

    path = Path("<stdin>") if file == "-" else paths.experiment(Path(file))
    try:
        if file == "-":
            if (stdin := getattr(sys.stdin, "buffer", None)) is None:
                raise UsageError("standard input is closed", "name a file, or pipe one into tare")
            text = document.text_of(stdin, str(path))
        else:
            text = document.read(path)
    except FaultyFileError as error:
        yield Checked(str(path), faults=error.faults, remedy=error.remedy)
    except UsageError as error:
        yield Checked(str(path), error=error.what, remedy=error.remedy)
    else:
        yield from check(text, path)


def _print(checked: Checked) -> None:
    from tare.cli.plan import span  # noqa: PLC0415 - so that --help is fast

    for fault in checked.faults:
        printing.show(f"{checked.file}:{fault.line}: {fault}")
    if checked.error:
        printing.show(f"{checked.file}: {checked.error}")
    if not checked.valid:
        return
    if (plan := checked.plan) is None:
        printing.show(f"{checked.file}: valid, a suite")
        return
    blocks = span(plan.min_blocks, len(plan.blocks), str)
    time = span(plan.seconds(), plan.seconds(len(plan.blocks)), units.minutes)
    printing.show(f"{checked.file}: valid: {len(plan.cells)} cells, {blocks} blocks, about {time}")


def _as_json(checked: Checked) -> dict[str, Any]:
    plan = checked.plan
    return {
        "file": checked.file,
        "valid": checked.valid,
        "title": checked.title,
        "cells": [cell.id for cell in plan.cells] if plan else None,
        "blocks": [plan.min_blocks, len(plan.blocks)] if plan else None,
        "seconds": [plan.seconds(), plan.seconds(len(plan.blocks))] if plan else None,
        "faults": [asdict(fault) for fault in checked.faults],
        "error": checked.error or None,
        "remedy": checked.remedy,
    }
