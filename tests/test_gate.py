"""A run as a gate: declared, laid out, stopped, told, and its exit code."""

import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

import records
from tare import analysis, cuts, experiment, export, plan, report
from tare.cli import gate as options
from tare.cli import polite, run
from tare.errors import Exit, UsageError
from tare.record import Record, Trial
from tare.report import gate
from tare.stats import Verdict
from tare.stats.bounds import POWER
from tare.stats.sequential import needed
from tare.stats.stopping import Action

TEXT = """\
title: Is the new one slower?
factors: {environment: native, transport: udp, payload: [64 B, 65 B]}
baseline: {payload: 64 B}
blocks: {min: 8, max: 20}
gate: {fail_on: slower}
"""
SEVERAL = TEXT.replace("transport: udp", "transport: [udp, cyclonedds]")
BUILDS = TEXT.replace(
    "transport: udp", "transport: udp, clients: [1, 2, 3, 4, 5, 6, 7, 8]"
).replace("fail_on: slower", "over: clients")
QUIET = records.Recipe(requests=100, blocks=20, truth_us=lambda _: 100.0)


def made(tmp_path, text=TEXT, **recipe):
    return records.make(tmp_path / "r", replace(QUIET, **recipe), text)


def answered(record):
    found = analysis.analyse(record)
    assert found.gating is not None
    return found


def test_what_is_slower_fails(tmp_path):
    found = answered(made(tmp_path, scale={"65B": 1.10}))
    assert found.gating.verdict is Verdict.SLOWER
    assert gate.code(found) is Exit.FAILED
    assert found.questions[0].judgement.verdict is Verdict.SLOWER
    assert found.gating.answers[0].found.blocks == 8


@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_what_is_equal_or_faster_passes(tmp_path, factor):
    found = answered(made(tmp_path, scale={"65B": factor}))
    assert found.gating.verdict is Verdict.NO_WORSE
    assert gate.code(found) is Exit.OK
    assert found.questions[0].judgement.verdict is Verdict.NO_WORSE


def test_what_is_too_noisy_stays_undecided_and_says_what_would_be_found(tmp_path):
    found = answered(made(tmp_path, spread=0.3))
    assert gate.code(found) is Exit.INCONCLUSIVE
    said = "\n".join(gate.after(found))
    assert re.search(r"undecided; ratio .*all blocks find \+\d+ % 80 times in 100; more", said)
    (one,) = found.gating.answers
    reach = needed(20, found.gating.gate.looks, POWER)
    upper = one.found.spread * math.sqrt(19 / stats.chi2.ppf(0.05, 19))
    assert one.finds == pytest.approx(math.expm1(reach * upper))


def test_shares_are_written_as_they_are(tmp_path):
    found = answered(made(tmp_path / "quiet", f"{TEXT}margin: 12.5 %\n"))
    assert gate.verdict(found).startswith("no worse: 12.5 % slower is ruled out")
    noisy = answered(made(tmp_path / "noisy", spread=1.5))
    said = "\n".join([*gate.after(noisy), gate.markdown(noisy)])
    assert re.search(r"all blocks find \+\d{3,} % 80 times", said)
    assert "e+" not in said


@pytest.mark.parametrize(("factor", "verdict"), [(1.3, "slower"), (1.0, "no worse")])
def test_what_is_below_the_instruments_floor_neither_fails_nor_passes(tmp_path, factor, verdict):
    record = made(tmp_path, truth_us=lambda _: 0.1, scale={"65B": factor})
    found = answered(record)
    assert gate.code(found) is Exit.INCONCLUSIVE
    assert found.questions[0].judgement.verdict is Verdict.BELOW_INSTRUMENT
    said = f"{verdict} speaks of .*, but the instrument's floor is 60"
    assert re.search(said, found.questions[0].judgement.reason)
    assert re.search(f"below instrument; {said}", "\n".join(gate.after(found)))
    assert "below instrument" in gate.markdown(found)
    blocks = found.gating.answers[0].found.blocks
    assert analysis.gate_stop(record, record.trials(), blocks).action is Action.STOP


def test_of_a_rate_less_is_slower(tmp_path):
    text = """\
title: Is the new one slower?
workload: cpu
factors: {environment: [native, container]}
baseline: {environment: native}
blocks: {min: 8, max: 20}
gate: {}
"""
    laid_out = plan.make(experiment.parse(text, "t"))
    record = Record.create(tmp_path / "r", text, laid_out, records.FINGERPRINT)
    rate = {"native": 1e6, "container": 0.9e6}
    with record.writing() as writer:
        for block, (position, cell) in itertools.product(range(8), enumerate(rate)):
            trial = Trial(
                block=block, position=position, cell=cell, session=f"{block}", seconds=1.0,
                started=f"2026-01-01T00:{block:02d}:0{position}.000+00:00", status="ok",
                values={laid_out.experiment.statistic: rate[cell] * (1 + block / 1e5)},
            )  # fmt: skip
            writer.append(trial)
    found = answered(record)
    assert found.gating.verdict is Verdict.SLOWER
    assert found.gating.answers[0].found.ratio == pytest.approx(1 / 0.9)
    assert found.questions[0].judgement.verdict is Verdict.SLOWER
    assert analysis.gate_stop(record, record.trials(), 8).action is Action.STOP


