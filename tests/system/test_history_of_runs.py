"""The history of real runs, asked after each of them."""

import json
import math

import pytest

from needs import SMALL, needs_root, tare
from tare import machine
from tare.errors import Exit

pytestmark = [pytest.mark.system, needs_root]


def points(folder):
    said = tare("history", "results", "--cell", "container", "--json", cwd=folder)
    assert said.returncode == Exit.OK, said.stderr
    (series,) = json.loads(said.stdout)["series"]
    return series["points"]


def test_real_runs_are_in_it_as_they_come(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL.replace("[udp, icmp]", "[udp]"))
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
