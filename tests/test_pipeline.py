"""The action and the workflow that gate Tare itself (.github/)."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tare import experiment, plan
from tare.errors import Exit

GITHUB = Path(__file__).parents[1] / ".github"
FAKE = """\
#!/bin/sh
printf '%s\\n' "$@" >"$SEEN"
exit "$ENDS"
"""


def acted(tmp_path, ends, **inputs):
    """The action's script with a tare that ends so: arguments, outputs, and how it ended."""
    (tmp_path / "tare").write_text(FAKE)
    (tmp_path / "tare").chmod(0o755)
    given = {
        "EXPERIMENT": "my gate.yaml", "TARE": str(tmp_path / "tare"), "RESULT": "result",
        "MARGIN": "", "SIGNIFICANCE": "", "BUDGET": "", "INCONCLUSIVE": "pass",
        "GITHUB_STEP_SUMMARY": "s.md", "GITHUB_OUTPUT": str(tmp_path / "outputs"),
        "SEEN": str(tmp_path / "seen"), "ENDS": str(int(ends)),
    }  # fmt: skip
    found = subprocess.run(
        [GITHUB / "actions/gate/run"],
        env={**os.environ, **given, **inputs}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    outputs = (tmp_path / "outputs").read_text()
    return (tmp_path / "seen").read_text().splitlines(), outputs, found


@pytest.mark.parametrize("ends", [Exit.OK, Exit.FAILED, Exit.USAGE, Exit.TRIALS_FAILED])
def test_the_job_ends_as_the_gate_does(tmp_path, ends):
    arguments, outputs, found = acted(tmp_path, ends)
    assert found.returncode == ends
    assert outputs == f"code={ends:d}\n"
    said = ["run", "my gate.yaml", "--fail-on", "slower", "--out", "result", "--markdown", "s.md"]
    assert arguments == said
    assert ("::error" in found.stdout) == (ends is Exit.FAILED)


@pytest.mark.parametrize(("becomes", "ended"), [("pass", Exit.OK), ("fail", Exit.INCONCLUSIVE)])
def test_what_becomes_of_an_undecided_gate_is_asked(tmp_path, becomes, ended):
    _, outputs, found = acted(tmp_path, Exit.INCONCLUSIVE, INCONCLUSIVE=becomes)
    assert found.returncode == ended
    assert outputs == "code=5\n"
    assert "::warning" in found.stdout


def test_inputs_reach_tare_as_single_words(tmp_path):
    arguments, _, _ = acted(tmp_path, Exit.OK, MARGIN="5 %; reboot", BUDGET="5m")
    assert arguments[-4:] == ["--margin", "5 %; reboot", "--budget", "5m"]


def test_a_strangers_pull_request_gets_no_more_than_it_needs():
    workflows = [*(GITHUB / "workflows").glob("*.yml")]
    assert workflows
    for path in workflows:
        workflow = YAML(typ="safe").load(path)
        assert workflow["permissions"] == {"contents": "read"}
        assert "pull_request_target" not in workflow["on"]
        text = path.read_text()
        assert "secrets." not in text
        for used in re.findall(r"uses: (\S+)", text):
            assert used.startswith("./") or re.search(r"@[0-9a-f]{40}$", used), used


def test_the_gate_of_tare_itself_can_be_laid_out():
    laid_out = plan.make(experiment.load(GITHUB / "gate.yaml"))
    assert len(laid_out.gated) == 2
    # Built is what a first report takes, and nothing more.
    makefile = (GITHUB.parent / "Makefile").read_text()
    (built,) = re.findall(r"^FIRST_REPORT := '-DTARE_TRANSPORTS=([^']*)'", makefile, re.MULTILINE)
    tasks = {cell.levels["task"] for cell in laid_out.cells}
    assert tasks - {"schema"} <= set(built.split(";"))
