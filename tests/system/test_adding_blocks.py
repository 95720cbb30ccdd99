"""Blocks are added to what a claim's earlier look measured, for real: nothing is measured twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from claims import Look, Workshop
from claims.experiments import run_text
from needs import needs_root
from tare import machine
from tare.cli import paths
from tare.errors import UsageError
from tare.stats.bounds import LOOKS, look_blocks

pytestmark = [pytest.mark.system, needs_root]

TEXT = """\
title: A question that one look may leave open
factors: {environment: [native], transport: [udp, icmp]}
baseline: {transport: udp}
family: none
blocks: {min: 2, max: 3, until: 90 %}
session: {requests: 200, warmup: 20, timeout: 1 s}
"""


def looking(number: int, folder: Path) -> Workshop:
    programs = paths.programs()
    look = Look(number, 5)
    return Workshop(folder, programs, paths.cache(), folder, lambda _: None, look=look)


def test_a_later_look_adds_blocks_of_the_same_plan_to_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = run_text(looking(1, tmp_path), TEXT, "open")
    trials = first.trials()
    assert {t.block for t in trials} == {0, 1}
    plan = first.plan
    assert len(plan.blocks) == 5
    again = run_text(looking(2, tmp_path), TEXT, "open")
    blocks = look_blocks(2, 5, 2)
    assert {t.block for t in again.trials()} == set(range(blocks))
    assert again.trials()[: len(trials)] == trials
    assert again.plan == plan
    last = run_text(looking(LOOKS, tmp_path), TEXT, "open")
    assert {t.block for t in last.trials()} == set(range(5))
    monkeypatch.setattr(machine, "changed", lambda *_: ["programs.echo/echo-udp"])
    with pytest.raises(UsageError, match=r"no blocks can be added.*echo-udp changed"):
        run_text(looking(LOOKS, tmp_path), TEXT, "open")
