"""Comparing two runs: found where it differs, quiet where it does not, refused where it cannot."""

import copy
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import rich

import records
from tare import compare, compared, experiment, plan, sides
from tare.errors import UsageError
from tare.record import Record, Trial
from tare.stats import Verdict, holm, proportion
from tare.stats.unpaired import unpaired_ratio, would_be_found
from tare.workloads import Statistic

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
    return sides.TareRun(records.make(folder, made, TEXT, fingerprint))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    return make(tmp_path_factory.mktemp("a") / "r", 1)


def runs(folder, first_seed, **recipe):
    """As many runs of one version as a verdict needs."""
    for number in range(compare.FEWEST_RUNS):
        make(folder / str(number), first_seed + number, **recipe)
    return sides.runs_of(folder)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    return runs(tmp_path_factory.mktemp("before"), 1)


def verdicts(found):
    return {cell.cell: cell.judgement.verdict for cell in found.cells}


def test_a_slower_cell_is_found_and_the_others_are_not(before, tmp_path):
    found = compare.compare(before, runs(tmp_path, 11, scale={"udp": 1.1}))
    assert verdicts(found) == {"udp": Verdict.SLOWER, "cyclonedds": Verdict.EQUIVALENT}
    ratio = next(cell.ratio.ratio for cell in found.cells if cell.cell == "udp")
    assert ratio.low < 1.1 < ratio.high
    assert found.runs == (compare.FEWEST_RUNS, compare.FEWEST_RUNS)
    assert all(1.0 < cell.finds < 1.1 for cell in found.cells)
    assert compare.fails(found, "slower")
    assert compare.fails(found, "different")
    assert not compare.fails(found, "faster")


def test_one_run_a_side_gives_no_verdict_however_far_apart_they_are(earlier, tmp_path, capsys):
    """Two runs of one version differ too, and by how much one run of each does not show."""
    found = compare.compare([earlier], [make(tmp_path / "b", 2, scale={"udp": 1.3})])
    assert set(verdicts(found).values()) == {Verdict.INCONCLUSIVE}
    assert not found.judged
    assert not compare.fails(found, "different")
    rich.print(compared.table(found))
    said = " ".join(capsys.readouterr().out.split())
    assert "no verdict: 1 run against 1" in said
    assert f"run each side {compare.FEWEST_RUNS} times or more" in said


def altered(run, **told):
    """A run that tells something else, by the methods given."""
    found = copy.copy(run)
    vars(found).update(told)
    return found


def test_what_is_called_slower_is_what_is_worse(before):
    """Also of plain numbers and bytes, whose verdicts are called more and less."""

    def said(better, factor):
        def told(run, factor):
            return altered(
                run,
                statistic=lambda _key: Statistic("hits of a cache", "1", better),
                level=lambda key: factor * run.level(key),
            )

        earlier, later = ([told(run, by) for run in before] for by in (1.0, factor))
        found = compare.compare(earlier, later)
        return [on for on in ("slower", "faster", "different") if compare.fails(found, on)]

    assert said("higher", 0.5) == said("lower", 2.0) == ["slower", "different"]
    assert said("higher", 2.0) == said("lower", 0.5) == ["faster", "different"]
    assert said("higher", 1.0) == []


def without(folder, first_seed, blocks):
    """Runs in which udp failed, each in so many blocks of 8."""
    for number, count in enumerate(blocks):
        failing = frozenset((block, "udp") for block in range(count))
        make(folder / str(number), first_seed + number, failing=failing)
    return sides.runs_of(folder)


def test_a_cell_is_judged_by_the_runs_that_have_a_value_of_it(before, tmp_path):
    found = compare.compare(before, without(tmp_path, 11, [8, 0, 0, 0]))
    udp = next(cell for cell in found.cells if cell.cell == "udp")
    assert (udp.runs, udp.judged, udp.finds) == ((4, 3), False, None)
    assert verdicts(found) == {"udp": Verdict.INCONCLUSIVE, "cyclonedds": Verdict.EQUIVALENT}
    assert (found.judged, found.unjudged, found.failed) == (True, ("udp",), ("udp",))
    (row,) = [line for line in compared.markdown([found]).splitlines() if "| udp |" in line]
    assert row.startswith("| none | udp |")
    assert "no verdict of udp: fewer than 4 runs" in " ".join(compared.remarks(found))


