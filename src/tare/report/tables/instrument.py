"""The instrument and the machine that it stood on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tare.analysis import Analysis
from tare.report import numbers
from tare.report.tables.table import Table
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
    found: dict[tuple[str, str], list[Mapping[str, float]]] = {}
    for trial in analysis.trials:
        heading = names.main(analysis.view(trial.cell).cell)[0]
        for side in ("client", "inside"):
            if side in trial.calibration:
                measured = {**trial.calibration[side], "floor_ns": trial.calibration["floor_ns"]}
                found.setdefault((heading, side), []).append(measured)
    if not found:
        return None
    return Table(
        "The instrument, calibrated in every session: median [least, most]",
        (names.heading, "side", *_CALIBRATED.values()),
        tuple(
            (*place, *(_spread([entry[key] for entry in entries]) for key in _CALIBRATED))
            for place, entries in found.items()
        ),
        conditioned=False,
        note="Verdicts on differences, or margins, below the floor of the coarser end are refused.",
    )


def _spread(values: Sequence[float]) -> str:
    return str(numbers.time(median(values), min(values), max(values)))


def machine(analysis: Analysis) -> Table | None:
    """What the machine did beside the trials."""
    states = [trial.machine for trial in analysis.trials if trial.machine.get("seconds")]
    if not states:
        return None
    columns = {
        "load average over 1 min": [state.get("load_1min") for state in states],
        "time stolen by the hypervisor below, % of one processor": [
            _share(state.get("steal_ns"), 1e9 * state["seconds"]) for state in states
        ],
        **{
            f"time in which some task waited for {what}, %": [
                _share((state.get("pressure_us") or {}).get(what), 1e6 * state["seconds"])
                for state in states
            ]
            for what in ("cpu", "memory", "io")
        },
    }
    rows = []
    for name, column in columns.items():
        known = sorted(value for value in column if value is not None)
        if known:
            shown = (median(known), known[int(0.95 * (len(known) - 1))], known[-1])
            rows.append((name, *(numbers.fixed(value).bare for value in shown)))
    if not rows:
        return None
    return Table(
        f"What else the machine did, over {numbers.count(len(states))} trials",
        ("", "median", "95th percentile", "most"),
        tuple(rows),
        heads=1,
        conditioned=False,
    )


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or whole <= 0 else 100.0 * part / whole
