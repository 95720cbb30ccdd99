"""`tare new` writes what `tare check` passes, over nothing; what is wrong is told by its line."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needs import HOME, in_a_line, tare
from tare import draft, experiment, workloads
from tare.check import check
from tare.errors import Exit, UsageError

BROKEN = "title: t\nfactors:\n  transport: [ucp]\n  payload: 1 XB\nbaseline: {}\nmargin: 3\n"


def test_every_fault_is_told_with_its_line_and_a_remedy(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(BROKEN)
    found = tare("check", str(path))
    assert found.returncode == Exit.USAGE
    told = [line for line in found.stdout.splitlines() if line.startswith(f"{path}:")]
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in told] == ["3", "4", "6"]
    assert "'ucp' is not one of icmp" in told[0]
    in_a_line(found, "`tare schema` prints what is allowed")


def test_faults_are_told_to_machines_by_line_and_field():
    found = tare("check", "-", "--json", typed=BROKEN)
    assert found.returncode == Exit.USAGE
    (file,) = json.loads(found.stdout)["files"]
    assert not file["valid"]
    faults = [(fault["line"], fault["field"]) for fault in file["faults"]]
    assert faults == [(3, "factors.transport.0"), (4, "factors.payload"), (6, "margin")]


@pytest.mark.parametrize("text", ["\x00", "[1, 2", "", "title: [", "a: &a [*a]", "title: t\x85"])
def test_what_is_no_yaml_has_a_line_too(text):
    (found,) = check(text, Path("x.yaml"))
    assert found.faults or found.error
    assert found.remedy


def test_what_is_no_text_at_all_is_told(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"title: t\nfactors: \xff\n")
    found = tare("check", str(path), str(tmp_path / "nowhere.yaml"))
    assert found.returncode == Exit.USAGE
    assert f"{path}:2: not UTF-8" in found.stdout
    assert "nowhere.yaml: No such file" in found.stdout


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        ("</dev/zero", "<stdin> is larger than 64 KiB"),
        ("<&-", "standard input is closed"),
    ],
)
def test_a_standard_input_that_is_no_text_is_told(stdin, said):
    argv = ["sh", "-c", f'ulimit -v 4194304; exec "$0" -m tare check - {stdin}', sys.executable]
    found = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == Exit.USAGE, found.stderr
    assert said in found.stdout


def test_a_plan_that_cannot_answer_is_told_although_no_line_is_wrong():
    text = "title: t\nfactors: {transport: [udp, tcp, icmp]}\nbaseline: {transport: udp}\n"
    (found,) = check(text + "blocks: {min: 2}\n", Path("x.yaml"))
    assert "2 blocks cannot resolve 2 comparisons" in found.error


def test_the_parts_of_a_suite_are_checked_each(tmp_path):
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: udp}\n")
    bad.write_text(BROKEN)
    whole = tmp_path / "suite.yaml"
    whole.write_text("title: s\nparts:\n  - good.yaml\n  - bad.yaml\n")
    assert [found.valid for found in check(whole.read_text(), whole)] == [True, True, False]
    whole.write_text("title: s\nparts:\n  - good.yaml\n  - none.yaml\n")
    (found,) = check(whole.read_text(), whole)
    assert [(fault.line, fault.field) for fault in found.faults] == [(4, "parts.1")]


def test_all_experiments_that_ship_are_valid_and_say_their_size():
    found = tare("check", *map(str, sorted((HOME / "experiments").glob("*.yaml"))))
    assert found.returncode == 0, found.stdout
    said = next(line for line in found.stdout.splitlines() if "quickstart.yaml" in line)
    assert re.search(r"quickstart\.yaml: valid: 14 cells, \S+ to \S+ blocks, about \S+", said)


@pytest.mark.parametrize("name", sorted(workloads.by_name()))
def test_a_draft_of_every_workload_is_valid_and_explains_all_its_rows(name):
    kind = workloads.by_name()[name]
    rows = [row for row in kind.levels.rows.values() if row.choices or len(row.examples) > 1]
    row = kind.levels.rows["arm"] if name == "migration" else rows[0]  # a shell knows no web server
    factors = {row.name: [row.level(text) for text in (row.choices or row.examples)[:2]]}
    if name == "command":
        factors["command"] = ["gzip -9 -c a,b"]
    if name == "service":
        factors |= {"server": ["redis-server --port {port}"], "client": ["redis-cli -h {address}"]}
    made = draft.draft(draft.Wishes(name, factors))
    (found,) = check(made.text, Path("x.yaml"))
    assert found.valid, found
    for known in (*kind.levels.rows, *kind.settings.rows):
        assert f"{known}: " in made.text
    assert experiment.parse(made.text, "x.yaml").workload == name


@given(title=st.text(min_size=1).filter(str.strip))
def test_any_title_is_written_so_that_it_is_read_back(title):
    wishes = draft.Wishes(factors={"transport": ["udp", "tcp"]}, title=title)
    assert experiment.parse(draft.draft(wishes).text, "x.yaml").title == title


def test_a_budget_gives_as_many_blocks_as_fit_and_says_when_none_do():
    wishes = draft.Wishes(factors={"transport": ["udp", "tcp"]}, budget_s=120.0)
    plan = draft.draft(wishes).plan
    assert plan.seconds(len(plan.blocks)) <= 120.0 < plan.seconds(len(plan.blocks) + 1)
    with pytest.raises(UsageError, match="the budget is 5 s"):
        draft.draft(draft.Wishes(factors={"transport": ["udp", "tcp"]}, budget_s=5.0))


def test_flags_make_a_file_that_runs_and_that_is_not_overwritten(tmp_path):
    path = tmp_path / "mine.yaml"
    flags = ("--in", "native,container", "--factor", "payload=64 B,4 KiB", "--blocks", "9..12")
    made = tare("new", str(path), *flags, "--baseline", "payload=64 B", "--title", "Mine: how?")
    assert made.returncode == 0, made.stderr
    asked = experiment.load(path)
    assert (asked.title, dict(asked.baseline)) == ("Mine: how?", {"payload": "64 B"})
    assert (asked.blocks.min, asked.blocks.max) == (9, 12)
    assert tare("run", str(path), "--dry-run").returncode == 0
    path.write_text("mine")
    again = tare("new", str(path), *flags)
    assert again.returncode == Exit.USAGE
    in_a_line(again, f"{path} exists, and is not overwritten")
    assert path.read_text() == "mine"


def test_a_draft_goes_through_a_pipe_into_check():
    made = tare("new", "--workload", "cpu", "--in", "native,container")
    assert tare("check", "-", typed=made.stdout).returncode == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "no terminal is there to ask at"),
        (["--in", "native"], "nothing is compared"),
        (["--in", "native,nowhere"], "environment: 'nowhere' is not one of native"),
        (["--factor", "speed=1,2"], "request-reply has no factor 'speed'"),
        (["--factor", "payload"], "'payload' names no levels"),
        (["--in", "native,uml", "--blocks", "few"], "'few' is no number of blocks"),
        (["--in", "native,uml", "--budget", "soon"], "cannot read 'soon'"),
        (["--in", "native,uml", "--blocks", "8", "--budget", "5m"], "not both"),
        (["--in", "native,uml", "--baseline", "environment=native,uml"], "names several levels"),
        (["--in", "native,uml", "--workload", "sleep"], "'sleep' is no workload"),
        (["--in", "native,uml", "--statistic", "p51"], "did you mean 'p50'?"),
        (["--in", "native,uml", "--statistic", "p99 # or p50"], "'p99 # or p50'"),
        (["--in", "native,uml", "--margin", "3 % # or 5 %"], "cannot read '3 % # or 5 %'"),
        (["--in", "native,uml", "--blocks", "9" * 5000], "is no number of blocks"),
    ],
)
def test_what_cannot_be_drafted_is_answered_in_a_sentence(argv, said):
    found = tare("new", *argv)
    assert found.returncode == Exit.USAGE
    assert found.stdout == ""
    in_a_line(found, said)


def at_a_terminal(answers: list[str], *argv: str, cwd: Path) -> tuple[int, str]:
    """Run tare with a terminal, and answer each of its questions in turn."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(cwd)
        os.execv(sys.executable, [sys.executable, "-m", "tare", *argv])
    said, waiting = "", list(answers)
    while True:
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:  # it ended
            break
        if waiting and said.rstrip("\r\n").endswith("]: "):
            os.write(terminal, waiting.pop(0).encode())
            said += "\n"
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def test_questions_are_asked_again_until_the_answer_can_be_read(tmp_path):
    answers = [
        "nothing\r", "request-reply\r", "environment, payload\r", "native,nowhere\r",
        "native,container\r", "64 B, 1 KiB\r", "\r", "container\r", "\r", "5s\r", "10m\r",
        "Which?\r", "mine.yaml\r",
    ]  # fmt: skip
    status, said = at_a_terminal(answers, "new", cwd=tmp_path)
    assert status == 0, said
    for told in ("'nothing' is none of them", "'nowhere' is not one of", "the budget is 5 s"):
        assert told in said
    asked = experiment.load(tmp_path / "mine.yaml")
    assert asked.title == "Which?"
    assert asked.factors["payload"] == ("64 B", "1 KiB")
    assert dict(asked.baseline) == {"environment": "container"}


def test_what_an_option_says_is_not_asked_again_and_not_forgotten(tmp_path):
    options = ["--margin", "7 %", "--statistic", "p99", "--blocks", "9", "--title", "Which?"]
    options += ["--workload", "request-reply", "--baseline", "environment=container"]
    # One question more would be ended.
    answers = ["environment\r", "native,container\r", "mine.yaml\r", "\x03\x04"]
    status, said = at_a_terminal(answers, "new", *options, cwd=tmp_path)
    assert status == 0, said
    asked = experiment.load(tmp_path / "mine.yaml")
    assert (asked.margin, asked.statistic, asked.title) == ("7 %", "p99", "Which?")
    assert (asked.blocks.min, asked.blocks.max) == (9, 9)
    assert dict(asked.baseline) == {"environment": "container"}


def test_ctrl_c_at_a_question_ends_it_without_a_file(tmp_path):
    # The end of the input wakes a reader that the signal met just before it slept.
    status, said = at_a_terminal(["\x03\x04"], "new", cwd=tmp_path)
    assert status == Exit.INTERRUPTED
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
