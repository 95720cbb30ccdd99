"""`tare explain`: what differs between two cells, and how much of the effect it can explain."""

from __future__ import annotations

from typing import Annotated

import typer

from tare.cli import completing, printing
from tare.cli.arguments import Json, Result


def explain(
    result: Result,
    cell: Annotated[
        str,
        typer.Argument(
            help="The cell in question, such as qemu/udp.", autocompletion=completing.cells
        ),
    ],
    against: Annotated[
        str | None,
        typer.Argument(
            help="The cell to compare it with; the one that the plan does if absent.",
            autocompletion=completing.cells,
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Say what differs between two cells, ordered by how much of the effect it can explain."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - so that --help is fast

    from tare.analysis import difference  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415
    from tare.report import tables, wording  # noqa: PLC0415

    found = difference.explain(Record(result), cell, against)
    if json_:
        said = TypeAdapter(difference.Difference).dump_python(found, mode="json")
        printing.show_json({**said, "explained": found.explained})
        return
    ratio = wording.ratio_text(found.ratio.ratio)
    printing.show(f"{found.cell.id} over {found.against.id}, {found.statistic}: {ratio}")
    for sentence in tables.conclusion(found):
        printing.show(sentence)
    for table in tables.of_differences(found, found.cell.id, found.against.id):
        printing.show("")
        printing.out.print(printing.table(*table.columns, rows=table.rows, title=table.caption))
        if table.note:
            printing.show(table.note)
