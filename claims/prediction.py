"""B4: are responses foretold where only UDP and the overhead vector were measured?"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from claims import Claim, Result, Workshop
from claims.shipped import run_shipped
from tare import predict, transports
from tare.predict import Checked, Predicted
from tare.record import Record
from tare.stats.bounds import Kept
from tare.stats.forecast import Score

_MEDIAN_ERROR = 0.35
_WITHIN_TWO = 0.90
_COVERED = 0.85
_LEFT_OUT = ("container",)


def judge(start: Record, truth: Record) -> Result:
    """Hold predictions of a DDS's median against what was measured.

    Each environment is foretold by a model that has never seen it, in any placement.
    """
    foretold = predict.predict(start, predict.shipped(), used=False)
    chosen = [
        p
        for p in foretold.predictions
        if p.statistic == "p50"
        and transports.is_dds(p.target.levels.get("transport"))
        and p.target.environment not in _LEFT_OUT
    ]
    checked = predict.check(chosen, truth)
    ours, simple = predict.scores(checked)
    holds = (
        ours.median_error <= _MEDIAN_ERROR
        and ours.within_two >= _WITHIN_TWO
        and ours.covered is not None
        and ours.covered >= _COVERED
        and ours.median_error < simple.median_error
        and ours.within_two >= simple.within_two
    )
    figure = (
        f"median error {ours.median_error:.0%}, within a factor of 2 {ours.within_two:.0%},"
        f" 90 % intervals cover {ours.covered or 0.0:.0%} of {ours.n} DDS medians; log-additive:"
        f" {simple.median_error:.0%}, {simple.within_two:.0%}"
    )
    return Result(Kept.counted(holds), figure, _data(checked, foretold, ours, simple))


def _data(
    checked: list[Checked], foretold: Predicted, ours: Score, simple: Score
) -> dict[str, object]:
    return {
        "model": vars(ours),
        "log_additive": vars(simple),
        "refused": sorted({f"{r.environment}: {r.why}" for r in foretold.refusals}),
        "responses": {
            " ".join(c.prediction.target.key): {
                "predicted_ns": round(c.prediction.value_ns),
                "interval_ns": [round(c.prediction.low_ns), round(c.prediction.high_ns)],
                "measured_ns": round(c.measured_ns),
                "log_additive_ns": round(c.simple_ns),
            }
            for c in checked
        },
    }


def _check(workshop: Workshop) -> Result:
    with TemporaryDirectory(prefix="tare-claim-") as folder:
        start = run_shipped(workshop, "predict.yaml", Path(folder))
        truth = run_shipped(workshop, "prediction-check.yaml", Path(folder))
        return judge(Record(start.folder), Record(truth.folder))


CLAIMS = (
    Claim(
        "B4",
        "A DDS's median response is foretold in an environment where only UDP and the overhead"
        " vector were measured, by a model that never saw that environment (containers excluded).",
        "median error at most 35 %, 90 % within a factor of 2, 90 % prediction intervals cover at"
        " least 85 %, better than the log-additive model",
        _check,
        experiments=("predict.yaml", "prediction-check.yaml"),
    ),
)
