"""`tare history`: any number of results over time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from tare.cli import printing
from tare.cli.arguments import FLAG, Json
from tare.command import shell_line
from tare.errors import UsageError

if TYPE_CHECKING:
    from tare.history.index import Index
    from tare.history.query import CellHistory, Filter

_MOST_TOLD = 10
"""Results that are told to be left out, of an overview for people."""
_WIDEST = 120
_AGO = {"h": "hours", "d": "days", "w": "weeks"}


def history(
    folder: Annotated[Path, typer.Argument(help="The folder of results, at any depth.")] = Path(
        "results"
    ),
    cell: Annotated[
        str | None,
        typer.Option(help="One cell over time, such as qemu/udp; if absent, an overview."),
    ] = None,
    statistic: Annotated[
        str | None, typer.Option(help="With --cell: such as p99; the declared one if absent.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only runs since then: 2026-11-24, or 30d, 12h, 8w ago.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="Only machines with this in their name or hash.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Only titles with this in them.")] = None,
    commit: Annotated[
        str | None, typer.Option(help="Only runs by a Tare whose commit begins with this.")
    ] = None,
    distribution: Annotated[
        bool,
        typer.Option(
            "--distribution",
            metavar=FLAG,
            help="With --cell: how the raw samples of each level are distributed; reads them all.",
        ),
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="With --cell: draw a page into this file.")
    ] = None,
    csv_: Annotated[
        bool,
        typer.Option(
            "--csv", metavar=FLAG, help="Print CSV: a row per run with --cell, else per title."
        ),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", metavar=FLAG, help="Read every result again, changed or not."),
    ] = False,
    json_: Json = False,
) -> None:
    """Show a folder of results over time: what there is, and what changed when.

    Results of different machines are never combined. What was read of each result is kept in the
    folder, in .history, which can be deleted; the results stay as they are.
    """
    from tare.history import query  # noqa: PLC0415 - so that --help is fast
    from tare.history.index import Index  # noqa: PLC0415

    if cell is None and (statistic or html or distribution):
        raise UsageError(
            "--statistic, --html and --distribution are of one cell",
            f"name it: {shell_line('tare', 'history', folder)} --cell CELL",
        )
    if json_ and csv_:
        raise UsageError("--json and --csv are two formats", "choose one")
    if distribution and csv_:
        raise UsageError(
            "--csv has a row a run, and no distributions of --distribution", "ask for --json"
        )
    wanted = query.Filter(_since(since), title, machine, commit)
    index = Index(folder)
    _refresh(index, anew=rebuild)
    shown = "json" if json_ else "csv" if csv_ else "text"
    if cell is None:
        _overview(index, wanted, shown)
    else:
        found = query.cell_history(index, cell, statistic, wanted)
        _cell(index, found, shown, html, distribution=distribution)


def _overview(index: Index, wanted: Filter, shown: str) -> None:
    from tare.history import query  # noqa: PLC0415
    from tare.report import history as drawn  # noqa: PLC0415

    rows, skipped = query.overview(index, wanted), query.skipped(index)
    if shown == "json":
        printing.show_json(_plain({"titles": rows, "skipped": skipped}))
        return
    if shown == "csv":
        _show_csv([_flat(row) for row in _plain(rows)])
    else:
        printing.out.print(drawn.overview(rows))
    for one in skipped[:_MOST_TOLD]:
        printing.say("[yellow]note:[/]", f"{one.folder}: {one.why}")
    if len(skipped) > _MOST_TOLD:
        printing.say("[yellow]note:[/]", f"and {len(skipped) - _MOST_TOLD} more; all: --json")


def _cell(
    index: Index,
    found: Sequence[CellHistory],
    shown: str,
    html: Path | None,
    *,
    distribution: bool,
) -> None:
    from tare.report import history as drawn  # noqa: PLC0415

    raw = [_distributions(index, one) for one in found] if distribution else []
    if html is not None:
        from tare import report  # noqa: PLC0415
        from tare.report import history_page  # noqa: PLC0415

        report.write(history_page.render(str(index.folder), found), html)
    if shown == "json":
        printing.show_json(_plain({"series": found, **({"distributions": raw} if raw else {})}))
        return
    if shown == "csv":
        _show_csv(list(_rows(found)))
        return
    printing.out.print(drawn.cell(found, min(printing.out.width, _WIDEST)))
    for one in raw:
        printing.out.print(drawn.distributions(one))
    if html is not None:
        printing.show(f"page  {html}")


def _refresh(index: Index, *, anew: bool) -> None:
    with _progress("reading results") as tell:
        current = index.refresh(tell, anew=anew)
    if not current:
        printing.say(
            "[yellow]note:[/]",
            f"another tare is reading results of {index.folder} now: shown is what it has read",
        )


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of how many are done, from the first on; nothing where there is none."""
    with ExitStack() as stack:
        shown: list[Progress] = []

        def tell(done: int, of: int) -> None:
            if not shown:
                # Where nobody watches, what is wiped away would leave a blank line.
                quiet = not printing.err.is_terminal
                progress = Progress(console=printing.err, transient=True, disable=quiet)
                shown.append(stack.enter_context(progress))
                shown[0].add_task(what, total=of)
            shown[0].update(shown[0].task_ids[0], completed=done)

        yield tell


def _distributions(index: Index, series: CellHistory) -> Sequence[Any]:
    from tare.history import samples  # noqa: PLC0415

    with _progress("reading samples") as tell:
        return samples.distributions(index.folder, series, tell)


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    if ago := re.fullmatch(r"(\d{1,5})\s*([hdw])", text):
        span = timedelta(**{_AGO[ago[2]]: int(ago[1])})
        return datetime.now(UTC).replace(tzinfo=None) - span
    from tare.identity import moment  # noqa: PLC0415 - so that --help is fast

    try:
        return moment(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--since takes a date or how long ago, not {text!r}",
            "write 2026-11-24, 2026-11-24T12:00, 30d, 12h or 8w",
        ) from error


def _plain(value: Any) -> Any:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415

    return to_jsonable_python(value)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    changed = row.pop("changed") or {}
    ratio = changed.get("ratio", {}).get("ratio", {})
    return {
        **row,
        "cells": " ".join(row["cells"]),
        **{f"changed_{key}": changed.get(key) for key in ("cell", "since", "folder", "word")},
        **{f"changed_ratio_{key}": ratio.get(key) for key in ("estimate", "low", "high")},
    }


def _rows(found: Sequence[CellHistory]) -> Iterator[dict[str, Any]]:
    """A row a run: what it is of, its value, and the level that it belongs to."""
    for one in found:
        steps = {step.at: step.word for step in one.steps}
        level = 1
        for number, point in enumerate(_plain(one.points)):
            level += number in steps
            yield {
                "title": one.title,
                "machine": one.machine,
                "accelerator": one.accelerator,
                "cell": one.cell,
                "statistic": one.statistic,
                "unit": one.unit,
                **point,
                "level": level,
                "change": steps.get(number),
            }


def _show_csv(rows: Sequence[dict[str, Any]]) -> None:
    from tare.export import TABLES  # noqa: PLC0415 - so that --help is fast

    sys.stdout.write(TABLES["csv"](rows).decode())
