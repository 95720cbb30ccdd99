"""Operations counted for real where no thread of this kernel is the server's: gVisor, and UML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from needs import needs_root, tare
from tare.analysis.operations import counted_in
from tare.analysis.sessions import Sessions
from tare.environments.gvisor import Gvisor
from tare.environments.uml import Uml
from tare.record import Record

pytestmark = [
    pytest.mark.system,
    needs_root,
    pytest.mark.timeout(1800),  # of building runsc, the first time
]

EXPERIMENT = """\
title: What is counted there
factors: {{environment: [native, {environment}], transport: [udp]}}
baseline: {{environment: native}}
family: none # so three blocks may do
blocks: {{min: 3, max: 3}}
session: {{requests: 300, warmup: 30, timeout: 20 s}}
causes: 2
"""
THERE = {"send, server", "receive, server", "wake server", "wake threads, server"}


@pytest.mark.parametrize("environment", [Gvisor(), Uml()], ids=lambda e: e.name)
def test_what_nobody_can_count_there_is_absent_and_that_is_said(
    tmp_path: Path, environment: Gvisor | Uml
) -> None:
    found = environment.availability()
    if not found.available:
        pytest.skip(found.detail)
    (tmp_path / "file.yaml").write_text(EXPERIMENT.format(environment=environment.name))
    said = json.loads(tare("run", "file.yaml", "--json", cwd=tmp_path).stdout)
    record = Record(tmp_path / said["result"])
    cells = {cell.levels["environment"]: cell for cell in record.plan.cells if cell.replica == 1}
    assert [c.error for c in record.causes()] == [None] * 2 * len(cells)
    for session in record.causes():
        assert session.counts["client sends"] == pytest.approx(1, abs=0.1)
        assert session.unit_costs_ns["inside system call"] > 0
        on_host = session.cell == cells["native"].id
        assert any(name.startswith("server ") for name in session.counts) == on_host
    sessions = Sessions(record)
    here, there = (counted_in(cells[name], sessions) for name in ("native", environment.name))
    assert {operation.name for operation in here.operations} >= THERE
    assert {operation.name for operation in there.operations} & THERE == set()
    assert set(there.absent) >= THERE
    assert "not known here" in (tmp_path / said["report"]).read_text()
    explained = tare("explain", said["result"], cells[environment.name].id, cwd=tmp_path).stdout
    assert "Not known on one side" in explained or "no effect to explain" in explained
