"""`tare claim list`, `table`, `check`: what CLAIMS.md promises."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from tare.cli import places, printing
from tare.cli.arguments import FLAG, Json
from tare.errors import Exit


def list_(json_: Json = False) -> None:
    """List the claims that can be checked, and what would satisfy each."""
    from tare import claims  # noqa: PLC0415 - so that --help is fast

    found = claims.every()
    if json_:
        printing.show_json(
            [{"id": c.id, "sentence": c.sentence, "wanted": c.wanted} for c in found]
        )
        return
    table = printing.table("id", "claim", "wanted")
    for claim in found:
        printing.add_row(table, (claim.id, claim.sentence, claim.wanted))
    printing.out.print(table)


def table(
    write: Annotated[
        bool, typer.Option("--write", metavar=FLAG, help="Draw it into CLAIMS.md.")
    ] = False,
) -> None:
    """Print the claims with their last results, as CLAIMS.md shows them."""
    from tare import claims  # noqa: PLC0415
    from tare.claims import ledger  # noqa: PLC0415

    if write:
        ledger.write(places.home(), claims.every())
    sys.stdout.write(ledger.table(places.home(), claims.every()) + "\n")


def check(
    claim_id: Annotated[str, typer.Argument(metavar="ID", help="Such as A1.")],
    record: Annotated[
        bool,
        typer.Option(
            "--record", metavar=FLAG, help="Keep the result in claims/ID.json and CLAIMS.md."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Run the experiment behind a claim; exits with 0 only if the claim holds."""
    from tare import claims, leftovers, machine  # noqa: PLC0415
    from tare.claims import ledger  # noqa: PLC0415
    from tare.doctor import require_root  # noqa: PLC0415

    claim = claims.by_id(claim_id)
    require_root()
    programs = places.programs()
    leftovers.clean()
    said = escape(f"{claim.id}: {claim.sentence}")
    with printing.err.status(said) as status:
        workshop = claims.Workshop(places.home(), programs, places.cache(), status.update)
        result = claim.check(workshop)
    if record:
        ledger.keep(places.home(), claim, result, machine.commit())
        ledger.write(places.home(), claims.every())
    if json_:
        printing.show_json({"id": claim.id, **result.as_json()})
    else:
        mark = "[green]holds[/]" if result.holds else "[red]does not hold[/]"
        line = f"{claim.id} {mark}: {escape(result.figure)}"
        printing.out.print(line, highlight=False, soft_wrap=True)
    if not result.holds:
        raise typer.Exit(Exit.FAILED)
