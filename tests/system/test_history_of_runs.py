"""The history of real runs, asked after each of them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from needs import needs_root
from tare import machine
from tare.errors import Exit

pytestmark = [pytest.mark.system, needs_root]

SMALL = """\
title: A small question
factors: {environment: [native, container], transport: [udp]}
baseline: {environment: native}
family: none # so two blocks may do
blocks: {min: 2, max: 2}
session: {requests: 300, warmup: 30, timeout: 1 s}
"""


def tare(*argv: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tare", *argv],
        cwd=cwd, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def points(folder):
    said = tare("history", "results", "--cell", "container", "--json", cwd=folder)
    assert said.returncode == Exit.OK, said.stderr
    (series,) = json.loads(said.stdout)["series"]
    return series["points"]


def test_real_runs_are_in_it_as_they_come(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    for number in range(2):
        out = f"results/{number}"
        said = tare("run", "small.yaml", "--out", out, cwd=tmp_path)
        assert said.returncode == Exit.OK, said.stderr
        found = points(tmp_path)
        assert [point["folder"] for point in found] == [str(n) for n in range(number + 1)]
        rows = json.loads(tare("export", out, "--format", "json", cwd=tmp_path).stdout)
        p50 = [row["p50_ns"] for row in rows if row["cell"] == "container"]
        assert found[-1]["value"] == pytest.approx(math.prod(p50) ** (1 / len(p50)))
        assert found[-1]["sessions"] == len(p50)
        assert found[-1]["commit"] == machine.commit()
    said = tare("history", cwd=tmp_path)
    assert "A small question" in said.stdout
    assert not said.stderr.strip(), said.stderr
