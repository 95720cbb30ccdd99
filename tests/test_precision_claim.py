"""A9's way of comparing: two kinds of runs of the same wall time, in turns."""

from pathlib import Path

import pytest

import records
from claims import Workshop, precision
from tare import experiment
from tare.runner import Progress

HOME = Path(__file__).parents[1]
QUICKSTART = (HOME / "experiments" / precision.QUICKSTART).read_text()


def test_the_other_arm_is_the_same_experiment_but_for_its_blocks():
    ships = experiment.parse(QUICKSTART, "a")
    single = experiment.parse(precision._single(QUICKSTART), "b")
    assert ships.blocks.sessions == "auto"
    assert single.blocks.sessions == 1
    assert single.blocks.max >= 10 * ships.blocks.max
    assert single.model_copy(update={"blocks": ships.blocks}) == ships


@pytest.fixture
def clock(monkeypatch):
    """A clock that only runs where a run is told of."""
    now = [0.0]
    monkeypatch.setattr(precision.time, "monotonic", lambda: now[0])
    return now


def made(workshop, text, name, look, clock, a_block, blocks):
    record = records.make(
        workshop.scratch / name, records.Recipe(blocks=blocks, requests=30, spread=0.05), text
    )
    for block in range(blocks):
        look(Progress(block, blocks, 0, 1, 0.0, ""))
        clock[0] += a_block
    look(Progress(blocks, blocks, 1, 1, 0.0, "done"))
    return record


def test_runs_alternate_and_the_one_with_single_sessions_has_the_others_time(
    tmp_path, monkeypatch, clock
):
    seen = []

    def run_text(workshop, text, name, look):
        several = "sessions: auto" in text
        seen.append(name)
        return made(
            workshop, text, name, look, clock, 20.0 if several else 10.0, 9 if several else 40
        )

    monkeypatch.setattr(precision, "run_text", run_text)
    shop = Workshop(HOME, tmp_path, tmp_path, tmp_path, lambda _: None)
    found = precision.in_the_same_time(shop, rounds=3)
    assert sorted(seen) == sorted(f"{arm}-{n}" for n in range(3) for arm in ("one", "several"))
    (bound,) = found.bounds
    assert bound.most == precision.MOST
    # Some three sessions of a cell in half as many blocks, and all else drawn alike.
    assert 0.4 < bound.found.estimate < 1.2
    first = found.data["round 1"]
    assert set(first["several"]) == set(first["one"])
    assert all(name.startswith("container/") for name in first["one"])


def test_what_a_run_took_less_than_its_time_counts_by_the_root(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(
        precision, "run_text", lambda w, t, n, look: made(w, t, n, look, clock, 7.0, 20)
    )
    shop = Workshop(HOME, tmp_path, tmp_path, tmp_path, lambda _: None)
    text = precision._single(QUICKSTART)
    took, cut = precision._run(shop, text, "cut", 80.0)
    assert took == 84.0  # told of only between blocks: twelve whole ones
    clock[0] = 0.0
    whole, _ = precision._run(shop, text, "whole", None)
    assert whole == 140.0
    clock[0] = 0.0
    _, exact = precision._run(shop, text, "exact", 83.9)
    for comparison, width in cut.items():
        assert width == pytest.approx(exact[comparison] * (83.9 / 80.0) ** 0.5)
