"""`tare predict`: what responses would take where they were never run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli import printing
from tare.cli.arguments import FLAG, Json, Result
from tare.errors import Exit, UsageError

if TYPE_CHECKING:
    from tare.predict import Checked, Predicted, Prediction


def predict(
    result: Result,
    environment: Annotated[
        str | None, typer.Option(help="Only this one, such as qemu; all if absent.")
    ] = None,
    statistic: Annotated[str, typer.Option(help="p50 or mean.")] = "p50",
    check: Annotated[
        Path | None,
        typer.Option(
            help="A result that measured the same responses: predict each environment as if the"
            " model had never seen it, and show how far that misses."
        ),
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", metavar=FLAG, help="With --check: keep both as the model's calibration."
        ),
    ] = False,
    json_: Json = False,
) -> None:
    """Predict responses in environments where UDP and the overhead vector alone were measured.

    RESULT is that of experiments/predict.yaml, or of an experiment like it: every transport on the
    host, UDP in each environment, and `causes`. Where that is too little, it says so.
    """
    from tare import predict as predicting  # noqa: PLC0415 - so that --help is fast
    from tare.predict import calibration  # noqa: PLC0415
    from tare.record import Record  # noqa: PLC0415

    if statistic not in predicting.STATISTICS:
        known = " or ".join(predicting.STATISTICS)
        raise UsageError(f"{statistic!r} cannot be predicted", f"choose {known}")
    if record and check is None:
        raise UsageError("--record needs --check: a calibration holds what was measured too")
    start = Record(result)
    truth = None if check is None else Record(check)
    made = predicting.calibrate(start, truth) if record and truth else None
    found = predicting.predict(start, made or predicting.shipped(), used=truth is None)
    chosen = [
        p
        for p in found.predictions
        if p.statistic == statistic and environment in (None, p.target.environment)
    ]
    checked = predicting.check(chosen, start, truth) if truth and chosen else []
    if made is not None:
        # Last of all that can fail: what ships is replaced by what was seen to work.
        calibration.keep(made)
        printing.say("", f"{len(made.known)} responses kept in {calibration.path()}")
    if checked:
        _show_checked(checked, as_json=json_)
    elif json_:
        printing.show_json([_as_json(p) for p in chosen])
    elif chosen:
        _show(chosen)
    refused = _show_refusals(found, environment)
    if not chosen:
        if not refused:
            where = "" if environment is None else f" in {environment}"
            printing.say("[yellow]not predicted:[/]", f"{result} has no response to predict{where}")
            printing.say("  [dim]→[/]", "measure it: tare run predict")
        raise typer.Exit(Exit.FAILED)


def _show(predictions: list[Prediction]) -> None:
    from tare.report import numbers  # noqa: PLC0415

    rows = []
    for p in predictions:
        value = numbers.time(p.value_ns, p.low_ns, p.high_ns)
        shares = {name: part / p.value_ns for name, part in p.parts_ns.items()}
        parts = ", ".join(f"{name} {s:.0%}" for name, s in shares.items() if s >= _WORTH_NAMING)
        rows.append((p.target.environment, _levels(p.target.levels), str(value), parts))
    headings = ("environment", "response", "predicted [90 %]", "of it, by cause")
    printing.out.print(printing.table(*headings, rows=rows))


def _show_checked(checked: list[Checked], *, as_json: bool) -> None:
    from tare import predict as predicting  # noqa: PLC0415
    from tare.report import numbers  # noqa: PLC0415

    ours, simple = predicting.scores(checked)
    if as_json:
        every = [
            {**_as_json(c.prediction), "measured_ns": c.measured_ns, "simple_ns": c.simple_ns}
            for c in checked
        ]
        printing.show_json({"rows": every, "model": vars(ours), "log_additive": vars(simple)})
        return
    rows = [
        (
            p.target.environment,
            _levels(p.target.levels),
            str(numbers.time(p.value_ns, p.low_ns, p.high_ns)),
            numbers.time(c.measured_ns).bare,
            numbers.ratio(p.value_ns / c.measured_ns).bare,
            numbers.ratio(c.simple_ns / c.measured_ns).bare,
        )
        for c in checked
        for p in (c.prediction,)
    ]
    headings = ("environment", "response", "predicted [90 %]", "measured", "over measured")
    printing.out.print(printing.table(*headings, "log-additive", rows=rows))
    for name, found in (("this model", ours), ("the log-additive model", simple)):
        covered = "" if found.covered is None else f", intervals cover {found.covered:.0%}"
        printing.show(
            f"{name}: median error {found.median_error:.0%}, within a factor of 2"
            f" {found.within_two:.0%}{covered} ({found.n} responses)"
        )


def _show_refusals(found: Predicted, environment: str | None) -> bool:
    """Show why what was asked for was not predicted; tell whether there was any of it."""
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for refusal in found.refusals:
        if environment in (None, refusal.environment):
            key = (refusal.environment, refusal.why, refusal.remedy)
            grouped.setdefault(key, []).append(_levels(refusal.levels))
    for (where, why, remedy), responses in grouped.items():
        printing.say("[yellow]not predicted:[/]", f"{where}: {why} ({'; '.join(responses)})")
        printing.say("  [dim]→[/]", remedy)
    return bool(grouped)


_WORTH_NAMING = 0.01
_TOLD = ("transport", "reception", "payload", "placement")


def _levels(levels: Mapping[str, str]) -> str:
    return ", ".join(levels[name] for name in _TOLD if name in levels)


def _as_json(p: Prediction) -> dict[str, object]:
    return {
        "environment": p.target.environment,
        "levels": dict(p.target.levels),
        "statistic": p.statistic,
        "predicted_ns": p.value_ns,
        "low_ns": p.low_ns,
        "high_ns": p.high_ns,
        "confidence": p.confidence,
        "parts_ns": dict(p.parts_ns),
    }
