"""Print the tables of docs/method.md on the gate: what it finds when, and how often it errs.

python benchmarks/gate.py [--runs N]
"""

from __future__ import annotations

import argparse

from tare.stats.gating import Gate, most_spread
from tare.stats.proportion import Proportion
from tare.stats.sequential import Looks
from tare.stats.simulate_gate import WORLDS, World, gates

BLOCKS = (8, 15, 30, 60)
GATE = Gate.of(Looks(8, 30, 0.05), margin=0.03, comparisons=1)


def percent(share: float | None) -> str:
    """Format a share as a percentage."""
    return "none" if share is None else f"{100 * share:.1f}"


def bounded(found: Proportion) -> str:
    """Format a rate with its upper bound."""
    return f"{percent(found.share)} (≤ {percent(found.high)})"


def reach() -> None:
    """Print the spread up to which something is told, by the number of blocks."""
    print("| told by the last of so many blocks, 80 times in 100 | 8 | 15 | 30 | 60 |")
    print("|---|---|---|---|---|")
    for what, effect in (
        *((f"+{100 * found:g} % is slower", found) for found in (0.02, 0.05, 0.10, 0.20)),
        *((f"an equal version is no worse by {100 * m:g} %", m) for m in (0.02, 0.03, 0.05)),
    ):
        limits = (most_spread(effect, n, Looks(min(8, n), n, 0.05)) for n in BLOCKS)
        print(f"| {what} | {' | '.join(map(percent, limits))} |")


def errors(runs: int) -> None:
    """Print what gates say of pairs whose truth is known."""
    print("| sessions | equal: fail | +3 %: pass | +10 %: fail | blocks, equal | blocks, +10 % |")
    print("|---|---|---|---|---|---|")
    for name, world in WORLDS.items():
        equal = gates(world, GATE, runs=runs)
        margin = gates(world, GATE, effect=1.03, runs=runs)
        found = gates(world, GATE, effect=1.10, runs=runs // 5)
        print(
            f"| {name} | {bounded(equal.slower)} | {bounded(margin.no_worse)} |"
            f" {percent(found.slower.share)} | {equal.blocks:.0f} | {found.blocks:.0f} |",
            flush=True,
        )


def builds(runs: int) -> None:
    """Print what builds that differ do to it."""
    print("| builds differ by | one each: equal fail | 8 each, counted: equal fail | +10 %: fail |")
    print("|---|---|---|---|")
    for spread in (0.002, 0.005, 0.01, 0.02):
        one = gates(World(builds=spread), GATE, runs=runs)
        world = World(builds=spread, replicas=8)
        several = gates(world, GATE, runs=runs)
        found = gates(world, GATE, effect=1.10, runs=runs // 5)
        print(
            f"| {percent(spread)} % | {bounded(one.slower)} | {bounded(several.slower)} |"
            f" {percent(found.slower.share)} |",
            flush=True,
        )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    runs = parser.parse_args().runs
    print("Spread of the ratio from block to block, in %, up to which it is told.\n")
    reach()
    print(f"\nOf 100 gates of 8 to 30 blocks, {runs} runs a figure, nominal 5, with 95 % bound.\n")
    errors(runs)
    print()
    builds(runs)


if __name__ == "__main__":
    main()
