"""Paper B's tables beside ours: every cell of theirs finds the one of ours that is its like."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tare import experiment, plan, suite, workloads
from tare.cell import Cell
from tare.published import papers
from tare.published.beside import Beside

HOME = Path(__file__).parents[1] / "experiments"
SUITE = HOME / "kvm-overhead.yaml"


def measured(value: float, low: float, high: float) -> Any:
    return SimpleNamespace(value=value, estimate=value, low=low, high=high)


def beside(file: Path) -> tuple[Beside, ...]:
    """What would stand beside the paper if every planned cell had been measured."""
    asked = experiment.load(file)
    workload = workloads.by_name()[asked.workload]
    laid_out = plan.make(asked)
    cells = {cell.id: cell for cell in laid_out.cells}
    found = measured(2e6, 1e6, 3e6)
    views = [
        SimpleNamespace(cell=cell, estimates=dict.fromkeys(workload.statistics, found))
        for cell in laid_out.cells
    ]
    ratio = SimpleNamespace(ratio=measured(0.5, 0.4, 0.6))
    ratio.promised = ratio
    questions = [
        SimpleNamespace(cell=cells[c.cell], against=cells[c.against], others={"score": ratio})
        for c in laid_out.comparisons
        if c.kind == "effect"
    ]
    result = SimpleNamespace(cells=views, questions=questions)
    return laid_out.workload.beside(cast("Any", result))


def test_the_suite_that_ships_holds_every_cell_of_the_paper_but_two() -> None:
    loaded = suite.load(SUITE)
    assert loaded is not None
    rows = [row for file in loaded.files(SUITE).values() for row in beside(file)]
    assert all(len(row.ours) == 1 for row in rows)
    in_tables = sum(2 * len(table.rows) for table in papers()["B"].tables)
    # The host's own loop device over NFS, cached and buffered: its kernel may have no client.
    assert len(rows) == in_tables - 2 + 4
    assert not any("host, loop0 on nfs" in row.figure.measured for row in rows)


def test_a_pinning_stands_beside_the_papers_cores_in_its_unit() -> None:
    rows = {row.figure.measured: row for row in beside(HOME / "kvm-overhead/network.yaml")}
    row = rows["cores 0,1 and 1, concurrent to remote, guest"]
    assert row.figure.value == 6.1
    assert "could not explain" in row.what
    (ours,) = row.ours
    assert ours.cell.levels["placement"] == "host=all guest=second"
    assert (ours.estimate, ours.low, ours.high) == (2.0, 1.0, 3.0)  # MB/s
    spread = rows["cores 0,1 and 0,1, alone to localhost, guest"]
    assert (spread.figure.low, spread.figure.high) == (50.9, 83.3)
    assert spread.ours[0].cell.levels["vcpus"] == "2"


def test_scores_are_percent_of_the_hosts() -> None:
    rows = beside(HOME / "kvm-overhead/computing.yaml")
    assert {row.figure.value for row in rows} == {68}
    assert [round(ours.estimate) for row in rows for ours in row.ours] == [50, 50]


def test_scores_with_a_busy_host_beside_are_not_the_papers(tmp_path: Path) -> None:
    text = (HOME / "kvm-overhead/computing.yaml").read_text()
    both = tmp_path / "both.yaml"
    both.write_text(text.replace("factors:\n", "factors:\n  mode: [alone, concurrent]\n"))
    modes = [ours.cell.levels["mode"] for row in beside(both) for ours in row.ours]
    assert modes == ["alone", "alone"]


def test_what_was_not_measured_stays_out() -> None:
    cell = Cell(id="x", levels={"environment": "native", "device": "raw", "operation": "read"})
    view = cast("Any", SimpleNamespace(cell=cell, estimates={"rate": measured(1, 1, 1)}))
    nothing = cast("Any", SimpleNamespace(cells=[view], questions=[]))
    assert all(
        one.beside(nothing) == () for one in workloads.by_name().values() if one.paper == "B"
    )
