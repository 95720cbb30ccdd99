"""A7: what the analysis of many samples costs."""

from __future__ import annotations

import json
import sys

from claims import Claim, Result, Workshop
from tare import process
from tare.command import Command
from tare.stats.bounds import Kept


def _check(workshop: Workshop) -> Result:
    workshop.say("analysing 1, 3 and 10 million samples")
    said = process.run(
        Command((sys.executable, str(workshop.home / "benchmarks/analysis.py"), "--json")),
        timeout_s=600,
    )
    data = json.loads(said.stdout)
    largest = max(data["runs"], key=lambda run: run["samples"])
    both = (largest, data["one_session"])
    seconds = max(run["seconds"] for run in both)
    peak = max(run["peak_rss_bytes"] for run in both)
    figure = (
        f"{largest['samples'] / 1e6:.0f} million samples in {seconds:.1f} s with"
        f" {peak / 2**20:.0f} MiB at worst (many sessions, or one); CPU time grows as samples to"
        f" the power {data['exponent']:.2f}"
    )
    holds = (
        min(run["samples"] for run in both) >= 10_000_000
        and seconds <= 10
        and peak <= 2**30
        and data["exponent"] <= 1.1
    )
    return Result(Kept.counted(holds), figure, data)


CLAIMS = (
    Claim(
        "A7",
        "Analysing 10 million samples takes seconds on two cores, in bounded memory, and grows"
        " linearly.",
        "at most 10 s, 1 GiB, exponent at most 1.1",
        _check,
    ),
)