def test_one_that_is_slower_fails_all_and_one_that_is_undecided_passes_none(tmp_path):
    found = answered(made(tmp_path, SEVERAL, scale={"cyclonedds/65B": 1.10}))
    assert {a.name: a.found.verdict for a in found.gating.answers} == {
        "udp/65B over udp/64B": Verdict.NO_WORSE,
        "cyclonedds/65B over cyclonedds/64B": Verdict.SLOWER,
    }
    assert gate.code(found) is Exit.FAILED


def test_what_failed_cannot_pass(tmp_path):
    found = answered(made(tmp_path, failing=frozenset({(3, "65B")})))
    assert found.gating.verdict is Verdict.NO_WORSE
    assert gate.code(found) is Exit.TRIALS_FAILED
    assert "1 of 40 trials failed" in gate.markdown(found)


def test_what_could_not_be_compared_cannot_pass(tmp_path):
    def here(whole):
        lacking = frozenset(c.id for c in whole.cells if c.levels["transport"] == "cyclonedds")
        return cuts.without(whole, [cuts.Absent("cyclonedds", "it is not built", lacking)])

    found = answered(records.make(tmp_path / "r", QUIET, SEVERAL, cut=here))
    assert found.gating.verdict is Verdict.NO_WORSE
    assert gate.code(found) is Exit.INCONCLUSIVE
    assert gate.after(found)[0].startswith("gate: undecided: a part could not be compared here")
    said = gate.markdown(found)
    assert "Not compared: cyclonedds/65B over cyclonedds/64B." in said
    assert "without cyclonedds: it is not built" in said


def test_a_gate_that_lost_what_it_needs_is_refused_before_it_runs():
    whole = plan.make(experiment.parse(BUILDS, "t"))
    lost = frozenset(cell.id for cell in whole.cells if int(cell.levels["clients"]) > 4)
    absent = [cuts.Absent("four builds", "they are not there", lost)]
    with pytest.raises(UsageError, match="can never show that anything is slower"):
        cuts.without(whole, absent)


def test_a_run_goes_on_until_it_is_clear_and_no_longer(tmp_path):
    record = made(tmp_path, SEVERAL, scale={"udp/65B": 1.0, "cyclonedds/65B": 1.015}, spread=0.02)
    at = {}
    for blocks in range(21):
        seen = [trial for trial in record.trials() if trial.block < blocks]
        at[blocks] = analysis.gate_stop(record, seen, blocks)
    assert all(at[blocks].action is Action.CONTINUE for blocks in range(8))
    assert len(at[7].wide) == 2
    ended = min(blocks for blocks, found in at.items() if found.action is not Action.CONTINUE)
    assert 8 < ended < 20
    assert at[ended].action is Action.STOP
    # Of two comparisons the one that is decided needs no more blocks.
    assert any(len(found.wide) == 1 for found in at.values())


def test_a_gate_that_is_undecided_ends_at_its_last_block(tmp_path):
    record = made(tmp_path, spread=0.3)
    found = analysis.gate_stop(record, record.trials(), 20)
    assert found.action is Action.CAP_REACHED


def test_a_gate_has_no_second_arms_unless_they_are_asked_for():
    text = TEXT.replace("gate:", "a_a: [{payload: 64 B}]\ngate:")
    assert len(plan.make(experiment.parse(TEXT, "t")).cells) == 2
    assert len(plan.make(experiment.parse(text, "t")).cells) == 3


def test_replicas_of_versions_are_judged_as_one(tmp_path):
    found = answered(made(tmp_path, BUILDS, scale={"65B/2": 1.1, "65B/3": 1 / 1.1}))
    (one,) = found.gating.answers
    assert len(one.comparisons) == 8
    assert one.found.verdict is Verdict.INCONCLUSIVE  # two builds differ, six do not
    assert one.found.spread is None
    assert one.name == "65B/1 over 64B/1, over 8 levels of clients"
    assert "Undecided, after 20 of at most 20 blocks." in report.render(found)
    slower = {f"65B/{n}": 1.1 for n in range(1, 9)}
    (tmp_path / "all").mkdir()
    assert answered(made(tmp_path / "all", BUILDS, scale=slower)).gating.verdict is Verdict.SLOWER


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("gate:", "family: none\ngate:"), "a gate has nothing to judge"),
        (TEXT.replace("fail_on: slower", "over: build"), "gate.over: 'build' is not among"),
        (BUILDS.replace(", 5, 6, 7, 8", ""), "4 levels of clients can never show"),
        (TEXT.replace("slower}", "faster}"), "gate.fail_on: has to be 'slower', not 'faster'"),
        (TEXT.replace("fail_on: slower", "significance: 5"), "500 %"),
        (TEXT.replace("fail_on: slower", "significance: 60 %"), "no error rate"),
        (TEXT.replace("fail_on: slower", "finds: much"), "a share such as"),
    ],
)
def test_a_gate_that_could_not_decide_is_refused(text, said):
    with pytest.raises(UsageError) as error:
        plan.make(experiment.parse(text, "t"))
    assert said in str(error.value)


