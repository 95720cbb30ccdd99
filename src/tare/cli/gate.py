"""A gate on the command line: its options, and how it ends."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from tare.command import shell_line
from tare.errors import Exit, TareError, UsageError

if TYPE_CHECKING:
    from tare.experiment import Experiment
    from tare.record import Record

FailOn = Annotated[
    str | None,
    typer.Option(
        metavar="slower",
        help="Make the run a gate that ends as soon as the answer is clear: exit with 1 if anything"
        " is slower than its baseline, with 0 once that is ruled out, with 5 if neither is shown.",
    ),
]
Margin = Annotated[
    str | None,
    typer.Option(help="The smallest slow-down that a gate has to catch, such as 2%."),
]
Significance = Annotated[
    str | None,
    typer.Option(help="How often a gate may fail although nothing is slower, such as 5%."),
]
Markdown = Annotated[
    Path | None,
    typer.Option("--markdown", help="Append a gate's summary, for a pull request, to this file."),
]


def declared(
    fail_on: str | None, margin: str | None, significance: str | None, summary: Path | None
) -> dict[str, str] | None:
    """The `gate` of an experiment file that is written anew; None without one.

    Raises:
        UsageError: what is a gate's alone was given without one.
    """
    if fail_on is not None:
        return {"fail_on": fail_on} | ({"significance": significance} if significance else {})
    if significance is not None or summary is not None or margin is not None:
        raise UsageError("--margin, --significance and --markdown are a gate's: add --fail-on")
    return None


def put_on(
    asked: Experiment, fail_on: str | None, margin: str | None, significance: str | None
) -> Experiment:
    """Put what the command line says of the gate over what the file says.

    Raises:
        UsageError: it is no gate's.
    """
    from tare.experiment import Gate  # noqa: PLC0415 - so that --help is fast
    from tare.units import fraction  # noqa: PLC0415

    if fail_on not in (None, "slower"):
        raise UsageError(f"--fail-on of a run takes slower, not {fail_on!r}")
    if fail_on is None and asked.gate is None:
        if margin is not None or significance is not None:
            raise UsageError("--margin and --significance are a gate's: add --fail-on slower")
        return asked
    said: dict[str, Any] = asked.gate.model_dump() if asked.gate else {}
    said |= {"fail_on": fail_on} if fail_on is not None else {}
    said |= {"significance": significance} if significance is not None else {}
    changed: dict[str, Any] = {} if margin is None else {"margin": margin}
    try:
        changed["gate"] = Gate.model_validate(said)
        fraction(changed.get("margin", asked.margin))
    except ValidationError as error:
        why = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"--significance: {why}") from error
    except UsageError as error:
        raise UsageError(f"--margin: {error.what}") from error
    return asked.model_copy(update=changed)


def noted(text: str, *rule: str | None) -> str:
    """An experiment file's text as it is kept: with what the command line made of it."""
    names = ("--fail-on", "--margin", "--significance")
    given = [(name, value) for name, value in zip(names, rule, strict=True) if value is not None]
    return f"# It was run with {shell_line(*chain(*given))}.\n{text}" if given else text


def end(record: Record, markdown: Path | None) -> Exit | None:
    """Append the summary, and give the exit code; None where the run was no gate.

    Raises:
        TareError: the summary cannot be written.
    """
    from tare import analysis  # noqa: PLC0415 - so that --help is fast
    from tare.report import gate  # noqa: PLC0415

    if record.plan.gate is None:
        return None
    found = analysis.analyse(record)
    if markdown is not None:
        try:
            with markdown.open("a", encoding="utf-8") as file:
                file.write(gate.markdown(found))
        except OSError as error:
            raise TareError(f"cannot write {markdown}: {error.strerror}") from error
    return gate.code(found)
