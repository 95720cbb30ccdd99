"""OpenMetrics text, which Prometheus and its kin read: gauges of a run that is over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC

from tare.foreign import Format
from tare.outcome import CellOutcome, Outcome
from tare.workloads import Unit

_UNITS: Mapping[Unit, tuple[str, float]] = {
    "ns": ("seconds", 1e9),
    "B": ("bytes", 1.0),
    "B/s": ("bytes_per_second", 1.0),
    "1/s": ("per_second", 1.0),
    "1": ("", 1.0),
}
"""Unit -> the base unit, and how many of ours it is."""
_PARTS = {
    "value": "geometric mean over blocks",
    "low": "lower end of its 95 % interval",
    "high": "upper end of its 95 % interval",
}


class _Families:
    """Metrics by name: statistics whose names differ in a sign alone share one, or none is valid.

    Their samples still differ by the label `statistic`.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, words: list[str], unit: str, help_: str, samples: Iterator[str]) -> None:
        """Add what one metric was; each sample is what stands behind its name."""
        name = _name("_".join(filter(None, ["tare", *words, unit])))
        head = [f"# TYPE {name} gauge"]
        head += [f"# UNIT {name} {unit}"] if unit else []
        head += [f"# HELP {name} {_escaped(help_)}"]
        lines = [f"{name}{sample}" for sample in samples]
        if lines:
            self._lines.setdefault(name, head).extend(lines)

    def text(self) -> str:
        """All of them."""
        lines = [line for family in self._lines.values() for line in family]
        return "\n".join([*lines, "# EOF", ""])


def _write(told: Outcome) -> str:
    run = {
        "run": told.run.id,
        "run_title": told.run.title,
        "run_machine": told.run.machine,
        "run_commit": told.run.commit or "",
    }
    families = _Families()
    began = _sample(run, told.run.began.replace(tzinfo=UTC).timestamp())
    families.add(["run_start_time"], "seconds", "When its first trial began", iter([began]))
    for name, statistic in told.statistics.items():
        unit, divisor = _UNITS[statistic.unit]
        for part, words in _PARTS.items():
            found = (
                (cell, getattr(cell.estimates[name], part))
                for cell in told.cells
                if name in cell.estimates
            )
            samples = (
                _sample(_labels(run, cell, name), value / divisor)
                for cell, value in found
                if value is not None
            )
            names = [name] if part == "value" else [name, part]
            families.add(names, unit, f"{statistic.help}: {words}", samples)
    return families.text()


def _labels(run: dict[str, str], cell: CellOutcome, statistic: str) -> dict[str, str]:
    labels = run | {"cell": cell.name, "statistic": statistic}
    for name, text in cell.levels.items():
        label = _name(name)
        while label in labels:
            label += "_level"
        labels[label] = text
    return labels


def _sample(labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{shown}}} {value!r}"


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


FORMAT = Format("openmetrics", _write)
