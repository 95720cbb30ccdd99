"""When a run stops: by the widths that the analysis gives and the plan declares, and no others."""

from pathlib import Path
from typing import Any

import pytest

import records
from tare import analysis, runner
from tare.stats.stopping import Action

TEXT = """\
title: How wide?
factors: {environment: [native, container], transport: [udp, cyclonedds]}
baseline: {environment: native}
blocks: {min: 8, max: 10, until: %s}
"""
NOTHING_JUDGED = "family: none\n"


def decided(record, blocks):
    """What a run of this record decides after so many blocks."""
    nowhere = Path("/nowhere")
    absent: Any = None
    run = runner._Run(
        record=record,
        programs=nowhere,
        cache=nowhere,
        on_progress=lambda _: None,
        writer=absent,
        registry=absent,
        scratch=nowhere,
        blocks=None,
    )
    return run._decide(blocks)


@pytest.mark.parametrize("family", ["", NOTHING_JUDGED])
def test_blocks_go_on_until_what_is_watched_is_narrow(tmp_path, family):
    recipe = records.Recipe(requests=100)
    wide = records.make(tmp_path / "wide", recipe, TEXT % "0.01 %" + family)
    found = decided(wide, 8)
    assert found.action is Action.CONTINUE
    assert set(found.wide) == {c.id for c in wide.plan.comparisons if c.kind == "effect"}
    assert set(analysis.half_widths(wide)) == set(found.wide)
    narrow = records.make(tmp_path / "narrow", recipe, TEXT % "90 %" + family)
    assert decided(narrow, 8).action is Action.STOP
    assert decided(narrow, 7).action is Action.CONTINUE


def test_a_resumed_run_looks_again_at_what_it_saw_and_at_no_later_block(tmp_path):
    """Else it could end within a block that a kill cut off."""
    cells = ("container/udp", "container/cyclonedds")
    failing = frozenset((block, cell) for block in range(8) for cell in cells)
    recipe = records.Recipe(blocks=16, requests=100, failing=failing)
    record = records.make(tmp_path / "r", recipe, TEXT.replace("max: 10", "max: 20") % "90 %")
    assert decided(record, 8).action is Action.CONTINUE
    assert decided(record, 16).action is Action.STOP


def test_only_the_family_is_watched_where_there_is_one(tmp_path):
    text = TEXT % "0.01 %" + "family: {transport: udp}\n"
    record = records.make(tmp_path / "r", records.Recipe(requests=100), text)
    assert decided(record, 8).wide == ("container/udp over native/udp",)


def test_before_the_first_block_nothing_is_narrow(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=0), TEXT % "90 %" + NOTHING_JUDGED)
    found = decided(record, 0)
    assert found.action is Action.CONTINUE
    assert found.projected_blocks is None
