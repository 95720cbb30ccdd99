"""Comparing two runs: found where it differs, quiet where it does not, refused where it cannot."""

import json

import numpy as np
import pytest
import rich

import records
from tare import compare
from tare.errors import UsageError
from tare.stats import Verdict

TEXT = """\
title: Two transports
factors:
  environment: [native]
  transport: [udp, cyclonedds]
baseline: {environment: native}
blocks: {min: 8, max: 10}
"""


def make(folder, seed, **recipe):
    fingerprint = recipe.pop("fingerprint", records.FINGERPRINT)
    made = records.Recipe(seed=seed, requests=200, **recipe)
    return records.make(folder, made, TEXT, fingerprint)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    return make(tmp_path_factory.mktemp("a") / "r", 1)


def verdicts(found):
    return {cell.cell: cell.judgement.verdict for cell in found.cells}


def test_a_slower_cell_is_found_and_the_others_are_not(earlier, tmp_path):
    found = compare.compare(earlier, make(tmp_path / "b", 2, scale={"udp": 1.1}))
    assert verdicts(found) == {"udp": Verdict.SLOWER, "cyclonedds": Verdict.EQUIVALENT}
    ratio = next(cell.ratio.ratio for cell in found.cells if cell.cell == "udp")
    assert ratio.low < 1.1 < ratio.high
    assert compare.fails(found, "slower")
    assert compare.fails(found, "different")
    assert not compare.fails(found, "faster")


@pytest.mark.parametrize("coarse", ["earlier", "later"])
def test_what_either_instrument_cannot_tell_is_refused(tmp_path, coarse):
    """0.7 us slower, where one of the two results was taken with a floor of 5 us."""
    made = {
        "earlier": make(tmp_path / "a", 1),
        "later": make(tmp_path / "b", 2, scale={"udp": 1.1}),
    }
    path = made[coarse].folder / "trials.ndjson"
    text = path.read_text()
    assert '"floor_ns":60.0' in text
    path.write_text(text.replace('"floor_ns":60.0', '"floor_ns":5000.0'))
    found = compare.compare(made["earlier"], made["later"])
    assert set(verdicts(found).values()) == {Verdict.BELOW_INSTRUMENT}
    assert not compare.fails(found, "different")


def test_the_same_thing_twice_does_not_fail(earlier, tmp_path):
    found = compare.compare(earlier, make(tmp_path / "b", 3))
    assert not compare.fails(found, "different")


def test_another_machine_is_refused_unless_asked_for(earlier, tmp_path):
    other = {**records.FINGERPRINT, "cpu": {"model": "Another processor"}}
    later = make(tmp_path / "b", 2, fingerprint=other)
    with pytest.raises(UsageError, match="Another processor") as caught:
        compare.compare(earlier, later)
    assert "--across-machines" in caught.value.remedy
    found = compare.compare(earlier, later, across_machines=True)
    assert found.machines["cpu.model"] == ("Test processor", "Another processor")


def test_another_kernel_is_shown_and_not_refused(earlier, tmp_path):
    other = {**records.FINGERPRINT, "kernel": {"release": "6.9", "clock_source": "tsc"}}
    found = compare.compare(earlier, make(tmp_path / "b", 2, fingerprint=other))
    assert found.machines == {"kernel.release": ("6.1.0-test", "6.9")}


GUESTS = TEXT.replace("[native]", "[native, qemu]").replace("[udp, cyclonedds]", "[udp]")


def test_guests_under_another_accelerator_are_refused_unless_asked_for(tmp_path):
    under_kvm = records.Recipe(requests=100, accelerator=lambda _block, _cell: "kvm")
    tcg = records.make(tmp_path / "tcg", records.Recipe(requests=100), GUESTS)
    kvm = records.make(tmp_path / "kvm", under_kvm, GUESTS)
    with pytest.raises(UsageError, match=r"qemu: TCG and KVM") as caught:
        compare.compare(tcg, kvm)
    assert "--across-machines" in caught.value.remedy
    found = compare.compare(tcg, kvm, across_machines=True)
    assert found.accelerators == {"qemu": ("tcg", "kvm")}
    assert compare.compare(kvm, kvm).accelerators == {}


def test_a_cell_that_mixes_accelerators_is_not_even_like_itself(tmp_path):
    recipe = records.Recipe(requests=100, accelerator=lambda block, _: "tcg" if block else "kvm")
    mixed = records.make(tmp_path / "r", recipe, GUESTS)
    with pytest.raises(UsageError, match=r"qemu: KVM\+TCG and KVM\+TCG"):
        compare.compare(mixed, mixed)


def test_what_one_result_alone_tells_is_named_in_one_line(earlier, tmp_path, capsys):
    other = {**records.FINGERPRINT, "programs": {"echo/echo-udp": "00", "nvio/nvio": "11"}}
    found = compare.compare(earlier, make(tmp_path / "b", 2, fingerprint=other))
    rich.print(compare.table(found))
    said = " ".join(capsys.readouterr().out.split())
    assert "fingerprint: only the later result tells programs.nvio/nvio" in said


def test_results_without_a_common_cell_are_refused(earlier, tmp_path):
    text = TEXT.replace("[udp, cyclonedds]", "[fastdds]")
    other = records.make(tmp_path / "b", records.Recipe(requests=100), text)
    with pytest.raises(UsageError, match="no cell in common"):
        compare.compare(earlier, other)


def test_cells_of_one_result_only_are_named(earlier, tmp_path):
    text = TEXT.replace("[udp, cyclonedds]", "[udp, fastdds]")
    other = records.make(tmp_path / "b", records.Recipe(requests=100), text)
    found = compare.compare(earlier, other)
    assert (found.only_earlier, found.only_later) == (("cyclonedds",), ("fastdds",))


def test_one_session_a_side_gives_no_interval_and_no_verdict():
    found = compare.unpaired_ratio(np.array([2.0]), np.array([1.0]))
    assert found.ratio.estimate == 2.0
    assert not found.ratio.resolved
    assert found.p == 1.0


def test_welch_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(4)
    rounds, covered = 2000, 0
    for _ in range(rounds):
        a, b = np.exp(rng.normal(0.05, 0.03, 8)), np.exp(rng.normal(0.0, 0.06, 12))
        interval = compare.unpaired_ratio(a, b).ratio
        covered += interval.low <= np.exp(0.05) <= interval.high
    assert 0.935 <= covered / rounds <= 0.965


def test_a_comparison_can_be_printed_and_written_as_json(earlier, tmp_path, capsys):
    found = compare.compare(earlier, make(tmp_path / "b", 2))
    assert json.loads(json.dumps(compare.as_json(found)))["statistic"] == "p50"
    rich.print(compare.table(found))
    assert "Unpaired" in capsys.readouterr().out


def test_a_hash_is_told_by_its_first_digits():
    assert compare._brief("4c295cfe4cb17c625ec2d44e5d019f2168ac9bab+changes") == (
        "4c295cfe4cb1+changes"
    )
    assert compare._brief(["6.1.0", None]) == "['6.1.0', None]"
