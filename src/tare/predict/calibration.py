"""What predictions have been held against: responses that were both predictable and measured.

The calibration that ships (`calibration.json`) is written by `tare predict --check ... --record`.
It holds the ground of each prediction and what was measured, so that the model is fitted anew
wherever it is used, and any environment can be left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tare import lines
from tare.errors import TareError, UsageError
from tare.predict.ground import Refusal, Target
from tare.predict.model import KINDS, Ground, fit, terms
from tare.stats.forecast import prediction_factor

CONFIDENCE = 0.90
_FAR = 2.0
"""A cost or a floor that is this many times beyond all that were calibrated on is refused."""
_ALIKE = 1.25
"""An environment whose costs all lie within this factor of the host's is the host, to the model."""
_FEWEST = 2


@dataclass(frozen=True)
class Known:
    """A response that was both predictable and measured."""

    target: Target
    measured_ns: Mapping[str, float]
    """Statistic -> what was measured."""


@dataclass(frozen=True)
class Prediction:
    """A predicted response."""

    target: Target
    statistic: str
    value_ns: float
    low_ns: float
    high_ns: float
    confidence: float
    parts_ns: Mapping[str, float]
    """Where the value comes from; they add up to it."""


@dataclass(frozen=True)
class Calibration:
    """Known responses, and what follows from them."""

    known: tuple[Known, ...]

    def without(self, environment: str) -> Calibration:
        """The same as if an environment had never been measured."""
        return Calibration(tuple(k for k in self.known if k.target.environment != environment))

    def predict(
        self, target: Target, statistic: str, *, however_unlike: bool = False
    ) -> Prediction | Refusal:
        """Predict a response, or say why not.

        Args:
            target: the response.
            statistic: one of those that were calibrated.
            however_unlike: predict it in an environment unlike all that are known, too.
        """
        refused = self._refusal(target, statistic, however_unlike=however_unlike)
        if refused is not None:
            return refused
        weights, factor = self._fitted[statistic]
        priced = terms(target.ground[statistic])
        value = priced.total(weights)
        parts = {"floor": priced.floor}
        parts |= {k: w * x for k, w, x in zip(KINDS, weights, priced.weighted, strict=True)}
        return Prediction(
            target, statistic, value, value / factor, value * factor, CONFIDENCE, parts
        )

    @cached_property
    def environments(self) -> tuple[str, ...]:
        """Those that are known, each once."""
        return tuple(dict.fromkeys(known.target.environment for known in self.known))

    @cached_property
    def _fitted(self) -> dict[str, tuple[tuple[float, ...], float]]:
        """Statistic -> weights, and the factor by which a prediction may miss."""
        found = {}
        for statistic in dict.fromkeys(s for known in self.known for s in known.measured_ns):
            missed: list[float] = []
            for environment in self.environments:
                rest = [k for k in self.known if k.target.environment != environment]
                weights = _weights(rest, statistic)
                missed += [
                    math.log(
                        k.measured_ns[statistic] / terms(k.target.ground[statistic]).total(weights)
                    )
                    for k in self.known
                    if k.target.environment == environment
                ]
            factor = prediction_factor(missed, len(self.environments), CONFIDENCE)
            found[statistic] = (_weights(self.known, statistic), factor)
        return found

    def _refusal(self, target: Target, statistic: str, *, however_unlike: bool) -> Refusal | None:
        def refuse(why: str, remedy: str) -> Refusal:
            return Refusal(target.environment, target.levels, why, remedy)

        if len(self.environments) < _FEWEST:
            return refuse(
                f"the calibration knows {len(self.environments)} environments, and an interval"
                f" needs {_FEWEST}",
                "calibrate on more: tare predict RESULT --check MEASURED --record",
            )
        ratios = _ratios(target.ground[statistic])
        if all(1.0 / _ALIKE <= ratio <= _ALIKE for ratio in ratios.values()):
            return refuse(
                "everything costs there what it costs on the host",
                "take what was measured on the host",
            )
        for name, ratio in ratios.items() if not however_unlike else ():
            known = [_ratios(k.target.ground[statistic])[name] for k in self.known]
            low, high = min(known) / _FAR, max(known) * _FAR
            if not low <= ratio <= high:
                return refuse(
                    f"{name} costs {ratio:.3g} times as much there as on the host, and the model"
                    f" was calibrated from {low * _FAR:.3g} to {high / _FAR:.3g}",
                    "measure it there instead",
                )
        return None

    def to_json(self) -> str:
        """Write down, for `from_json`."""
        rows = TypeAdapter(tuple[Known, ...]).dump_python(self.known, mode="json")
        return json.dumps({"schema_version": 1, "known": rows}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str | bytes, name: str) -> Calibration:
        """Read what `to_json` wrote.

        Raises:
            UsageError: it is no calibration.
        """
        try:
            rows = json.loads(text)["known"]
            return Calibration(TypeAdapter(tuple[Known, ...]).validate_python(rows))
        except (ValueError, KeyError, TypeError, RecursionError, ValidationError) as error:
            raise UsageError(
                f"{name} is not a calibration: {str(error).splitlines()[0]}",
                "write it again: tare predict RESULT --check MEASURED --record",
            ) from error


def _weights(known: Sequence[Known], statistic: str) -> tuple[float, ...]:
    return fit(
        [terms(k.target.ground[statistic]) for k in known],
        [k.measured_ns[statistic] for k in known],
    )


def _ratios(ground: Ground) -> dict[str, float]:
    """How many times as much things cost there."""
    costs = {
        f"unit cost of {kind}": ground.costs_there_ns[kind] / ground.costs_here_ns[kind]
        for kind in KINDS
    }
    return costs | {"UDP": ground.floor_there_ns / ground.floor_here_ns}


def path() -> Path:
    """Where the calibration that ships lies."""
    return Path(str(resources.files("tare.predict").joinpath("calibration.json")))


def keep(calibration: Calibration) -> None:
    """Make a calibration the one that ships, whole or not at all.

    Raises:
        UsageError: it knows too few environments to predict anything.
        TareError: it cannot be written.
    """
    if (known := len(calibration.environments)) < _FEWEST:
        raise UsageError(
            f"these results make a calibration of {known} environments, and one that predicts"
            f" anything needs {_FEWEST}: the one that ships stays as it is",
            "run predict.yaml and prediction-check.yaml with the same levels in more environments",
        )
    try:
        lines.put(path(), calibration.to_json().encode())
    except OSError as error:
        raise TareError(
            f"cannot keep the calibration in {path()}: {error.strerror}",
            "make room there, or make it writable, and repeat the command",
        ) from error


def shipped() -> Calibration:
    """The calibration that ships.

    Raises:
        UsageError: it is missing or damaged.
    """
    try:
        return Calibration.from_json(path().read_bytes(), str(path()))
    except OSError as error:
        raise UsageError(
            f"cannot read the calibration {path()}: {error.strerror}",
            "write it: tare predict RESULT --check MEASURED --record",
        ) from error