def test_the_command_line_puts_a_gate_over_the_file():
    asked = experiment.parse(TEXT.replace("gate: {fail_on: slower}\n", ""), "t")
    found = options.put_on(asked, "slower", "2%", "1%")
    assert found.gate is not None
    assert (found.margin_share, found.gate.significance_share) == (0.02, 0.01)
    assert options.put_on(asked, None, None, None).gate is None
    declared = experiment.parse(TEXT, "t")
    assert options.put_on(declared, None, None, None) == declared
    again = options.put_on(declared, None, None, "1%").gate
    assert again is not None
    assert again.significance == "1%"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ((None, "2%", None), "add --fail-on slower"),
        (("faster", None, None), "--fail-on of a run takes slower"),
        (("slower", "2", None), "--margin: '2' is 200 %"),
        (("slower", None, "90%"), "--significance: 90% is no error rate"),
    ],
)
def test_a_wrong_option_of_a_gate_is_named(rule, said):
    asked = experiment.parse(TEXT.replace("gate: {fail_on: slower}\n", ""), "t")
    with pytest.raises(UsageError) as error:
        options.put_on(asked, *rule)
    assert said in str(error.value)


def test_what_can_be_found_in_which_time_is_told_before_it_runs():
    first, *rest = gate.before(plan.make(experiment.parse(TEXT, "t")))
    assert "1 slower, 0 no worse (3 % slower is ruled out), 5 undecided after 20 blocks" in first
    assert "equal versions fail at most 5 times in 100" in first
    limits = [float(re.findall(r"at most ([\d.]+) %", line)[0]) for line in rest]
    assert [line.split(" (")[0] for line in rest] == ["in 8 blocks", "in 20 blocks"]
    assert limits == sorted(limits)
    assert gate.before(plan.make(experiment.parse(TEXT.replace("gate:", "#"), "t"))) == []


def test_the_report_and_json_tell_the_gate_s_answer(tmp_path):
    found = answered(made(tmp_path, scale={"65B": 1.10}))
    page = report.render(found)
    assert "Gate: slower, after 20 of at most 20 blocks; 65B over 64B: slower; ratio 1." in page
    assert "The run is a gate" in page
    assert "The run stops on the width" not in page
    told = json.loads(json.dumps(report.as_json(found), default=str))
    assert told["gating"]["verdict"] == "slower"
    assert told["gating"]["answers"][0]["found"]["at_least"] > 1.05


def test_the_summary_for_a_pull_request_is_a_table_of_markdown(tmp_path):
    found = answered(made(tmp_path, SEVERAL))
    said = gate.markdown(found)
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in rows} == {9}
    assert "**no worse: 3 % slower is ruled out, after 20 of at most 20 blocks**" in said
    assert "| udp/65B over udp/64B | no worse |" in said


def test_a_title_is_no_markup_in_a_pull_request(tmp_path):
    record = made(tmp_path, SEVERAL.replace("title: ", 'title: "@all|" # ', 1))
    first = gate.markdown(answered(record)).splitlines()[0]
    assert first == r"### &#64;all\|"


def test_a_summary_is_appended_and_what_was_run_is_noted(tmp_path):
    record = made(tmp_path)
    target = tmp_path / "summary.md"
    target.write_text("before\n")
    assert options.end(record, target) is Exit.OK
    assert target.read_text().startswith("before\n### Is the new one slower?")
    noted = options.noted("title: t\n", "slower", "5 %", "1%")
    said = "--fail-on slower --margin '5 %' --significance 1%"
    assert noted == f"# It was run with {said}.\ntitle: t\n"
    plain = records.make(tmp_path / "plain", QUIET, TEXT.replace("gate:", "#"))
    assert options.end(plain, None) is None


def test_to_do_it_again_has_the_gate_and_the_bounds_that_the_file_has_not(tmp_path):
    bare = experiment.parse(TEXT.replace("gate:", "#"), "x.yaml")
    asked = options.put_on(bare, "slower", "2%", "1%")
    asked = polite.put_on(asked, "25%", polite=True)
    again = "--fail-on slower --significance 1% --margin 2% --polite --share 25%"
    assert " ".join(asked.options) == again
    assert bare.options == ()
    text = f"{TEXT}polite: {{processors: 25%, memory: 25%}}\nmargin: 2%\n"
    record = records.make(tmp_path / "r", QUIET, text)
    page = report.render(analysis.analyse(record))
    assert f"--seed {record.plan.seed} {again.replace('1%', '&#39;5 %&#39;')}</pre>" in page
    with pytest.raises(UsageError) as refused:
        run._refuse_result(record.folder)
    assert refused.value.remedy.endswith(f"experiment.yaml {again.replace('1%', repr('5 %'))}")


def test_a_result_of_a_gate_is_exported_like_any(tmp_path):
    record = made(tmp_path, scale={"65B": 1.10})
    out = Path(tmp_path / "t.csv")
    export.export(record, "csv", out)
    assert out.read_text().count("\n") > 40
