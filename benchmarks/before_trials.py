"""Print what a look at the machine right before a trial could tell of it, from a result.

python benchmarks/before_trials.py RESULT [RESULT ...]

The best look there could be is a session of the same cell: so a session is held against the one
before it within the same setting up. What they share of their variance is the most that a covariate
could spare; with n blocks it has to be more than 1 / (n - 2), since a slope is estimated too.
"""

from __future__ import annotations

import argparse
import math
from itertools import pairwise
from pathlib import Path

import numpy as np

from tare.analysis.sessions import Sessions
from tare.record import Record

BLOCKS = (8, 12, 20)
FEWEST = 3


def before(values: list[list[float]]) -> tuple[float, int] | None:
    """Correlation of a session's logarithm with the last one's, both about their setting up's mean.

    Unbiased to the first order: about a mean of n, independent values correlate by -1 / (n - 1).
    """
    pairs = []
    expected = 0.0
    for block in values:
        if len(block) >= FEWEST:
            logs = np.log(block)
            found = list(pairwise(logs - logs.mean()))
            pairs += found
            expected -= len(found) / (len(block) - 1)
    if len(pairs) < 2 * FEWEST:
        return None
    one, other = np.array(pairs).T
    scale = math.sqrt(float((one**2).sum() * (other**2).sum()))
    if scale == 0.0:
        return None
    return float((one * other).sum()) / scale - expected / len(pairs), len(pairs)


def main() -> None:
    """Read, correlate, print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+")
    needed = ", ".join(f"{1 / (n - 2):.2f} at {n} blocks" for n in BLOCKS)
    print(f"A covariate pays where it shares more than: {needed}.\n")
    print("| cell | pairs of sessions | correlation | shared variance |")
    print("|---|---|---|---|")
    for path in parser.parse_args().results:
        record = Record(path)
        sessions = Sessions(record)
        for cell in record.plan.cells:
            found = before(sessions.by_block(cell.id, record.experiment.statistic))
            if found is not None:
                rho, pairs = found
                print(f"| {cell.id} | {pairs} | {rho:.2f} | {rho * abs(rho):.2f} |")


if __name__ == "__main__":
    main()
