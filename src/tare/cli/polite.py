"""`--polite` of the commands that measure: bounds that the command line puts on an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.arguments import FLAG
from tare.command import shell_line
from tare.errors import UsageError

if TYPE_CHECKING:
    from tare.experiment import Experiment

HELP = (
    "Disturb nobody: run in a control group of its own, behind everything else, with at most half"
    " of the processors and of the memory; refuse whatever would change more of the machine."
)
SHARE_HELP = "With --polite: the share of processors and of memory, such as 25%."
Polite = Annotated[bool, typer.Option("--polite", metavar=FLAG, help=HELP)]
Share = Annotated[str | None, typer.Option("--share", help=SHARE_HELP)]


def declared(share: str | None, *, polite: bool) -> dict[str, str] | None:
    """The `polite` of an experiment file; None without.

    Raises:
        UsageError: a share was given without it, or is none.
    """
    if not polite:
        if share is not None:
            raise UsageError("--share is the share that --polite leaves: add --polite")
        return None
    return {} if share is None else {"processors": share, "memory": share}


def put_on(asked: Experiment, share: str | None, *, polite: bool) -> Experiment:
    """Put what the command line says of bounds over what the file says.

    Raises:
        UsageError: the share is none.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - so that --help is fast

    from tare.experiment import Polite as Bounded  # noqa: PLC0415

    said = declared(share, polite=polite)
    if said is None:
        return asked
    try:
        return asked.model_copy(update={"polite": Bounded.model_validate(said)})
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--share: {why}") from error


def noted(text: str, share: str | None, *, polite: bool) -> str:
    """An experiment file's text as it is kept: with what the command line made of it."""
    said = "--polite" if share is None else shell_line("--polite", "--share", share)
    return f"# It was run with {said}.\n{text}" if polite else text


def without_priority(asked: Experiment) -> Experiment:
    """Have no real-time priority by default where there are bounds, which could not hold it."""
    if asked.bounds is None or "scheduling" in asked.factors:
        return asked
    from tare import workloads  # noqa: PLC0415 - so that --help is fast

    if "scheduling" not in workloads.made(dict(asked)).levels.rows:
        return asked
    factors = {**asked.factors, "scheduling": ("other",)}
    return asked.model_copy(update={"factors": factors})