def test_a_run_that_was_killed_while_it_was_being_made_is_none(before, tmp_path):
    after = runs(tmp_path, 11)
    after[0].folder.rename(tmp_path / ".tare.part")
    assert len(sides.runs_of(tmp_path)) == compare.FEWEST_RUNS - 1


def test_fewer_runs_than_a_verdict_needs_give_none(before, tmp_path):
    fewer = runs(tmp_path, 11, scale={"udp": 1.3})[:-1]
    assert not compare.compare(before, fewer).judged
    assert not compare.compare(fewer, before).judged


def test_equal_versions_whose_runs_differ_are_not_found_different(tmp_path):
    """Each run 5 % off in its own way: by sessions all of these would be different for certain."""
    rng = np.random.default_rng(5)
    pair = []
    for side in ("a", "b"):
        for number in range(compare.FEWEST_RUNS):
            scale = {"udp": np.exp(0.05 * rng.standard_normal())}
            make(tmp_path / side / str(number), int(rng.integers(1000)), scale=scale)
        pair.append(sides.runs_of(tmp_path / side))
    assert verdicts(compare.compare(*pair))["udp"] is Verdict.INCONCLUSIVE


def false_verdicts(runs_a, runs_b, *, by_run, families=1000):
    """Families of four cells of equal versions in which a difference is found, at 8 sessions."""
    rng = np.random.default_rng(6)
    found = 0
    for _ in range(families):
        sides = []
        for count in (runs_a, runs_b):
            # What a run differs by is 3 %, as its sessions do; one cell starts in two modes.
            run = 0.03 * rng.standard_normal((4, count))
            run[0] += 0.3 * (rng.random(count) < 0.3)
            sessions = run[:, :, None] + 0.03 * rng.standard_normal((4, count, 8))
            sides.append(sessions.mean(axis=2) if by_run else sessions.reshape(4, -1))
        ratios = [
            unpaired_ratio(np.exp(a), np.exp(b), cautious=by_run)
            for a, b in zip(*sides, strict=True)
        ]
        found += any(p <= 0.05 for p in holm([ratio.p for ratio in ratios]))
    return proportion(found, families, 0.99999)


@pytest.mark.parametrize(("a", "b"), [(4, 4), (6, 6), (4, 10)])
def test_runs_of_equal_versions_are_found_different_no_more_often_than_declared(a, b):
    assert min(a, b) >= compare.FEWEST_RUNS
    assert false_verdicts(a, b, by_run=True).low <= 0.05


def test_sessions_taken_for_runs_would_find_equal_versions_different_far_more_often():
    """What made `compare` fail equal versions: one run a side, sessions as the unit."""
    assert false_verdicts(1, 1, by_run=False, families=500).low > 0.12


def test_the_ratio_that_is_said_to_be_found_is_found_as_often_as_said():
    rng, found, tries = np.random.default_rng(7), 0, 2000
    sides = np.exp(0.03 * rng.standard_normal((2, 200)))
    error = np.sqrt(2 / 5) * 0.03
    stated = []
    for _ in range(tries):
        a, b = np.exp(0.03 * rng.standard_normal((2, 5)))
        stated.append(would_be_found(a, b, 0.05))
        found += unpaired_ratio(a * np.exp(2.306 * error + 0.889 * error), b).p <= 0.05
    assert 0.72 <= found / tries <= 0.88
    assert np.median(stated) == pytest.approx(np.exp((2.306 + 0.889) * error), rel=0.02)
    assert would_be_found(sides[0], sides[1], 0.05) < np.median(stated)


@pytest.mark.parametrize("coarse", ["earlier", "later"])
def test_what_either_instrument_cannot_tell_is_refused(before, tmp_path, coarse):
    """0.7 us slower, where one of the runs was taken with a floor of 5 us."""
    after = runs(tmp_path / "b", 11, scale={"udp": 1.1})
    again = runs(tmp_path / "a", 1)
    for run in {"earlier": again, "later": after}[coarse]:
        path = run.folder / "trials.ndjson"
        text = path.read_text()
        assert '"floor_ns":60.0' in text
        path.write_text(text.replace('"floor_ns":60.0', '"floor_ns":5000.0'))
    found = compare.compare(sides.runs_of(tmp_path / "a"), sides.runs_of(tmp_path / "b"))
    assert set(verdicts(found).values()) == {Verdict.BELOW_INSTRUMENT}
    assert not compare.fails(found, "different")


