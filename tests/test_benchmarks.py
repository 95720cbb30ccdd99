"""Benchmarks that claims are made by still run: nothing of their time is looked at."""

from __future__ import annotations

import json
import subprocess
import sys

from needs import HOME


def test_what_analysing_takes_is_measured() -> None:
    done = subprocess.run(
        [sys.executable, HOME / "benchmarks/analysis.py", "--samples", "20000", "--json"],
        stdout=subprocess.PIPE, check=True, timeout=100,
    )  # fmt: skip
    (run,) = json.loads(done.stdout)["runs"]
    assert 0 < run["replies"] < run["samples"]  # some were lost
