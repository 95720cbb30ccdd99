"""What a check says of its bounds, how blocks are added, and what the ledger keeps of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import claims
import records
import workshops
from claims import (
    Claim,
    Found,
    Result,
    Workshop,
    experiments,
    instrument,
    judge,
    ledger,
    looks,
)
from claims.subjects import SUBJECTS, digests
from tare import cli, doctor
from tare.cli import paths
from tare.errors import TareError, UsageError
from tare.stats import Interval, Method, paired_ratio
from tare.stats.bounds import LOOKS, Bound, Kept, look_confidence

NOWHERE = Path("/nowhere")
WORKSHOP = workshops.bare()
ONCE = looks.Most.of(None)


def bound(low: float, high: float) -> Bound:
    centre = (low * high) ** 0.5
    return Bound("ours / theirs", Interval(centre, low, high, 0.95, Method.T, 12), most=1.05)


def test_an_interval_across_the_bound_is_inconclusive_and_the_blocks_that_would_decide_are_named():
    found = judge([Found("0.996", bounds=(bound(0.931, 1.066),))])
    assert found.verdict is Kept.INCONCLUSIVE
    more = bound(0.931, 1.066).blocks_more
    assert more is not None
    assert found.figure.startswith("0.996; with 12 blocks and this noise a ratio of ")
    assert found.figure.endswith(
        f"; inconclusive: ours / theirs (wanted at most 1.05; some {more} blocks more would decide)"
    )
    assert found.data["bounds"]["ours / theirs"]["verdict"] == "inconclusive"


def test_a_broken_bound_outweighs_an_inconclusive_one_and_a_count_that_fails_does_too():
    broken, open_, kept = bound(1.1, 1.2), bound(0.9, 1.1), bound(0.9, 1.0)
    assert judge([Found("", bounds=(broken,)), Found("", bounds=(open_,))]).verdict is Kept.FAILS
    assert judge([Found("", bounds=(open_,), counted=Kept.FAILS)]).verdict is Kept.FAILS
    assert judge([Found("", bounds=(kept,)), Found("")]).verdict is Kept.HOLDS


class Growing:
    """A claim whose figure lies as far below its bound as one asks, and is measured by blocks."""

    def __init__(self, truth: float) -> None:
        self._drawn = truth * np.exp(0.1 * np.random.default_rng(1).standard_normal(64))
        self.blocks: list[int] = []
        self.confidences: list[float] = []

    def check(self, workshop: Workshop) -> Found:
        blocks = 8 if workshop.look is None else workshop.look.blocks(8)
        self.blocks.append(blocks)
        self.confidences.append(workshop.confidence)
        ratio = paired_ratio(self._drawn[:blocks], np.ones(blocks), workshop.confidence).ratio
        return Found("time", bounds=(Bound("time", ratio, most=1.05),))

    @property
    def claim(self) -> Claim:
        return Claim("A1", "It is no slower.", "at most 1.05", (), (self.check,), grows=True)


def test_blocks_are_added_to_the_same_result_until_it_decides(tmp_path: Path):
    growing = Growing(0.99)
    assert growing.claim.check(WORKSHOP).verdict is Kept.INCONCLUSIVE
    found = looks.decide(growing.claim, WORKSHOP, ONCE, tmp_path / "A1")
    assert found.verdict is Kept.HOLDS
    assert growing.blocks[1:] == [8, 16, 24, 32][: len(growing.blocks) - 1]
    assert growing.confidences[1:] == [look_confidence(0.95)] * (len(growing.blocks) - 1)
    assert found.data["looks"] == [len(growing.blocks) - 1, LOOKS]


def test_what_never_decides_ends_at_the_most_that_was_stated(tmp_path: Path):
    growing = Growing(1.05)
    found = looks.decide(growing.claim, WORKSHOP, looks.Most.of("20"), tmp_path / "A1")
    assert found.verdict is Kept.INCONCLUSIVE
    assert growing.blocks == [8, 12, 16, 20]


def test_no_look_begins_for_which_there_is_no_time(tmp_path: Path):
    growing = Growing(1.05)
    looks.decide(growing.claim, WORKSHOP, looks.Most.of("0 s"), tmp_path / "A1")
    assert growing.blocks == [8]


def test_looks_that_were_fixed_are_not_fixed_anew(tmp_path: Path):
    growing = Growing(1.05)
    looks.decide(growing.claim, WORKSHOP, looks.Most.of("20"), tmp_path / "A1")
    with pytest.raises(UsageError, match="fixed before the first"):
        looks.decide(growing.claim, WORKSHOP, looks.Most.of("80"), tmp_path / "A1")
    looks.decide(growing.claim, WORKSHOP, looks.Most.of("20"), tmp_path / "A1")  # the same go on


def test_looks_that_a_kill_cut_short_are_begun_again_by_hand(tmp_path: Path):
    growing, folder = Growing(1.05), tmp_path / "A1"
    looks.decide(growing.claim, WORKSHOP, looks.Most.of("20"), folder)
    kept = folder / "looks.json"
    kept.write_bytes(kept.read_bytes()[:40])
    with pytest.raises(UsageError, match="fixed before the first") as caught:
        looks.decide(growing.claim, WORKSHOP, looks.Most.of("20"), folder)
    assert str(folder) in caught.value.remedy


def test_no_blocks_are_added_to_what_something_else_was_measured_by(tmp_path: Path):
    growing, source = Growing(1.05), tmp_path / "echo/ask.cc"
    source.parent.mkdir()
    source.write_text("1")
    workshop = replace(WORKSHOP, home=tmp_path)
    looks.decide(growing.claim, workshop, looks.Most.of("20"), tmp_path / "A1")
    source.write_text("2")
    with pytest.raises(UsageError, match="since it began, echo changed"):
        looks.decide(growing.claim, workshop, looks.Most.of("20"), tmp_path / "A1")


def test_a_look_judges_its_own_blocks_though_a_later_one_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = (Path(claims.__file__).parents[1] / "experiments/quickstart.yaml").read_text()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/x.yaml").write_text(text)
    made = records.make(tmp_path / "r", records.Recipe(blocks=11, requests=50), text)
    monkeypatch.setattr(experiments, "run_text", lambda *_: made)
    workshop = replace(WORKSHOP, home=tmp_path, look=looks.Look(1, None), measured={})
    found = experiments.run_shipped(workshop, "x.yaml")
    assert {trial.block for trial in found.analysis.trials} == set(range(made.plan.min_blocks))


def test_blocks_are_not_added_where_there_are_none(tmp_path: Path):
    with pytest.raises(UsageError, match="no blocks can be added to what C1 measures"):
        looks.decide(claims.by_id("C1"), WORKSHOP, ONCE, tmp_path / "C1")


@pytest.mark.parametrize(("low", "high", "code"), [(0.9, 1.0, 0), (1.1, 1.2, 1), (0.9, 1.1, 5)])
def test_an_inconclusive_claim_has_an_exit_code_of_its_own(
    low: float, high: float, code: int, monkeypatch: pytest.MonkeyPatch
):
    part = Found("x", bounds=(bound(low, high),))
    claim = replace(claims.by_id("A1"), parts=(lambda _: part,))
    monkeypatch.setattr(claims, "by_id", lambda _: claim)
    monkeypatch.setattr(doctor, "require_root", lambda: None)
    monkeypatch.setattr(paths, "programs", lambda: NOWHERE)
    found = CliRunner().invoke(cli.app, ["claim", "check", "A1"])
    assert found.exit_code == code, found.output
    verdict = {0: "holds", 1: "does not hold", 5: "inconclusive"}[code]
    assert f"\nA1 {verdict}: x" in found.output


def test_only_what_is_pending_can_be_asked_for(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []

    def check(claim: Claim, _: Workshop) -> Result:
        asked.append(claim.id)
        return judge([Found("x")])

    monkeypatch.setattr(Claim, "check", check)
    monkeypatch.setattr(ledger, "pending", lambda _, claim: claim.id != "A1")
    monkeypatch.setattr(doctor, "require_root", lambda: None)
    monkeypatch.setattr(paths, "programs", lambda: NOWHERE)
    found = CliRunner().invoke(cli.app, ["claim", "check", "--pending", "A1", "A2"])
    assert (found.exit_code, asked) == (0, ["A2"]), found.output


def test_an_environment_that_is_not_here_leaves_a_claim_on_every_one_inconclusive():
    sound: dict[str, Any] = {"tracers": [], "clock over response": 0.001, "refused": []}
    counting = {"native/udp": 2.0}
    assert instrument.verdict({"native": sound}, counting, {}) is Kept.HOLDS
    assert instrument.verdict({"native": sound}, counting, {"uml": "-"}) is Kept.INCONCLUSIVE
    assert instrument.verdict({"native": sound}, {}, {}) is Kept.INCONCLUSIVE
    slow = {**sound, "refused": ["timer-late", "syscall"]}
    both = {"native": sound, "qemu": slow}
    assert instrument.verdict(both, counting, {"uml": "-"}) is Kept.FAILS


def drawn(home: Path, **entry: object) -> str:
    (home / "claims").mkdir(exist_ok=True)
    subjects = digests(home, ledger.subjects(claims.by_id("A1")))
    common = {"when": "2026-11-20", "commit": None, "figure": "0.98", "subjects": subjects}
    (home / "claims/A1.json").write_text(json.dumps({**common, **entry}))
    return ledger.table(home, [claims.by_id("A1")])


def test_what_is_promised_and_what_is_checked_are_the_same_claims(tmp_path: Path):
    text = (Path(claims.__file__).parents[1] / "CLAIMS.md").read_text()
    (tmp_path / "CLAIMS.md").write_text(text)
    found = ledger.promised(tmp_path, claims.CHECKS, frozenset({"C3"}))
    (grows,) = (claim for claim in found if claim.grows)
    assert grows.experiments == ("small-pieces.yaml", "open-close.yaml", "ior-like.yaml")
    (tmp_path / "CLAIMS.md").write_text(text.replace("| **C3** |", "| **C99** |"))
    with pytest.raises(TareError, match="do not both have C3, C99"):
        ledger.promised(tmp_path, claims.CHECKS, frozenset())


def test_the_table_reads_results_from_before_there_was_a_third_verdict(tmp_path: Path):
    def verdict(**entry: object) -> str:
        found = drawn(tmp_path, **entry)
        assert "2026-11-20:\n\n- 0.98" in found
        (row,) = (line for line in found.splitlines() if line.startswith("| **A1** |"))
        return row.split(" | ")[-1].removesuffix(" |")

    assert verdict(holds=True) == "[holds](#a1)"
    assert verdict(holds=False) == "[**does not hold**](#a1)"
    assert verdict(verdict="inconclusive") == "[**inconclusive**](#a1)"
    why = "its interval was another"
    assert verdict(holds=True, pending=why) == "pending; last [holds](#a1)"
    assert f"*pending*: {why}. Last *holds* at " in drawn(tmp_path, holds=True, pending=why)


def test_each_figure_of_a_result_has_a_line(tmp_path: Path):
    figure = "a 1 (wanted 2; some 3 more); b 4 [4, 5]; inconclusive: c"
    found = drawn(tmp_path, holds=True, figure=figure)
    assert found.endswith("\n- a 1 (wanted 2; some 3 more)\n- b 4 [4, 5]\n- inconclusive: c")


def test_a_result_is_pending_once_what_it_was_made_by_has_changed(tmp_path: Path):
    (tmp_path / "echo/tests").mkdir(parents=True)
    source = tmp_path / "echo/ask.cc"
    source.write_text("1")
    measured = digests(tmp_path, ledger.subjects(claims.by_id("A1")))
    (tmp_path / "echo/tests/ask_test.cc").write_text("a test makes no figure")
    (tmp_path / "echo/README.md").write_text("nor does a page")
    assert "| [holds](#a1) |" in drawn(tmp_path, holds=True, subjects=measured)
    source.write_text("2")
    assert "*pending*: echo changed since. Last *holds* at " in drawn(
        tmp_path, holds=True, subjects=measured
    )
    source.write_text("1")
    other = drawn(tmp_path, holds=True, subjects=measured, wanted="upper end at most 1.2")
    assert "*pending*: something else was wanted of it then." in other
    how = ledger.judged_by(claims.by_id("A1"))
    assert "| [holds](#a1) |" in drawn(tmp_path, holds=True, **{"judged by": how})
    other = drawn(tmp_path, holds=True, **{"judged by": "0" * 16})
    assert "*pending*: it was judged otherwise then." in other
    source.rename(tmp_path / "echo/asking.cc")
    assert "*pending*: echo changed since. Last *holds* at " in drawn(
        tmp_path, holds=True, subjects=measured
    )
    assert "looked at. Last *holds* at " in drawn(tmp_path, holds=True, subjects={})
    assert ledger.pending(tmp_path, claims.by_id("A1")) == "measured before this was looked at"
    assert ledger.pending(tmp_path, claims.by_id("A2")) == "not measured yet"


def test_a_result_is_of_what_was_there_when_its_check_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source = tmp_path / "echo/ask.cc"
    source.parent.mkdir()
    source.write_text("1")

    def check(_claim: Claim, _workshop: Workshop) -> Result:
        source.write_text("2")  # as the next commit does, while a check takes its time
        return judge([Found("x")])

    monkeypatch.setattr(Claim, "check", check)
    monkeypatch.setattr(doctor, "require_root", lambda: None)
    monkeypatch.setattr(paths, "programs", lambda: NOWHERE)
    home = Path(claims.__file__).parents[1]
    for name in ("claims", "CLAIMS.md"):
        (tmp_path / name).symlink_to(home / name)
    monkeypatch.setattr(paths, "home", lambda: tmp_path)
    kept: dict[str, Any] = {}
    monkeypatch.setattr(ledger, "keep", lambda *told: kept.update(told[-1]))
    monkeypatch.setattr(ledger, "write", lambda *_: None)
    assert CliRunner().invoke(cli.app, ["claim", "check", "--record", "A1"]).exit_code == 0
    source.write_text("1")
    assert kept == digests(tmp_path, ledger.subjects(claims.by_id("A1")))


def test_a_result_that_was_cut_short_is_told_by_its_name(tmp_path: Path):
    drawn(tmp_path, holds=True)
    path = tmp_path / "claims/A1.json"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(TareError, match=r"A1\.json is no result"):
        ledger.table(tmp_path, [claims.by_id("A1")])


def test_each_claim_says_what_its_figure_is_made_by():
    assert SUBJECTS.keys() == claims.CHECKS.keys()
    home = Path(claims.__file__).parents[1]
    for claim in claims.every():
        for room in ledger.subjects(claim):
            assert (home / room).exists(), (claim.id, room)
