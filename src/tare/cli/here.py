"""`tare doctor`, `clean`, `schema`: this machine and this installation."""

from __future__ import annotations

from rich.markup import escape

from tare.cli import places, printing
from tare.cli.arguments import Json


def doctor(json_: Json = False) -> None:
    """Tell what this machine can do, and for each "no" the reason and the remedy."""
    from tare import doctor as examining  # noqa: PLC0415 - so that --help is fast

    findings = examining.examine(places.build())
    if json_:
        printing.show_json([f.as_json() for f in findings])
        return
    headings = ("", "part", "finding", "can", "remedy")
    table = printing.table(*headings, title="What this machine can do")
    for finding in findings:
        mark = "[green]yes[/]" if finding.available else "[red]no[/]"
        said = (finding.name, finding.detail, ", ".join(sorted(finding.can)), finding.remedy or "")
        table.add_row(mark, *map(escape, said))
    printing.out.print(table)


def clean(json_: Json = False) -> None:
    """Remove what dead runs left behind (namespaces, mounts, processes), and only that."""
    from tare import leftovers  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    undone = leftovers.clean()
    if json_:
        printing.show_json(undone)
        return
    for what in undone:
        printing.show(what)
    things = "1 thing" if len(undone) == 1 else f"{len(undone)} things"
    printing.show(f"{things} removed" if undone else "nothing was left behind")


def schema() -> None:
    """Print the JSON Schema of an experiment file, for editors."""
    from tare import experiment  # noqa: PLC0415

    printing.show_json(experiment.json_schema())
