"""The model of many processes: filled in from trials whose figures are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tare.cell import Cell
from tare.machine import Fingerprint
from tare.record import Trial
from tare.workloads.mpi_io_scaling import VERTICES, Scaling, scaling


def cell(cache: str, ranks: str, vertices: str = "2000") -> Cell:
    levels = {"cache": cache, "ranks": ranks, "vertices": vertices, "power": "2", "pattern": "rows"}
    return Cell(id=f"{cache}/{ranks}/{vertices}", levels=levels)


def trial(cell_id: str, block: int, **values: float) -> Trial:
    return Trial(
        block=block, position=0, cell=cell_id, session="s", started="now", seconds=1.0,
        status="ok", values={f"{k}": 1e9 * v for k, v in values.items()}, counters={"calls": 16000},
    )  # fmt: skip


def filled(*cells: Cell, processors: int = 2) -> Scaling | None:
    trials = [
        trial(c.id, block, read=0.02, write=0.02, io=8.0, close=0.5, compute=0.25)
        for c in cells
        for block in range(3)
    ]
    views = [SimpleNamespace(cell=c) for c in cells]
    machine = Fingerprint.model_validate({"cpu": {"usable": processors}})
    result = SimpleNamespace(cells=views, trials=trials, fingerprint=machine)
    return scaling(cast("Any", result))


def test_a_run_fills_in_the_model() -> None:
    found = filled(cell("plain", "1"), cell("plain", "4"), cell("nvio nodes=2", "4"))
    assert found is not None
    assert found.served_per_s == pytest.approx(2000)  # 16000 calls in 8 s
    assert found.call_s == pytest.approx(0.04 * 4 / 16000)
    assert found.multiply_s == pytest.approx(0.25 * 2 * 10**3)  # ten times the side
    assert found.write_back_s == pytest.approx(0.5 * 10**2)


@pytest.mark.parametrize(("ranks", "busy"), [("1", 16), ("4", 16), ("9", 9), ("32", 16)])
def test_as_many_processors_multiply_as_the_ranks_have_threads(ranks: str, busy: int) -> None:
    found = filled(cell("plain", ranks), cell("nvio nodes=2", "4"), processors=16)
    assert found is not None
    assert found.multiply_s == pytest.approx(0.25 * busy * 10**3)


def test_plain_calls_meet_at_one_place_and_those_of_nvio_do_not() -> None:
    model = Scaling(multiply_s=0.0, served_per_s=2000.0, call_s=1e-5, write_back_s=0.0)
    assert model.plain_s(400) > 80 * model.plain_s(4)
    assert model.nvio_s(400) < model.nvio_s(4)
    assert model.plain_s(1) == pytest.approx(3 * VERTICES / 2000)


@pytest.mark.parametrize("arms", [("plain",), ("nvio nodes=2",), ("plain", "nvio")])
def test_without_nodes_or_without_plain_there_is_no_model(arms: tuple[str, ...]) -> None:
    assert filled(*(cell(arm, "4") for arm in arms)) is None