def test_a_run_on_another_machine_among_others_is_refused(before, tmp_path):
    after = runs(tmp_path / "b", 11)
    other = {**records.FINGERPRINT, "cpu": {"model": "Another processor"}}
    stranger = make(tmp_path / "b" / "stranger", 20, fingerprint=other)
    with pytest.raises(UsageError, match="Another processor"):
        compare.compare(before, [*after, stranger])


def test_runs_of_one_side_that_are_not_of_one_version_are_said_to_differ(before, tmp_path, capsys):
    after = runs(tmp_path / "b", 11)
    other = {**records.FINGERPRINT, "programs": {"echo/echo-udp": "11"}}
    found = compare.compare(before, [*after, make(tmp_path / "c", 20, fingerprint=other)])
    assert found.within == {"earlier": (), "later": ("programs.echo/echo-udp",)}
    rich.print(compared.table(found))
    said = " ".join(capsys.readouterr().out.split())
    assert "the later runs differ among themselves: programs.echo/echo-udp" in said


def test_settings_that_differ_within_a_side_are_told(before, tmp_path):
    after = runs(tmp_path / "b", 11)
    text = TEXT + "session: {requests: 300}\n"
    record = records.make(tmp_path / "c", records.Recipe(seed=20, requests=300), text)
    found = compare.compare(before, [*after, sides.TareRun(record)])
    assert found.within == {"earlier": (), "later": ("session.requests",)}


def test_a_copy_of_a_run_is_no_other_run(before, tmp_path):
    shutil.copytree(before[0].folder, tmp_path / "a" / "1")
    shutil.copytree(before[0].folder, tmp_path / "a" / "2")
    with pytest.raises(UsageError, match=r"2 is a copy of .*1"):
        sides.runs_of(tmp_path / "a")


def test_a_side_is_a_result_or_a_folder_of_results(earlier, before, tmp_path):
    assert [run.folder for run in sides.runs_of(earlier.folder)] == [earlier.folder]
    assert len(sides.runs_of(before[0].folder.parent)) == compare.FEWEST_RUNS
    with pytest.raises(UsageError, match="is not a result"):
        sides.runs_of(tmp_path)


def test_another_machine_is_refused_unless_asked_for(earlier, tmp_path):
    same = {**records.FINGERPRINT, "memory_bytes": (24 << 30) - 400_000}  # another kernel, say
    compare.compare([earlier], [make(tmp_path / "same", 2, fingerprint=same)])
    other = {**records.FINGERPRINT, "cpu": {"model": "Another processor"}}
    later = make(tmp_path / "b", 2, fingerprint=other)
    with pytest.raises(UsageError, match="Another processor") as caught:
        compare.compare([earlier], [later])
    assert "--across-machines" in caught.value.remedy
    found = compare.compare([earlier], [later], across_machines=True)
    assert found.machines["cpu.model"] == ("Test processor", "Another processor")


def test_another_kernel_is_shown_and_not_refused(earlier, tmp_path):
    other = {**records.FINGERPRINT, "kernel": {"release": "6.9", "clock_source": "tsc"}}
    found = compare.compare([earlier], [make(tmp_path / "b", 2, fingerprint=other)])
    assert found.machines == {"kernel.release": ("6.1.0-test", "6.9")}


GUESTS = TEXT.replace("[native]", "[native, qemu]").replace("[udp, cyclonedds]", "[udp]")


def test_guests_under_another_accelerator_are_refused_unless_asked_for(tmp_path):
    under_kvm = records.Recipe(requests=100, accelerator=lambda _block, _cell: "kvm")
    tcg = sides.TareRun(records.make(tmp_path / "tcg", records.Recipe(requests=100), GUESTS))
    kvm = sides.TareRun(records.make(tmp_path / "kvm", under_kvm, GUESTS))
    with pytest.raises(UsageError, match=r"qemu: TCG and KVM") as caught:
        compare.compare([tcg], [kvm])
    assert "--across-machines" in caught.value.remedy
    found = compare.compare([tcg], [kvm], across_machines=True)
    assert found.accelerators == {"qemu": ("tcg", "kvm")}
    assert compare.compare([kvm], [kvm]).accelerators == {}


def test_a_cell_that_mixes_accelerators_is_not_even_like_itself(tmp_path):
    recipe = records.Recipe(requests=100, accelerator=lambda block, _: "tcg" if block else "kvm")
    mixed = sides.TareRun(records.make(tmp_path / "r", recipe, GUESTS))
    with pytest.raises(UsageError, match=r"qemu: KVM\+TCG and KVM\+TCG"):
        compare.compare([mixed], [mixed])


