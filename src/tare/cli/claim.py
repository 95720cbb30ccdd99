"""`tare claim list`, `table`, `check`: what CLAIMS.md promises."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.markup import escape

from tare.cli import paths, printing
from tare.cli.arguments import FLAG, Json
from tare.cli.plan import ready
from tare.errors import Exit, TareError, UnavailableError, UsageError

_KEPT = Path("results/claims")
"""Where what was measured is kept, so that blocks can be added to it."""


def list_(json_: Json = False) -> None:
    """List the claims that can be checked, and what would satisfy each."""
    _reach_claims()
    import claims  # noqa: PLC0415 - so that --help is fast

    found = claims.every()
    if json_:
        told = ("id", "sentence", "wanted", "experiments")
        printing.show_json([{name: getattr(c, name) for name in told} for c in found])
        return
    rows = [(c.id, c.sentence, c.wanted) for c in found]
    printing.out.print(printing.table("id", "claim", "wanted", rows=rows))


def table(
    write: Annotated[
        bool, typer.Option("--write", metavar=FLAG, help="Draw it into CLAIMS.md.")
    ] = False,
) -> None:
    """Print the claims with their last results, as CLAIMS.md shows them."""
    _reach_claims()
    import claims  # noqa: PLC0415
    from claims import ledger  # noqa: PLC0415

    if write:
        ledger.write(paths.home(), claims.every())
    sys.stdout.write(ledger.table(paths.home(), claims.every()) + "\n")


def check(
    claim_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Such as A1; all if absent.")
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", metavar=FLAG, help="Keep each result in claims/ID.json and CLAIMS.md."
        ),
    ] = False,
    pending: Annotated[
        bool,
        typer.Option(
            "--pending",
            metavar=FLAG,
            help="Only those of them without a current result; CLAIMS.md says why.",
        ),
    ] = False,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            metavar=FLAG,
            help="Add blocks while the interval straddles the bound; kept in results/claims/ID.",
        ),
    ] = False,
    at_most: Annotated[
        str | None,
        typer.Option(
            help="With --until-decided: blocks of an experiment (four times its least if absent),"
            " or a time such as 2h."
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Run the experiments behind claims; exits with 0 only if all of them hold.

    Claims that rest on the same experiment share its run. Where none fails, but one is
    inconclusive, it exits with 5.
    """
    _reach_claims()
    import claims  # noqa: PLC0415
    from claims import ledger, looks  # noqa: PLC0415
    from claims.subjects import digests  # noqa: PLC0415
    from tare import machine  # noqa: PLC0415
    from tare.stats.bounds import Kept, all_kept  # noqa: PLC0415

    asked = [claims.by_id(name) for name in claim_ids] if claim_ids else claims.every()
    if pending:
        asked = [claim for claim in asked if ledger.pending(paths.home(), claim)]
    if at_most is not None and not until_decided:
        raise UsageError("--at-most bounds what --until-decided adds; give both")
    most = looks.Most.of(at_most) if until_decided else None
    programs = ready()
    # Now: a check takes long enough for the next commit.
    commit = machine.commit()
    made_by = {c.id: digests(paths.home(), ledger.subjects(c)) for c in asked}
    found: dict[str, claims.Result] = {}
    failed: list[str] = []
    with (
        standing() as tell,
        TemporaryDirectory(prefix="tare-claims-") as scratch,
    ):
        workshop = claims.Workshop(paths.home(), programs, paths.cache(), Path(scratch), tell)
        for claim in asked:
            tell(f"{claim.id}: {claim.sentence}")
            try:
                result = (
                    claim.check(workshop)
                    if most is None
                    else looks.decide(claim, workshop, most, _KEPT / claim.id)
                )
            except TareError as error:  # the others can be checked all the same
                failed.append(claim.id)
                printing.say("[red]not checked:[/]", claim.id)
                printing.show_error(error)
                continue
            found[claim.id] = result
            if record:
                ledger.keep(paths.home(), claim, result, commit, made_by[claim.id])
                ledger.write(paths.home(), claims.every())
            if not json_:
                colour = {"holds": "green", "inconclusive": "yellow"}.get(result.verdict, "red")
                mark = f"[{colour}]{result.verdict}[/]"
                line = f"{claim.id} {mark}: {escape(result.figure)}"
                printing.out.print(line, highlight=False, soft_wrap=True)
    if json_:
        printing.show_json([{"id": name, **result.as_json()} for name, result in found.items()])
    verdict = all_kept(result.verdict for result in found.values())
    if failed or verdict is Kept.FAILS:
        raise typer.Exit(Exit.FAILED)
    if verdict is Kept.INCONCLUSIVE:
        raise typer.Exit(Exit.INCONCLUSIVE)


def _reach_claims() -> None:
    """Let the claims be imported, which lie in the checkout beside their results.

    Raises:
        UnavailableError: this is no checkout.
    """
    home = paths.home()
    if not (home / "claims" / "__init__.py").is_file():
        raise UnavailableError(
            f"claims are checked in a checkout of Tare, and {home} is none",
            "clone the repository, run `make build`, and use its .venv/bin/tare",
        )
    if str(home) not in sys.path:
        sys.path.insert(0, str(home))


@contextmanager
def standing() -> Iterator[Callable[[str], None]]:
    """Shows what is being done; where no terminal does, a line now and then."""
    if not printing.err.is_terminal:
        yield _LinePerMinute()
        return
    with printing.err.status("") as status:
        yield lambda words: status.update(escape(words))


class _LinePerMinute:
    """One line a minute, for a log."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, words: str) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 60
            printing.say("", words)
