"""B4: are responses predicted where only UDP and the overhead vector were measured?"""

from __future__ import annotations

from statistics import median

from claims.checking import Found, Workshop
from claims.experiments import run_shipped
from tare import predict, transports
from tare.predict import Refusal, Target
from tare.record import Record
from tare.stats.bounds import Kept, all_kept

_GROUND, _CHECK = "predict.yaml", "prediction-check.yaml"
_MEDIAN_ERROR = 0.35
_WITHIN_TWO = 0.90
_COVERED = 0.85
_LEFT_OUT = ("container",)


def predicted(workshop: Workshop) -> Found:
    """Measure what a prediction starts from, and what it predicts."""
    ground, truth = (run_shipped(workshop, name).record for name in (_GROUND, _CHECK))
    return compared(ground, truth)


def compared(start: Record, truth: Record) -> Found:
    """Hold predictions of a DDS's median against what was measured.

    Each environment is predicted by a model that has never seen it, in any placement.
    """
    made = predict.predict(start, predict.shipped(), used=False)
    chosen = [p for p in made.predictions if p.statistic == "p50" and _judged(p.target)]
    missing = [f"{r.environment}: {r.why}" for r in made.refusals if _judged(r)]
    checked = predict.check(chosen, start, truth)
    ours, simple = predict.scores(checked)
    holds = (
        ours.median_error <= _MEDIAN_ERROR
        and ours.within_two >= _WITHIN_TWO
        and ours.covered is not None
        and ours.covered >= _COVERED
        and ours.median_error < simple.median_error
        and ours.within_two >= simple.within_two
    )
    # What was not predicted, or not measured, can break nothing and keeps nothing.
    whole = not missing and len(checked) == len(chosen)
    wide = median(c.prediction.high_ns / c.prediction.low_ns for c in checked)
    figure = (
        f"median error {ours.median_error:.0%}, within a factor of 2 {ours.within_two:.0%},"
        f" 90 % intervals cover {ours.covered or 0.0:.0%} of {ours.n} DDS medians; log-additive:"
        f" {simple.median_error:.0%}, {simple.within_two:.0%}; half of the intervals reach over a"
        f" factor of {wide:.3g} or more"
    )
    if not whole:
        figure += f"; not predicted {len(missing)}, not measured {len(chosen) - len(checked)}"
    data = {
        "model": vars(ours),
        "log_additive": vars(simple),
        "refused": sorted({f"{r.environment}: {r.why}" for r in made.refusals}),
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
    found = [Kept.counted(holds)] if whole else [Kept.counted(holds), Kept.INCONCLUSIVE]
    return Found(figure, data, counted=all_kept(found))


def _judged(response: Target | Refusal) -> bool:
    return response.environment not in _LEFT_OUT and transports.is_dds(
        response.levels.get("transport")
    )