def test_what_one_result_alone_tells_is_named_in_one_line(earlier, tmp_path, capsys):
    other = {**records.FINGERPRINT, "programs": {"echo/echo-udp": "00", "nvio/nvio": "11"}}
    found = compare.compare([earlier], [make(tmp_path / "b", 2, fingerprint=other)])
    rich.print(compared.table(found))
    said = " ".join(capsys.readouterr().out.split())
    assert "fingerprint: only the later result tells programs.nvio/nvio" in said


def test_results_without_a_common_cell_are_refused(earlier, tmp_path):
    text = TEXT.replace("[udp, cyclonedds]", "[fastdds]")
    other = sides.TareRun(records.make(tmp_path / "b", records.Recipe(requests=100), text))
    with pytest.raises(UsageError, match="no cell in common"):
        compare.compare([earlier], [other])


def test_cells_of_one_result_only_are_named(earlier, tmp_path):
    text = TEXT.replace("[udp, cyclonedds]", "[udp, fastdds]")
    other = sides.TareRun(records.make(tmp_path / "b", records.Recipe(requests=100), text))
    found = compare.compare([earlier], [other])
    assert (found.only_earlier, found.only_later) == (("cyclonedds",), ("fastdds",))


def test_a_cell_that_one_run_lacks_is_in_neither_result_alone(earlier, tmp_path):
    text = TEXT.replace("[udp, cyclonedds]", "[udp]").replace("[cyclonedds]", "[udp]")
    few = sides.TareRun(records.make(tmp_path / "b", records.Recipe(seed=9, requests=100), text))
    found = compare.compare([earlier], [earlier, few])
    assert (found.only_earlier, found.only_later) == ((), ())
    assert found.not_in_all == found.unjudged[-1:] == ("cyclonedds",)
    said = "not in every run, and not compared: cyclonedds"
    assert said in list(compared.remarks(found))


def test_one_session_a_side_gives_no_interval_and_no_verdict():
    found = unpaired_ratio(np.array([2.0]), np.array([1.0]))
    assert found.ratio.estimate == 2.0
    assert not found.ratio.resolved
    assert found.p == 1.0


@pytest.mark.parametrize("n", [4, 7, 10])
def test_what_does_not_vary_is_found_different_wherever_it_differs(n):
    """Bytes and counts: their logarithms vary by rounding, or not at all."""
    levels = np.random.default_rng(n).uniform(1.0, 1e9, 100)
    for level in levels:
        same = np.exp([np.mean(np.log(np.full(k, level))) for k in range(3, 3 + n)])
        doubled = unpaired_ratio(2 * same, same)
        assert doubled.p == 0.0
        assert doubled.ratio.low == doubled.ratio.high == pytest.approx(2.0)
        assert doubled.difference.low == pytest.approx(level)
        equal = unpaired_ratio(same[::-1], same)
        assert (equal.p, equal.ratio.low, equal.ratio.high) == (1.0, 1.0, 1.0)
        assert would_be_found(same, same, 0.05) == pytest.approx(1.0)
    few = unpaired_ratio(np.full(3, 2.0), np.full(n, 1.0))
    assert (few.p, few.ratio.resolved) == (1.0, False)


def test_a_count_that_doubled_fails_a_gate_and_one_that_did_not_passes(before):
    def found(count):
        earlier, later = (
            [altered(run, level=lambda _key, c=c: c) for run in before] for c in (3e6, count)
        )
        return compare.compare(earlier, later)

    assert compare.fails(found(6e6), "slower")
    assert set(verdicts(found(3e6)).values()) == {Verdict.EQUIVALENT}
    assert found(3e6).unjudged == ()


def test_a_cell_without_an_interval_is_not_judged(before):
    found = compare.compare(before, before)
    (cell, *others) = found.cells
    ratio = replace(cell.ratio, ratio=replace(cell.ratio.ratio, low=None, high=None))
    unresolved = replace(found, cells=(replace(cell, ratio=ratio), *others))
    assert unresolved.unjudged == (cell.cell,)


def test_welch_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(4)
    rounds, covered = 2000, 0
    for _ in range(rounds):
        a, b = np.exp(rng.normal(0.05, 0.03, 8)), np.exp(rng.normal(0.0, 0.06, 12))
        interval = unpaired_ratio(a, b).ratio
        covered += interval.low <= np.exp(0.05) <= interval.high
    assert 0.935 <= covered / rounds <= 0.965


