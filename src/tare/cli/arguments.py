"""Arguments that several commands share, and the exit codes that all of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli import completing

EPILOG = (
    "Exit codes: 0 done. 1 it ran, and what was asked does not hold (a claim, --fail-on). 2 the"
    " command line or an input file is wrong; nothing was started. 3 this machine lacks something;"
    " the message says what. 4 the run ended, but some trials failed. 5 inconclusive: more data"
    " needed (a claim, --fail-on); the message says how much. 70 a defect of tare's."
    " 130 interrupted; everything was cleaned up, and the run can be resumed."
)

FLAG = ""
"""Shown in place of a value: a flag takes none."""

Json = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Print JSON for machines.")]
Out = Annotated[
    Path | None, typer.Option(help="The result folder; by default a new one in results/.")
]
Result = Annotated[
    Path,
    typer.Argument(
        help="A result folder, as `tare run` printed it.", autocompletion=completing.results
    ),
]
