import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import records
from needs import HOME, SMALL, in_a_line, refused, tare
from tare.cli import claim, results
from tare.cli.run import instead
from tare.command import shell_line
from tare.errors import Exit, TareError, UnavailableError


def test_help_names_every_command_and_the_exit_codes():
    said = tare("--help").stdout
    for word in (
        "run",
        "report",
        "compare",
        "doctor",
        "list",
        "export",
        "history",
        "clean",
        "claim",
        "schema",
    ):
        assert word in said
    assert "130 interrupted" in " ".join(said.split())


def test_one_page_has_every_exit_code_that_help_has():
    page = (HOME / "docs/exit-codes.md").read_text()
    assert [int(n) for n in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(Exit)
    said = " ".join(tare("--help").stdout.split())
    assert [int(n) for n in re.findall(r"(\d+) [a-z]", said.partition("Exit codes:")[2])] == list(
        Exit
    )


def test_a_broken_experiment_is_a_usage_error_with_file_and_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("title: t\nfactors: {transport: [ucp]}\nbaseline: {}\n")
    found = tare("run", str(path))
    assert found.returncode == Exit.USAGE
    assert f"{path}:2: factors.transport.0: 'ucp' is not one of icmp" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_defect_is_no_verdict():
    broken = "from tare import cli; cli.document.refuse_bytes = None; cli.main()"
    found = subprocess.run(
        [sys.executable, "-c", broken], capture_output=True, text=True, check=False
    )
    assert found.returncode == Exit.DEFECT
    assert "Traceback" in found.stderr
    assert "please report" in found.stderr


def test_no_error_has_the_exit_code_of_a_verdict():
    kinds = [TareError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        assert kind.exit_code not in (Exit.OK, Exit.FAILED, Exit.INCONCLUSIVE), kind


def test_run_wants_either_a_file_or_a_folder():
    assert tare("run").returncode == Exit.USAGE


def test_a_dry_run_prints_the_plan_for_machines_and_starts_nothing(tmp_path):
    found = tare("run", str(HOME / "experiments/quickstart.yaml"), "--dry-run", "--json",
                 cwd=tmp_path)  # fmt: skip
    plan = json.loads(found.stdout)
    assert len(plan["cells"]) == 14
    assert plan["seconds"]["least"] > 0
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_ships_is_found_by_its_name(tmp_path):
    found = tare("run", "quickstart", "--dry-run", "--json", cwd=tmp_path)
    assert len(json.loads(found.stdout)["cells"]) == 14
    assert tare("check", "quickstart", "kvm-overhead", cwd=tmp_path).returncode == 0
    (tmp_path / "quickstart").write_text("title: [\n")  # what is there comes first
    assert tare("check", "quickstart", cwd=tmp_path).returncode == Exit.USAGE


def test_where_only_the_host_is_there_its_own_experiment_is_run_instead():
    error = UnavailableError("nothing is left to compare here")
    native = instead(HOME / "experiments/quickstart.yaml", error)
    assert native == HOME / "experiments/quickstart-native.yaml"
    assert tare("check", str(native)).returncode == 0
    with pytest.raises(UnavailableError, match="nothing is left"):
        instead(HOME / "experiments/load.yaml", error)


def test_a_budget_says_what_it_cut(tmp_path):
    found = tare("run", str(HOME / "experiments/dds-in-virtual-machines.yaml"),
                 "--dry-run", "--budget", "10m", "--json")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["cuts"]


def test_what_would_take_weeks_is_refused_unless_a_budget_says_that_it_is_meant(tmp_path):
    path = tmp_path / "long.yaml"
    path.write_text(
        "title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: udp}\n"
        "session: {requests: 2147483648}\n"
    )
    refused("the least that is asked for takes about 4", "run", str(path), "--dry-run")
    assert tare("run", str(path), "--dry-run", "--budget", "9000 h").returncode == 0


def test_what_a_plan_cannot_answer_is_refused_with_its_file(tmp_path):
    path = tmp_path / "bare.yaml"
    path.write_text(
        "title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: udp}\n"
        "exclude: [{transport: udp}]\n"
    )
    refused(f"{path}: baseline: no cell is left with transport: udp", "run", str(path), "--dry-run")


def test_an_impossible_budget_is_refused_with_what_it_would_take():
    found = tare("run", str(HOME / "experiments/quickstart.yaml"), "--dry-run", "--budget", "5s")
    assert found.returncode == Exit.USAGE
    assert "too short" in found.stderr


def test_a_budget_that_is_too_short_for_a_part_says_of_which_and_what_was_given():
    found = tare("run", str(HOME / "experiments/environments.yaml"), "--dry-run", "--budget", "2m")
    assert found.returncode == Exit.USAGE
    parts = r"2 min for \d parts is too short; [a-z-]+, by its share: a budget of \d"
    assert re.search(parts, found.stderr)
    found = tare("replay", "B", "--dry-run", "--budget", "1s")
    assert found.returncode == Exit.USAGE
    assert re.search(r"tare: [a-z-]+: a budget of 1 s is too short", found.stderr)


def test_the_report_of_a_result_can_be_drawn_again_and_read_by_machines(tmp_path):
    record = records.small(tmp_path / "r")
    found = tare("report", str(record.folder), "--json")
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert Path(said["report"]).is_file()
    assert said["result"] == str(record.folder)


def test_what_is_no_result_is_named(tmp_path):
    found = tare("report", str(tmp_path))
    assert found.returncode == Exit.USAGE
    assert "is not a result" in " ".join(found.stderr.split())


def test_compare_fails_on_a_slower_result_and_only_then(tmp_path):
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    text = "title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: udp}\n"
    for run in range(4):
        records.make(a / str(run), records.Recipe(seed=run, requests=100), text)
        slower = records.Recipe(seed=10 + run, requests=100, scale={"udp": 1.5})
        records.make(b / str(run), slower, text)
    assert tare("compare", str(a), str(b), "--fail-on", "slower").returncode == 1
    assert tare("compare", str(b), str(a), "--fail-on", "slower").returncode == 0
    one = tare("compare", str(a / "0"), str(b / "0"), "--fail-on", "slower", "--json")
    assert one.returncode == 5
    assert "no verdict" in one.stderr
    assert json.loads(one.stdout)["runs"] == [1, 1]
    assert tare("compare", str(a / "0"), str(b / "0")).returncode == 0
    shutil.copytree(a, c)
    for run in range(4):  # a run is known by its plan and its first trial
        trials = c / str(run) / "trials.ndjson"
        trials.write_text(trials.read_text().replace("2026-01-01", "2026-01-02"))
    three = tare("compare", *map(str, (a, c, b)), "--json", "--fail-on", "slower")
    assert three.returncode == 1
    assert [len(one["cells"]) for one in json.loads(three.stdout)["comparisons"]] == [2, 2]
    told = tare("compare", str(a), str(b), "--markdown").stdout
    assert "| **slower** | udp |" in told
    # Against themselves runs are no slower, whatever the version is: a slip that passes a gate.
    shutil.copytree(b / "2", c / "4")
    for later in (b, c):
        itself = tare("compare", str(b), str(later), "--fail-on", "slower")
        assert itself.returncode == Exit.USAGE
        in_a_line(itself, "on both sides")


@pytest.mark.parametrize(
    ("later", "code"),
    [({"failing": frozenset((block, "icmp") for block in range(8))}, 4), ({}, 5)],
)
def test_compare_lets_nothing_pass_that_failed_or_is_missing(tmp_path, later, code):
    a, b = tmp_path / "a", tmp_path / "b"
    text = "title: t\nfactors: {transport: [udp, icmp, fastdds]}\nbaseline: {transport: udp}\n"
    missing = text if later else text.replace(", fastdds", "")
    for run in range(4):
        records.make(a / str(run), records.Recipe(seed=run, requests=100), text)
        records.make(b / str(run), records.Recipe(seed=9 + run, requests=100, **later), missing)
    found = tare("compare", str(a), str(b), "--fail-on", "slower")
    assert found.returncode == code
    assert f"no verdict of {'icmp' if later else 'fastdds'}" in " ".join(found.stdout.split())


def test_compare_lets_nothing_pass_with_a_run_that_has_not_ended(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    text = "title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: udp}\n"
    for run in range(4):
        records.make(a / str(run), records.Recipe(seed=run, requests=100), text)
        records.make(b / str(run), records.Recipe(seed=9 + run, requests=100), text)
    trials = b / "3" / "trials.ndjson"
    kept = trials.read_text().splitlines(keepends=True)
    trials.write_text("".join(line for line in kept if '"block":0,' in line) + kept[2])
    found = tare("compare", str(a), str(b), "--fail-on", "slower")
    assert found.returncode == 5
    said = f"{b / '3'}: the run has not ended: 1 of at least 8 blocks are on record"
    assert said in found.stdout
    quiet = tare("compare", str(a), str(b), "--fail-on", "slower", "--json")
    assert json.loads(quiet.stdout)["unfinished"] == [said]
    assert said in quiet.stderr


def test_export_writes_a_table(tmp_path):
    record = records.small(tmp_path / "r")
    found = tare("export", str(record.folder), "--format", "csv")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("\n") == 1 + len(record.trials())


def test_list_shows_experiments_and_results(tmp_path):
    record = records.small(tmp_path / "results" / "r")
    rows = json.loads(tare("list", "--results", str(tmp_path / "results"), "--json").stdout)
    kinds = {row["path"]: row["kind"] for row in rows}
    assert kinds[str(record.folder)] == "result"
    assert kinds[str(HOME / "experiments/quickstart.yaml")] == "experiment"


def test_doctor_gives_a_remedy_for_every_no():
    found = json.loads(tare("doctor", "--json").stdout)
    assert {f["name"] for f in found} >= {"environment qemu", "transport cyclonedds"}
    assert all(f["remedy"] for f in found if not f["available"])


def test_an_unknown_claim_is_refused_with_the_known_ones():
    found = tare("claim", "check", "Z9")
    assert found.returncode == Exit.USAGE
    assert "A1" in found.stderr


def test_claims_need_a_checkout_and_say_so(tmp_path):
    shutil.copytree(HOME / "src/tare", tmp_path / "site-packages/tare")
    found = tare("claim", "list", cwd=tmp_path, PYTHONPATH=str(tmp_path / "site-packages"))
    assert found.returncode == Exit.UNAVAILABLE
    assert f"claims are checked in a checkout of Tare, and {tmp_path} is none" in found.stderr


def test_what_a_check_does_is_said_where_no_terminal_shows_it(capsys):
    with claim.standing() as tell:
        tell("A1: measures [x]")
        tell("block 1")  # within the same minute
    assert capsys.readouterr().err == "A1: measures [x]\n"


@pytest.mark.parametrize("command", ["run", "report", "compare", "export", "clean", "claim check"])
def test_every_command_has_help(command):
    said = tare(*command.split(), "--help").stdout
    assert "Usage" in said
    takes_no_value = r"--(help|json|dry-run|record|across-machines)"
    assert not re.search(rf"{takes_no_value} +<", said)


def test_a_paragraph_of_a_help_text_has_the_terminals_lines():
    said = tare("compare", "--help").stdout
    assert "compared with the first, and p-values are adjusted over all." in said


def test_messages_are_not_wrapped_so_that_paths_can_be_copied(tmp_path):
    deep = tmp_path / ("long" * 40)
    found = tare("report", deep, COLUMNS="60")
    in_a_line(found, f"{deep} is not a result: it has no plan.json")


def test_a_table_in_a_pipe_keeps_every_name_on_one_line(tmp_path):
    record = records.small(tmp_path / "results" / ("long" * 30))
    found = tare("list", "--results", tmp_path / "results", COLUMNS="")
    assert any(str(record.folder) in line for line in found.stdout.splitlines()), found.stdout


def test_nothing_is_predicted_in_words_and_not_by_an_empty_table(tmp_path):
    record = records.make(tmp_path / "r")
    found = tare("predict", str(record.folder), "--environment", "uml")
    assert found.returncode == Exit.FAILED
    assert found.stdout == ""
    in_a_line(found, "has no response to predict in uml")
    in_a_line(found, "tare run predict")
    page = (HOME / "docs/exit-codes.md").read_text()
    assert re.search(r"^\| 1 \|.*nothing of what `tare predict` was given", page, re.MULTILINE)


def test_a_result_given_for_an_experiment_is_told_apart(tmp_path):
    record = records.small(tmp_path / "r")
    refused(f"tare run --resume {record.folder}", "run", str(record.folder))


@pytest.mark.parametrize(
    "more", [["--dry-run"], ["--budget", "5m"], ["--seed", "1"], ["--out", "x"], ["x.yaml"]]
)
def test_resuming_takes_nothing_that_it_would_ignore(tmp_path, more):
    record = records.small(tmp_path / "r")
    words = ("run", "--resume", record.folder, *more)
    refused("--resume goes on with the plan on record", *words)


def test_a_summary_of_no_gate_is_refused_before_anything_is_run(tmp_path):
    record = records.small(tmp_path / "r")
    (tmp_path / "part.yaml").write_text(SMALL)
    (tmp_path / "suite.yaml").write_text("title: t\nparts: [part.yaml]\n")
    for words in (
        ("--resume", record.folder), (tmp_path / "part.yaml",), (tmp_path / "suite.yaml",)
    ):  # fmt: skip
        said = "--markdown is a gate's summary, and this is none"
        refused(said, "run", *words, "--markdown", tmp_path / "x.md", cwd=tmp_path)


def test_a_comparison_is_printed_in_one_format(tmp_path):
    words = ("compare", tmp_path, tmp_path, "--json", "--markdown")
    refused("--json and --markdown are two formats", *words)


def test_a_budget_that_is_no_time_is_answered_with_an_example():
    words = ("run", HOME / "experiments/quickstart.yaml", "--dry-run", "--budget", "soon")
    refused("cannot read 'soon': write a time such as '5m'", *words)


def test_a_dry_run_says_what_it_would_go_on_without(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(
        "title: t\nfactors: {transport: [udp, tcp, connext]}\nbaseline: {transport: udp}\n"
        "blocks: {min: 8, max: 8}\n"
    )
    found = tare("run", str(path), "--dry-run", "--json")
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    if not (HOME / "build/echo/echo-connext").exists():
        assert [c["levels"]["transport"] for c in said["cells"] if c["replica"] == 1] == [
            "udp",
            "tcp",
        ]
        assert "without connext: not built; RTI Connext needs your own" in said["cuts"][0]


def test_a_report_overwrites_nothing_that_a_link_in_the_result_leads_to(tmp_path):
    """The result may be a stranger's."""
    record = records.small(tmp_path / "result")
    page, mine = record.folder / "report.html", tmp_path / "mine"
    mine.write_text("mine")
    page.symlink_to(mine)
    results.drawn_for_machines(record)
    assert not page.is_symlink()
    assert "<html" in page.read_text()
    assert mine.read_text() == "mine"


def test_a_report_is_drawn_elsewhere_where_the_result_cannot_be_written(tmp_path):
    record = records.small(tmp_path / "r")
    page = tmp_path / "page.html"
    (record.folder / "report.html").mkdir()  # nobody can write there, not even root
    refused = tare("report", str(record.folder))
    assert refused.returncode == Exit.UNAVAILABLE
    in_a_line(refused, f"tare report {record.folder} --out FILE")
    assert tare("report", str(record.folder), "--out", str(page)).returncode == 0
    assert page.is_file()


def test_the_page_of_a_result_where_one_is_names_its_folder(tmp_path):
    record = records.small(tmp_path / "mine")
    assert tare("report", ".", cwd=record.folder).returncode == 0
    assert "<code>tare report mine</code>" in (record.folder / "report.html").read_text()


def test_markup_in_a_title_is_shown_as_it_is(tmp_path):
    title = 'title: "[bold]x[/bold] <script>alert(1)</script>"\n'
    text = title + SMALL.partition("\n")[2]
    record = records.small(tmp_path / "results" / "[red]r", text)
    found = tare("list", "--results", str(tmp_path / "results"))
    assert "[bold]x[/bold] <script>" in found.stdout
    drawn = tare("report", str(record.folder))
    assert "[bold]x[/bold] <script>alert(1)</script>" in drawn.stdout
    assert f"result  {record.folder}" in drawn.stdout
    assert "<script>alert(1)" not in (record.folder / "report.html").read_text()


def test_no_text_of_a_result_commands_the_terminal(tmp_path):
    text = 'title: "mine\\e]0;yours\\a"\n' + SMALL.partition("\n")[2]
    record = records.small(tmp_path / "results" / "r", text)
    for argv in (["list", "--results", str(tmp_path / "results")], ["report", str(record.folder)]):
        said = tare(*argv)
        assert "mine␛]0;yours" in said.stdout
        assert "\x1b" not in said.stdout + said.stderr


def test_a_command_line_is_one_line_and_the_shell_reads_the_same_words():
    words = ["two  words", "it's\none", "\x1b[0m\r", "\u2028é", "", "--n={n}"]
    line = shell_line("printf", "%s\\0", *words)
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", line], stdout=subprocess.PIPE, check=True,
                          env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout  # fmt: skip
    assert said.decode().split("\0")[:-1] == words


def test_a_command_line_that_is_told_can_be_pasted(tmp_path):
    record = records.small(tmp_path / "my results" / "it's; one")
    found = tare("run", record.folder)
    told = found.stderr.partition("go on with it: ")[2].partition("; do it again: ")
    assert shlex.split(told[0]) == ["tare", "run", "--resume", str(record.folder)]
    assert shlex.split(told[2]) == ["tare", "run", str(record.experiment_path)]
