"""Predicts what a response would take in an environment where it was never run.

From a result that holds native responses with their operations counted, and of each environment
the floor transport and the overhead vector (experiments/predict.yaml). `model.py` states the model,
`ground.py` reads what it starts from, `calibration.py` knows how far it has missed so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tare.predict.calibration import Calibration, Known, Prediction, shipped
from tare.predict.checking import Checked, calibrate, check, scores
from tare.predict.ground import STATISTICS, Refusal, Target, targets
from tare.record import Record

__all__ = [
    "predict",
    "Predicted",
    "Prediction",
    "Refusal",
    "check",
    "Checked",
    "scores",
    "calibrate",
    "Calibration",
    "Known",
    "shipped",
    "targets",
    "Target",
    "STATISTICS",
]


@dataclass(frozen=True)
class Predicted:
    """All that a result lets one predict."""

    predictions: tuple[Prediction, ...]
    refusals: tuple[Refusal, ...]


def predict(record: Record, calibration: Calibration, *, used: bool = True) -> Predicted:
    """Predict every response that was measured on the host, in every environment of a result.

    Args:
        record: a result as experiments/predict.yaml gives it.
        calibration: what the model is fitted on.
        used: whether what the calibration knows of the same environment may be used; without, each
            environment is predicted as if it had never been seen, however unlike the others it is,
            for checking.

    Raises:
        UsageError: the result is of another kind.
    """
    found, refused = targets(record)
    known: Mapping[str, Calibration] = (
        {}
        if used
        else {e: calibration.without(e) for e in dict.fromkeys(t.environment for t in found)}
    )
    answers = [
        known.get(target.environment, calibration).predict(
            target, statistic, however_unlike=not used
        )
        for target in found
        for statistic in STATISTICS
    ]
    return Predicted(
        tuple(a for a in answers if isinstance(a, Prediction)),
        (*refused, *_once(a for a in answers if isinstance(a, Refusal))),
    )


def _once(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Each refusal once, though every statistic is refused."""
    seen: dict[tuple[str, str, str], Refusal] = {}
    for refusal in refusals:
        seen.setdefault((refusal.environment, str(dict(refusal.levels)), refusal.why), refusal)
    return list(seen.values())
