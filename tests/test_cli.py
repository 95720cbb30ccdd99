import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import records
from tare.errors import Exit

HOME = Path(__file__).parents[1]


def tare(*argv: str, cwd: Path = HOME) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tare", *argv],
        cwd=cwd, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip


def test_help_names_every_command_and_the_exit_codes():
    said = tare("--help").stdout
    for word in (
        "run",
        "report",
        "compare",
        "doctor",
        "list",
        "export",
        "clean",
        "claim",
        "schema",
    ):
        assert word in said
    assert "130 interrupted" in " ".join(said.split())


def test_a_broken_experiment_is_a_usage_error_with_file_and_line(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("title: t\nfactors: {transport: [ucp]}\nbaseline: {}\n")
    found = tare("run", str(path))
    assert found.returncode == Exit.USAGE
    assert f"{path}:2: factors.transport.0: 'ucp' is not one of icmp" in found.stderr
    assert "Traceback" not in found.stderr


def test_run_wants_either_a_file_or_a_folder():
    assert tare("run").returncode == Exit.USAGE


def test_a_dry_run_prints_the_plan_for_machines_and_starts_nothing(tmp_path):
    found = tare("run", str(HOME / "experiments/quickstart.yaml"), "--dry-run", "--json",
                 cwd=tmp_path)  # fmt: skip
    plan = json.loads(found.stdout)
    assert len(plan["cells"]) == 14
    assert plan["seconds"]["least"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_budget_says_what_it_cut(tmp_path):
    found = tare("run", str(HOME / "experiments/dds-in-virtual-machines.yaml"),
                 "--dry-run", "--budget", "25m", "--json")  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["cuts"]


def test_an_impossible_budget_is_refused_with_what_it_would_take():
    found = tare("run", str(HOME / "experiments/quickstart.yaml"), "--dry-run", "--budget", "5s")
    assert found.returncode == Exit.USAGE
    assert "too short" in found.stderr


def test_the_report_of_a_result_can_be_drawn_again_and_read_by_machines(tmp_path):
    record = records.make(tmp_path / "r")
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
    a = records.make(tmp_path / "a")
    b = records.make(tmp_path / "b", records.Recipe(seed=2, scale={"native/udp": 1.5}))
    assert tare("compare", str(a.folder), str(b.folder), "--fail-on", "slower").returncode == 1
    assert tare("compare", str(b.folder), str(a.folder), "--fail-on", "slower").returncode == 0


def test_export_writes_a_table(tmp_path):
    record = records.make(tmp_path / "r")
    found = tare("export", str(record.folder), "--format", "csv")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("\n") > 10


def test_list_shows_experiments_and_results(tmp_path):
    record = records.make(tmp_path / "results" / "r")
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


@pytest.mark.parametrize("command", ["run", "report", "compare", "export", "clean", "claim check"])
def test_every_command_has_help(command):
    assert "Usage" in tare(*command.split(), "--help").stdout
