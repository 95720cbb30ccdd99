"""Holds predictions against what was measured after all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tare.analysis.sessions import Sessions
from tare.errors import UsageError
from tare.predict.calibration import Calibration, Known, Prediction
from tare.predict.ground import STATISTICS, Target, key_of
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


def measured_in(record: Record) -> Measured:
    """Everything that a result measured of responses."""
    sessions = Sessions(record)
    found: Measured = {}
    for cell in record.plan.cells:
        if cell.replica > 1:
            continue
        key = key_of(cell.levels.get("environment", "native"), cell.levels)
        for statistic in STATISTICS:
            if (level := sessions.level(cell.id, statistic)) is not None:
                found[key, statistic] = level
    return found


def check(predictions: Iterable[Prediction], truth: Record) -> list[Checked]:
    """Hold predictions against another result; those that it did not measure are left out.

    Raises:
        UsageError: it measured none of them.
    """
    if not truth.plan.workload.response_times:
        raise UsageError(f"{truth.folder} measured no responses", "give a request-reply result")
    measured = measured_in(truth)
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


def calibrate(targets: Iterable[Target], truth: Record) -> Calibration:
    """Make a calibration of all that was both predictable and measured."""
    measured = measured_in(truth)
    known = []
    for target in targets:
        found = {s: measured[target.key, s] for s in STATISTICS if (target.key, s) in measured}
        if len(found) == len(STATISTICS):
            known.append(Known(target, found))
    return Calibration(tuple(known))
