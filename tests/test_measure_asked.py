"""From what is typed to the experiment file that it stands for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from needs import refused, tare
from tare import experiment, plan
from tare.cli import measure
from tare.cli.asked import Asked, by_option, levels, variables, written
from tare.command import PATH
from tare.document import MOST_BYTES
from tare.errors import Exit, Fault, FaultyFileError, UsageError


def asked(command: str, **more: Any) -> Asked:
    given_: dict[str, Any] = {"against": [], "factors": {}, "parameters": [], "session": {}}
    given_ |= {"read": [], "expect": []}
    return Asked(command=shlex.split(command), **(given_ | more))


def laid_out(found: Asked) -> plan.Plan:
    text = written(found.document(), ["tare", "measure", "..."])
    return plan.make(experiment.parse(text, "what was typed"), 1)


def comparisons(found: Asked) -> list[str]:
    return [c.id for c in laid_out(found).comparisons if c.kind == "effect"]


def test_one_command_in_one_place_is_measured_twice_and_compared_with_itself() -> None:
    found = laid_out(asked("gzip -9 -c 'a file'"))
    assert [cell.id for cell in found.cells] == ["native", "native#2"]
    assert found.experiment.commands == {"gzip": "gzip -9 -c 'a file'"}


def test_environments_are_compared_with_the_first() -> None:
    factors = {"environment": ["container", "native"]}
    assert comparisons(asked("true", factors=factors)) == ["native over container"]


def test_another_command_is_what_the_first_is_held_against_in_each_environment() -> None:
    factors = {"environment": ["native", "container"]}
    found = asked("./new/app -x", against=["./old/app -y"], factors=factors)
    assert found.document()["factors"]["command"] == {
        "new": "./new/app -x",
        "old": "./old/app -y",
    }
    assert comparisons(found) == [
        "native/new over native/old",
        "container/new over container/old",
    ]


def test_a_program_alone_is_given_the_same_arguments() -> None:
    found = asked("gzip -9 {file} --parameter file=a,b", against=["pigz"])
    document = found.document()
    assert document["factors"]["command"] == {"gzip": "gzip -9 {file}", "pigz": "pigz -9 {file}"}
    assert document["factors"]["file"] == ["a", "b"]


def test_a_parameter_behind_the_command_is_ours_only_where_it_has_a_place() -> None:
    found = asked("app {n} --parameter m=1 --parameter n=1").document()
    assert found["factors"]["command"] == {"app": "app {n} --parameter m=1"}
    assert found["factors"]["n"] == ["1"]


def test_a_parameter_of_one_command_is_compared_with_its_first_level() -> None:
    assert comparisons(asked("app {n}", parameters=["n=1,2"])) == ["2 over 1"]


def test_a_quoted_line_is_a_line_and_a_program_of_that_name_a_program(tmp_path: Path) -> None:
    assert asked("'gzip -c x'").document()["factors"]["command"] == {"gzip": "gzip -c x"}
    mine = tmp_path / "my program"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o755)
    line = f"'{mine}'"
    assert [*asked(f'"{line}"').document()["factors"]["command"].values()] == [line]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"parameters": ["n"]}, "cannot read --parameter 'n'"),
        ({"parameters": ["environment=1"]}, "that is a factor"),
        ({"read": ["qps"]}, "cannot read --read 'qps'"),
        ({"expect": ["something"]}, "cannot read --expect 'something'"),
    ],
)
def test_what_cannot_be_read_is_said(more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked("true", **more).document()


def test_a_gate_looks_at_two_commands_until_it_is_clear() -> None:
    found = asked("./new/app", against=["./old/app"], gate={"fail_on": "slower"}, margin="5%")
    gated = laid_out(found)
    assert gated.gate is not None
    assert (gated.gate.margin, gated.gate.looks.least, gated.gate.looks.most) == (0.05, 8, 30)
    assert list(gated.gated) == ["new over old"]
    assert len(gated.cells) == 2  # no second arm
    found.blocks = 12
    assert len(laid_out(found).blocks) == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--fail-on", "faster", "--against", "true"],
            "--fail-on: has to be 'slower', not 'faster'",
        ),
        (["--fail-on", "slower"], "a gate has nothing to judge"),
        (["--margin", "5%", "--against", "true"], "add --fail-on"),
    ],
)
def test_a_gate_that_cannot_be_is_refused(options: list[str], said: str) -> None:
    found = tare("measure", "--dry-run", *options, "--", "true")
    assert found.returncode == Exit.USAGE
    assert said in found.stderr


def test_a_plan_without_a_level_that_all_cells_share_says_nothing_of_one() -> None:
    options = ["--in", "native,container", "--placement", "same-core,anywhere", "--against", "yes"]
    options += ["--interference", "none,host cpu 50 %"]
    found = tare("measure", "--dry-run", *options, "--", "true")
    assert found.returncode == Exit.USAGE
    assert "measure 9 or more (`blocks.min`, of a command --blocks)" in found.stderr
    found = tare("measure", "--dry-run", *options, "--blocks", "20", "--", "true")
    assert found.returncode == 0, found.stderr
    assert "every cell" not in found.stdout


def test_an_export_that_cannot_be_written_keeps_no_other_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=300))
    there, nowhere = tmp_path / "x.csv", tmp_path / "gone" / "x.json"
    assert measure._export(record, [("json", nowhere), ("csv", there)]) is Exit.UNAVAILABLE
    assert f"cannot write {nowhere}" in capsys.readouterr().err.replace("\n", "")
    assert there.read_text().startswith("run,")
    assert measure._export(record, [("csv", there)]) is Exit.OK


def test_nothing_to_run_is_said() -> None:
    with pytest.raises(UsageError, match="give a command"):
        asked("").document()


def test_numbers_and_expectations_are_read() -> None:
    found = asked(
        "app",
        read=["qps:1/s=(\\d+) q=", "p99:us:lower=json:all.p99"],
        expect=["exit 3", "output ^done", f"out sha256:{'0' * 64}"],
        statistic="qps",
    )
    document = found.document()
    assert document["read"] == {
        "qps": {"regex": "(\\d+) q=", "unit": "1/s"},
        "p99": {"json": "all.p99", "unit": "us", "better": "lower"},
    }
    assert document["session"] == {
        "expect_exit": "3", "expect_output": "^done", "expect_file": f"out sha256:{'0' * 64}",
    }  # fmt: skip
    assert laid_out(found).workload.statistics["qps"].unit == "1/s"


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("expect", ["output ^a$", "output ^b$"], "--expect: output is given twice"),
        ("expect", [f"a sha256:{'0' * 64}", f"b sha256:{'1' * 64}"], "--expect: file is given"),
        ("read", ["a=x", "a=y"], "--read: a is given twice"),
        ("parameters", ["t=1,2", "t=4"], "--parameter: t is given twice"),
    ],
)
def test_what_is_given_twice_is_not_dropped_in_silence(
    option: str, given: list[str], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        asked("app {t}", **{option: given}).document()


def test_only_an_unusual_path_goes_along() -> None:
    assert variables(["A=b c"], {"PATH": PATH}) == "'A=b c'"
    assert variables([], {"PATH": "/opt/bin"}) == "PATH=/opt/bin"
    assert variables(["PATH=/x"], {"PATH": "/opt/bin"}) == "PATH=/x"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1)))
def test_every_word_arrives_as_it_was_typed(words: list[str]) -> None:
    found = Asked(["app", *words, "end"], [], {}, [], {}, [], [])
    text = written(found.document(), ["tare"])
    (line,) = experiment.parse(text, "x").commands.values()
    assert shlex.split(line) == ["app", *words, "end"]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["--warmup", "-1", "--expect", "exit 300"], ["--warmup: '-1'", "--expect: '300'"]),
        (["--in", "natve"], ["--in: 'natve'"]),
        (["--memory", "1Q", "--in", "qemu"], ["--memory: '1Q'"]),
        (["-P", "n=1,2"], ["--parameter n: unknown"]),
        (["--blocks", "1"], ["--blocks: has to be 2 or more"]),
        (["--blocks", "0", "--fail-on", "slower"], ["--blocks: has to be 2 or more"]),
        (["--polite", "--share", "0.1%"], ["--share: 0.1% is no share to run within: 1 % or more"]),
        (["--polite", "--share", "100%"], ["--share: '100%' is 100 %, and has to lie"]),
        (["--read", "x=("], ["--read x: is no regular expression"]),
        (
            ["-P", "n=1,2", "--prepare", "echo {n}", "--keep", "out-{n}"],
            ["--keep: is the same for all cells and cannot hold {n}"],
        ),
        (["--fail-on", "slower", "--significance", "90%"], ["--significance: 90%"]),
        (["--against", ""], ["the command: has to be"]),
    ],
)
def test_what_is_wrong_is_told_by_its_option(typed: list[str], told: list[str]) -> None:
    done = tare("measure", *typed, "--", "true")
    assert done.returncode == Exit.USAGE
    *faults, remedy = done.stderr.removeprefix("tare: ").splitlines()
    assert len(faults) == len(told)
    assert all(fault.startswith(words) for fault, words in zip(faults, told, strict=True))
    assert "tare measure --help" in remedy


def test_what_is_wrong_with_all_that_was_typed_is_of_no_option() -> None:
    too_much = FaultyFileError("what was typed", [Fault(1, "", "too much")], "give less")
    assert by_option(too_much) is too_much


def test_what_a_file_cannot_hold_is_told_before_anything_is_run() -> None:
    words = ("--read", "qps:1/s=([0-9]+)", "--statistic", "qps", "--dry-run", "--", "true")
    asked = ("measure", "--export", "google-benchmark=f.json", *words)
    refused("a file of Google Benchmark's holds times, and qps is in 1/s", *asked)
    assert tare("measure", "--export", "openmetrics=f.prom", *words).returncode == 0


def test_a_search_path_of_many_folders_is_no_level_and_may_be_long() -> None:
    path = ":".join(f"/nix/store/{number:032d}-package/bin" for number in range(60))
    found = tare("measure", "--dry-run", "--", "true", PATH=f"/usr/bin:/bin:{path}")
    assert found.returncode == 0, found.stderr
    assert f"PATH=/usr/bin:/bin:{path}" in found.stdout


def test_a_level_may_hold_commas_and_begin_as_a_key_of_yaml() -> None:
    assert levels("placement", "server=0,1") == ["server=0,1"]
    assert levels("environment", "native, qemu") == ["native", "qemu"]
    found = laid_out(asked("echo {q}", parameters=["q=?_,b"]))
    assert found.experiment.factors["q"] == ("?_", "b")


def test_a_line_end_that_yaml_would_fold_arrives_as_it_was_typed() -> None:
    more = {"parameters": ["q=c\x85d,e"], "session": {"prepare": "f\x85g"}}
    found = laid_out(asked("app a\x85b {q}", **more)).experiment
    assert found.commands == {"app": "app 'a\x85b' {q}"}
    assert found.factors["q"] == ("c\x85d", "e")
    assert str(found.session["prepare"]) == "f\x85g"


def test_braces_that_are_no_parameters_are_quoted_for_a_shell() -> None:
    found = asked("echo", session={"shell": "bash"})
    found.command.extend(["a{1,2}", "{x,y}", "{1..3}"])
    assert laid_out(found).experiment.commands == {"echo": "echo 'a{1,2}' '{x,y}' '{1..3}'"}


def test_many_words_are_a_file_that_can_be_read_again() -> None:
    line = shlex.join(["cat", *(f"logs/{n:03}-of-an-ordinary-name.log" for n in range(1000))])
    text = written(asked(line).document(), ["tare", "measure", "--", *shlex.split(line)])
    assert len(line) < len(text) < MOST_BYTES < 3 * len(line)
    assert experiment.parse(text, "x").commands == {"cat": line}
    done = tare("measure", "--dry-run", "--", "cat", *["a-name-of-some-length"] * 5000)
    assert done.returncode == Exit.USAGE
    assert "64 KiB of an experiment file" in done.stderr


def test_what_is_too_long_is_told_as_that() -> None:
    for options, said in (
        (("--prepare", "x" * 20_001), "--prepare: is longer than 20000 characters"),
        (("--placement", "x" * 2_001), "--placement: is longer than 2000 characters"),
    ):
        refused(said, "measure", "--dry-run", *options, "--", "true")
