"""Bencher's metric JSON, as `bencher run --adapter json` takes it: a value with its bounds."""

from __future__ import annotations

import re

from tare import units
from tare.errors import UsageError
from tare.foreign import Format, json_text
from tare.outcome import Outcome
from tare.stats import Estimate


def _write(told: Outcome) -> str:
    measures: dict[str, str] = {}
    for name, statistic in told.statistics.items():
        measure = _slug(name + units.COLUMNS[statistic.unit])
        if measure in measures.values():
            raise UsageError(
                f"{name} and another statistic would both be Bencher's measure {measure}",
                "add --statistic with one of them",
            )
        measures[name] = measure
    return json_text(
        {
            cell.name: {measures[name]: _metric(found) for name, found in cell.estimates.items()}
            for cell in told.cells
        }
    )


def _slug(name: str) -> str:
    """A measure is named by small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _metric(estimate: Estimate) -> dict[str, float | None]:
    ends = {"lower_value": estimate.low, "upper_value": estimate.high}
    return {"value": estimate.value, **{k: end for k, end in ends.items() if end is not None}}


FORMAT = Format("bencher", _write)
