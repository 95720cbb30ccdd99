"""Holds predictions against what was measured after all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare import machine
from tare.analysis.sessions import Sessions
from tare.errors import UsageError
from tare.predict.calibration import Calibration, Known, Prediction
from tare.predict.ground import STATISTICS, key_of, targets
from tare.predict.model import log_additive
from tare.record import Record
from tare.stats.forecast import Score, score


@dataclass(frozen=True)
class Checked:
    """A prediction and what was measured."""

    prediction: Prediction
    measured_ns: float
    simple_ns: float
    """What the log-additive model would have said."""


Measured = dict[tuple[tuple[str, ...], str], float]
"""(environment and levels, statistic) -> geometric mean over sessions, ns."""


def measured_in(record: Record, start: Record) -> Measured:
    """Everything that a result measured of responses.

    Raises:
        UsageError: it is no result of responses on the machine of `start`, or one response is of
            several guests.
    """
    if not record.plan.workload.response_times:
        raise UsageError(f"{record.folder} measured no responses", "give a request-reply result")
    sessions = Sessions(record)
    _refuse_other_machine(sessions, Sessions(start), record, start)
    found: Measured = {}
    for cell in record.plan.cells:
        if cell.replica > 1:
            continue
        key = key_of(cell.levels.get("environment", "native"), cell.levels)
        for statistic in STATISTICS:
            if (level := sessions.level(cell.id, statistic)) is None:
                continue
            if (key, statistic) in found:
                raise UsageError(
                    f"{key[0]} in {record.folder} stands for guests that differ in their options",
                    "check against a result of one of them",
                )
            found[key, statistic] = level
    return found


def _refuse_other_machine(
    sessions: Sessions, started: Sessions, record: Record, start: Record
) -> None:
    """What was predicted for one machine, or under one accelerator, is not checked on another."""
    said = list(machine.another(start.fingerprint.whole, record.fingerprint.whole))
    ran = [
        {name for cell in of.plan.cells for name in of.accelerators(cell.id)}
        for of in (started, sessions)
    ]
    if all(ran) and ran[0] != ran[1]:
        said.append("what guests ran under")
    if said:
        raise UsageError(
            f"{start.folder} and {record.folder} come from different machines ({', '.join(said)})",
            "check a prediction on the machine that it is for",
        )


def check(predictions: Iterable[Prediction], start: Record, truth: Record) -> list[Checked]:
    """Hold predictions against another result; those that it did not measure are left out.

    Args:
        predictions: made from `start`.
        start: the result that they stand on.
        truth: of the same machine.

    Raises:
        UsageError: it measured none of them, or not on this machine.
    """
    measured = measured_in(truth, start)
    found = [
        Checked(p, there, log_additive(p.target.ground[p.statistic]))
        for p in predictions
        if (there := measured.get((p.target.key, p.statistic))) is not None
    ]
    if not found:
        raise UsageError(
            f"{truth.folder} measured none of the responses that were predicted",
            "run the same levels in both, as predict.yaml and prediction-check.yaml do",
        )
    return found


def scores(checked: Sequence[Checked]) -> tuple[Score, Score]:
    """How good the predictions were, and how good the log-additive model would have been."""
    measured = [c.measured_ns for c in checked]
    return (
        score(
            [c.prediction.value_ns for c in checked],
            measured,
            [(c.prediction.low_ns, c.prediction.high_ns) for c in checked],
        ),
        score([c.simple_ns for c in checked], measured),
    )


def calibrate(start: Record, truth: Record) -> Calibration:
    """Make a calibration of all that one result makes predictable and the other measured."""
    measured = measured_in(truth, start)
    known = []
    for target in targets(start)[0]:
        found = {s: measured[target.key, s] for s in STATISTICS if (target.key, s) in measured}
        if len(found) == len(STATISTICS):
            known.append(Known(target, found))
    return Calibration(tuple(known))
