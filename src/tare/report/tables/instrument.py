"""The instrument and the machine that it stood on."""

from __future__ import annotations

from tare.analysis import Analysis
from tare.analysis.beside_trials import LOAD, STOLEN, Spread, calibrated
from tare.analysis.beside_trials import machine as machine_beside
from tare.record import Trial
from tare.report import numbers, remarks
from tare.report.tables.table import DASH, Table
from tare.report.wording import Names

_CALIBRATED = {
    "read_ns": "reading the clock",
    "resolution_ns": "smallest step",
    "timer_late_ns": "timer late by",
    "null_response_ns": "answering itself",
    "floor_ns": "floor",
}


def calibration(analysis: Analysis, names: Names) -> Table | None:
    """What the instrument costs, on both sides of every environment."""
    places: dict[str, list[Trial]] = {}
    for trial in analysis.trials:
        heading = names.main(analysis.view(trial.cell).cell)[0]
        places.setdefault(heading, []).append(trial)
    rows = tuple(
        (heading, side, *(_spread(found.get(name)) for name in _CALIBRATED))
        for heading, trials in places.items()
        for side, found in calibrated(trials).items()
    )
    return Table.of(
        "The instrument, calibrated in every session: median [least, most]",
        (names.heading, "side", *_CALIBRATED.values()),
        rows,
        conditioned=False,
        note="Verdicts on differences, or margins, below the floor of the coarser end are refused.",
    )


def _spread(found: Spread | None) -> str:
    if found is None:
        return DASH
    return str(numbers.time(found.median, found.least, found.most, like=1.0))


def machine(analysis: Analysis) -> Table | None:
    """What the machine did beside the trials."""
    found = machine_beside(analysis.trials)
    if not found:
        return None
    rows = tuple((_called(name), *_values(name, one)) for name, one in found.items())
    trials = max(one.n for one in found.values())
    return Table(
        f"What else the machine did, over {numbers.count(trials)} trials",
        ("", "median", "95th percentile", "most"),
        rows,
        heads=1,
        conditioned=False,
        note=""
        if all(one.p95 is not None for one in found.values())
        else "A percentile that so few trials cannot tell from the most is left out.",
    )


def _called(name: str) -> str:
    if name == LOAD:
        return name
    return f"{name}, % of {'one processor' if name == STOLEN else 'the time'}"


def _values(name: str, one: Spread) -> tuple[str, ...]:
    scale = 1.0 if name == LOAD else 100.0
    return tuple(
        DASH if value is None else numbers.fixed(scale * value).bare
        for value in (one.median, one.p95, one.most)
    )


def failures(analysis: Analysis, names: Names) -> Table | None:
    """What failed, by reason."""
    rows = tuple(remarks.failures(analysis, names))
    return Table.of(
        "Failed trials: absent from every figure, never zero",
        ("cell", "blocks", "reason"),
        rows,
        heads=1,
        words=(2,),
        conditioned=False,
    )
