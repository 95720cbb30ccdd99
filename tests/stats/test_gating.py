"""The gate on pairs of versions whose truth is known (claim A12, in small)."""

from dataclasses import replace

import numpy as np
import pytest
from rates import at_least, at_most

from tare.stats import Verdict
from tare.stats.gating import Gate, decide, most_spread
from tare.stats.sequential import Looks
from tare.stats.simulate_gate import WORLDS, World, gates

GATE = Gate.of(Looks(8, 20, 0.05), margin=0.03, comparisons=1)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_equal_versions_fail_and_slower_ones_pass_no_more_often_than_declared(world):
    assert at_most(gates(world, GATE, runs=300).slower, 0.05)
    assert at_most(gates(world, GATE, effect=1.03, runs=300).no_worse, 0.05)


@pytest.mark.parametrize("name", ["normal", "heavy tails", "wandering machine"])
def test_ten_percent_are_found_in_the_time_that_was_said(name):
    limit = most_spread(0.10, GATE.looks.most, GATE.looks)
    assert limit is not None
    assert WORLDS[name].spread() < np.log1p(
        limit
    )  # what the gate says before it runs covers this world
    found = gates(WORLDS[name], GATE, effect=1.10, runs=150)
    assert at_least(found.slower, 0.80)
    assert at_least(found.in_time, 0.80)


def test_builds_that_differ_are_seen_only_where_builds_are_counted():
    """The limit that docs/method.md states: a run of one build each calls their luck a finding."""
    one = gates(World(builds=0.02), GATE, runs=150)
    assert not at_most(one.slower, 0.10)
    several = gates(World(builds=0.02, replicas=8), GATE, runs=150)
    assert at_most(several.slower, 0.05)
    assert at_least(gates(World(builds=0.02, replicas=8), GATE, effect=1.1, runs=60).slower, 0.8)


def test_a_margin_decides_before_significance():
    slightly = np.full((12, 1), np.log(1.01)) + 1e-5 * np.arange(12)[:, None]
    assert decide(slightly, GATE).verdict is Verdict.NO_WORSE
    narrow = replace(GATE, margin=0.001)
    assert decide(slightly, narrow).verdict is Verdict.SLOWER


def test_what_is_said_of_a_decision_is_of_the_blocks_that_decided():
    drawn = np.concatenate([np.full(8, 0.1), np.full(4, 9.0)])[:, None]
    found = decide(drawn + 1e-4 * np.arange(12)[:, None] % 3e-4, GATE)
    assert (found.verdict, found.blocks) == (Verdict.SLOWER, 8)
    assert found.ratio == pytest.approx(1.105, abs=0.001)
    assert found.at_least is not None
    assert found.at_least <= found.ratio <= (found.at_most or 0)


def test_without_blocks_nothing_is_said():
    found = decide(np.empty((0, 1)), GATE)
    assert (found.verdict, found.ratio, found.at_least) == (Verdict.INCONCLUSIVE, None, None)


def test_a_family_shares_the_error_of_failing_and_not_that_of_passing():
    gate = Gate.of(Looks(8, 24, 0.05), margin=0.03, comparisons=5)
    assert gate.looks.alpha == pytest.approx(0.01)
    assert gate.passing.alpha == 0.05