def test_a_comparison_can_be_printed_and_written_as_json(earlier, tmp_path, capsys):
    found = compare.compare([earlier], [make(tmp_path / "b", 2)])
    assert json.loads(json.dumps(compare.as_json(found)))["statistic"] == "p50"
    rich.print(compared.table(found))
    assert "no verdict" in capsys.readouterr().out


def test_a_hash_is_told_by_its_first_digits():
    assert compared._brief("4c295cfe4cb17c625ec2d44e5d019f2168ac9bab+changes") == (
        "4c295cfe4cb1+changes"
    )
    assert compared._brief(["6.1.0", None]) == "['6.1.0', None]"


def test_each_of_several_versions_is_compared_with_the_first_and_adjusted_over_all(
    before, tmp_path
):
    slower = runs(tmp_path / "b", 11, scale={"udp": 1.1})
    same = runs(tmp_path / "c", 31)
    first, second = compare.compare_all(before, [slower, same])
    assert verdicts(first)["udp"] is Verdict.SLOWER
    assert Verdict.SLOWER not in verdicts(second).values()
    assert first.earlier == second.earlier
    assert (first.compared, second.compared) == (4, 4)
    alone = compare.compare(before, slower)
    p, p_alone = (
        next(cell.judgement.adjusted_p for cell in found.cells if cell.cell == "udp")
        for found in (first, alone)
    )
    assert p == pytest.approx(2 * p_alone)
    found_alone = next(cell.finds for cell in alone.cells if cell.cell == "udp")
    assert next(cell.finds for cell in first.cells if cell.cell == "udp") > found_alone


def test_equal_versions_are_found_different_no_more_often_however_many_are_compared():
    """Four later versions of two cells: each holds the same first side, so they are dependent."""
    rng = np.random.default_rng(8)
    found = 0
    for _ in range(800):
        first = np.exp(0.03 * rng.standard_normal((2, 4)))
        others = np.exp(0.03 * rng.standard_normal((4, 2, 4)))
        ps = [
            unpaired_ratio(other[cell], first[cell], cautious=True).p
            for other in others
            for cell in (0, 1)
        ]
        found += any(p <= 0.05 for p in holm(ps))
    assert proportion(found, 800, 0.99999).low <= 0.05


def test_a_pull_request_is_told_in_tables_that_no_name_can_break(before, tmp_path):
    after = runs(tmp_path / "b|`x`@all", 11, scale={"udp": 1.1})
    said = compared.markdown(compare.compare_all(before, [after, runs(tmp_path / "c", 31)]))
    assert said.count("### ") == 2
    (row,) = [line for line in said.splitlines() if line.startswith("| **slower** | udp |")]
    table = [line for line in said.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in table} == {8}
    assert "Of 2 cells: 1 slower, 1 equivalent." in said
    assert "@all" not in said
    assert row.count("[") == row.count(r"\[")


def test_a_pull_request_is_told_why_there_is_no_verdict(earlier, tmp_path):
    found = compare.compare([earlier], [make(tmp_path / "b", 2)])
    said = compared.markdown([found])
    assert "**No verdict**: 1 run against 1." in said
    assert "| none | udp |" in said


def commanded(folder, line):
    text = (
        "{title: t, workload: command, baseline: {}, factors: {command: gzip},"
        f" commands: {{gzip: {line}}}, blocks: {{min: 2, max: 2}}}}"
    )
    record = Record.create(
        folder, text, plan.make(experiment.parse(text, "t")), records.FINGERPRINT
    )
    with record.writing() as writer:
        for block in range(2):
            writer.append(
                Trial(
                    block=block, position=0, cell="gzip", session=f"{block}", seconds=1.0,
                    started=f"2026-01-01T00:{block:02d}:00.000+00:00", status="ok",
                    values={"wall": 1e6 + block},
                )
            )  # fmt: skip
    return sides.TareRun(record)


def test_another_command_line_of_the_same_name_is_told(tmp_path):
    one, other = commanded(tmp_path / "9", "gzip -9 -c f"), commanded(tmp_path / "1", "gzip -1 f")
    found = compare.compare([one], [other])
    assert found.settings == {"commands.gzip": ("gzip -9 -c f", "gzip -1 f")}
    within = compare.compare([one, other], [one]).within
    assert within["earlier"] == ("session.commands.gzip",)
