"""`tare doctor`, `clean`, `schema`: this machine and this installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape

from tare import rootless
from tare.cli import paths, printing
from tare.cli.arguments import Json

if TYPE_CHECKING:
    from tare.doctor import Finding


def doctor(json_: Json = False) -> None:
    """Tell what this machine can do, and for each "no" the reason and the remedy."""
    rootless.enter()
    from tare import doctor as examining  # noqa: PLC0415 - so that --help is fast
    from tare.environments import CAPABILITIES  # noqa: PLC0415

    findings = examining.examine(paths.build())
    if json_:
        printing.show_json([f.as_json() for f in findings])
        return
    headings = ("", "part", "finding", "remedy")
    table = printing.table(*headings, title="What this machine can do")
    for finding in findings:
        mark = "[green]yes[/]" if finding.available else "[red]no[/]"
        said = (finding.name, finding.detail, finding.remedy or "")
        table.add_row(mark, *map(escape, said))
    printing.out.print(table)
    able = printing.table("", *CAPABILITIES, title="What each environment can be asked for")
    for finding in findings:
        name = finding.name.removeprefix("environment ")
        if name != finding.name:
            able.add_row(name, *(_asked(finding, capability) for capability in CAPABILITIES))
    printing.out.print(able)


def _asked(finding: Finding, capability: str) -> str:
    if capability in finding.can:
        return "[green]yes[/]"
    reason = finding.cannot.get(capability, finding.detail)
    return f"[red]no[/]: {escape(reason)}"


def clean(json_: Json = False) -> None:
    """Remove what dead runs left behind (namespaces, mounts, processes), and only that."""
    rootless.enter()
    from tare import leftovers  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    require_root()
    undone = [*leftovers.clean(), *leftovers.clean_unlisted()]
    if json_:
        printing.show_json(undone)
        return
    for what in undone:
        printing.show(what)
    things = "1 thing" if len(undone) == 1 else f"{len(undone)} things"
    printing.show(f"{things} removed" if undone else "nothing was left behind")


def schema() -> None:
    """Print the JSON Schema of experiment files and suites, for editors."""
    from tare.schema import json_schema  # noqa: PLC0415

    printing.show_json(json_schema())
