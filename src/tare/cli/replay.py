"""`tare replay`: the papers' figures and tables, made on this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tare import rootless, units
from tare.cli import completing, paths, printing, run
from tare.cli import polite as bounded
from tare.cli.arguments import FLAG, Json, Out
from tare.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tare.published import Paper


def replay(
    papers: Annotated[
        list[str] | None,
        typer.Argument(
            help="Papers, by letter or name; all if absent.", autocompletion=completing.papers
        ),
    ] = None,
    out: Out = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar=FLAG, help="Print what would be asked, and how long it takes."
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Fit all into this time, such as 30m; says what was cut or left out."),
    ] = None,
    polite: bounded.Polite = False,
    share: bounded.Share = None,
    json_: Json = False,
) -> None:
    """Replay the papers: does what they say hold on this machine?

    Every claim that they make of a figure or a table is asked by an experiment and judged by whole
    intervals: it holds here, does not, is inconclusive, or cannot be asked here, and why. One page
    has all verdicts, with what was published, what was found and the way to its data.

    A replay that was stopped is resumed by [bold]tare run --resume FOLDER[/bold]; [bold]tare report
    FOLDER[/bold] draws its page again.
    """
    rootless.enter()
    from tare import replay as replaying  # noqa: PLC0415 - so that --help is fast

    chosen = replaying.named(papers or ())
    suite, files = replaying.suite(chosen, paths.home() / "experiments")
    put_on = partial(bounded.put_on, share=share, polite=polite)
    plans, absent = run.lay_out_parts(files, None, must_run=not dry_run, put_on=put_on)
    if budget is not None:
        plans = _fitted(plans, units.seconds(budget))
    if dry_run:
        _show(chosen, plans, absent, as_json=json_)
        return
    name = chosen[0].name if len(chosen) == 1 else "papers"
    note = partial(bounded.noted, share=share, polite=polite)
    folder, programs = run.begin(out, f"replay-{name}", plans, suite, absent, note)
    run.carry_out(folder, programs, as_json=json_, profile=False, markdown=None)


def _fitted(plans: dict[str, run.Planned], budget_s: float) -> dict[str, run.Planned]:
    """Fit what can be into a time; the longest parts are left out until the others have room.

    Args:
        plans: all that could run here.
        budget_s: for all together.

    Raises:
        UsageError: not even one has room.
    """
    while True:
        try:
            return run.fitted(plans, budget_s)
        except UsageError as error:
            if len(plans) == 1:
                raise UsageError(f"{', '.join(plans)}: {error.what}", error.remedy) from error
        longest = max(plans, key=lambda name: plans[name].plan.seconds())
        takes = units.minutes(plans[longest].plan.seconds())
        printing.say(f"[yellow]without {longest}:[/]", f"it takes {takes}, more than there is")
        plans = {name: part for name, part in plans.items() if name != longest}


def _show(
    chosen: Sequence[Paper],
    plans: Mapping[str, run.Planned],
    absent: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    """Print what would be asked, claim by claim, and how long it takes."""
    if as_json:
        run.show_plans(plans, as_json=True)
        return
    for paper in chosen:
        printing.heading(f"{paper.paper}  {paper.title}")
        for claim in paper.claims:
            why = claim.not_asked or absent.get(claim.part, "")
            how = f"by {claim.part}" if claim.part in plans else "there is no time to ask it"
            how = f"cannot be asked here: {why}" if why else how
            printing.show(f"{claim.where}: {claim.says} ({how})")
    printing.show("")
    for name, part in plans.items():
        cut = "".join(f"; {cut}" for cut in part.plan.cuts)
        printing.show(f"{name}: about {run.takes(part)}{cut}")
    run.show_whole(plans)
