"""Print the tables of docs/method.md: coverage of intervals, and false positives.

python benchmarks/intervals.py [--repeats N] [--repeated]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from tare.stats.interval import Method
from tare.stats.proportion import Proportion, upper_bound
from tare.stats.simulate import (
    BIMODAL,
    NORMAL,
    RARE_MODE,
    Population,
    coverage,
    coverage_when_stopped,
    false_positive_rate,
)
from tare.stats.simulate_repeated import repeated_runs

BLOCKS = (6, 8, 12, 20)
SKEWED = replace(BIMODAL, mode_share=0.2)
CELLS: dict[str, tuple[Population, Population]] = {
    "normal": (NORMAL, NORMAL),
    "two modes, 1 : 1": (BIMODAL, BIMODAL),
    "two modes, 4 : 1": (SKEWED, SKEWED),
    "two modes, 9 : 1": (RARE_MODE, RARE_MODE),
    "modes in one cell only, 1 : 1": (BIMODAL, NORMAL),
    "modes in one cell only, 4 : 1": (SKEWED, NORMAL),
    "modes in one cell only, 9 : 1": (RARE_MODE, NORMAL),
}


def percent(share: Proportion) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * (share.share or 0.0):.1f}"


def repeated(runs: int) -> None:
    """Print what repeated sessions do, from pilot blocks to verdicts."""
    print(f"Repeated sessions, {runs} runs a figure, one session in fifty failing.\n")
    print(
        "| sessions | blocks | false positives, nominal 5 % | coverage, nominal 95 % | sessions |"
    )
    print("|---|---|---|---|---|")
    cells = {"normal": NORMAL, "two modes, 1 : 1": BIMODAL, "two modes, 9 : 1": RARE_MODE}
    for name, cell in cells.items():
        for blocks in (8, 12):
            found = repeated_runs(cell, blocks, failing=0.02, runs=runs)
            false = found.false_positives
            bound = 100 * upper_bound(false.count, false.of)
            print(
                f"| {name} | {blocks} | {percent(false)} (≤ {bound:.1f}) |"
                f" {percent(found.covered)} | {found.sessions:.1f} |",
                flush=True,
            )


def main() -> None:
    """Draw, count, print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=4000, help="comparisons a figure")
    parser.add_argument(
        "--repeated", action="store_true", help="only the table of repeated sessions"
    )
    asked = parser.parse_args()
    repeats = asked.repeats
    if asked.repeated:
        repeated(repeats)
        return

    print(f"Coverage in %, nominal 95, {repeats} comparisons a figure, injected effect 5 %.")
    for method in Method:
        print(f"\n| {method} | " + " | ".join(f"{blocks} blocks" for blocks in BLOCKS) + " |")
        print("|---" * (len(BLOCKS) + 1) + "|")
        for name, (cell, baseline) in CELLS.items():
            figures = [
                coverage(cell, n, baseline=baseline, effect=1.05, method=method, repeats=repeats)
                for n in BLOCKS
            ]
            print(f"| {name} | " + " | ".join(map(percent, figures)) + " |", flush=True)

    print(f"\nFalse positives in %, nominal 5, {repeats} A/A families, with 95 % upper bound.\n")
    print("| sessions | " + " | ".join(f"{blocks} blocks" for blocks in BLOCKS) + " |")
    print("|---" * (len(BLOCKS) + 1) + "|")
    rows = {name: (cell, 1) for name, (cell, other) in CELLS.items() if cell is other}
    rows["normal, drifting 2 % a block"] = (replace(NORMAL, drift_per_block=0.02), 1)
    rows["normal, families of 6"] = (NORMAL, 6)
    for name, (cell, comparisons) in rows.items():
        rates = [
            false_positive_rate(cell, blocks, families=repeats, comparisons=comparisons)
            for blocks in BLOCKS
        ]
        print(
            f"| {name} | "
            + " | ".join(f"{percent(r)} (≤ {100 * upper_bound(r.count, r.of):.1f})" for r in rates)
            + " |",
            flush=True,
        )

    print("\nCoverage in %, nominal 95, where 8 to 30 blocks run until ±3 %.\n")
    print("| sessions | coverage |")
    print("|---|---|")
    stopped = repeats // 4
    for name, cell in {"normal": NORMAL, "two modes, 9 : 1": RARE_MODE}.items():
        print(f"| {name} | {percent(coverage_when_stopped(cell, repeats=stopped))} |", flush=True)
    print()
    repeated(repeats)


if __name__ == "__main__":
    main()
