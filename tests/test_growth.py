"""How a cost grows: exponents of costs whose truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from tare.analysis.growth import growths
from tare.cell import Cell
from tare.workloads.mpi_io import WORKLOAD
from tare.workloads.mpi_io_rows import MpiLevels


@dataclass(frozen=True)
class Planned:
    """The part of a plan that is looked at."""

    cells: tuple[Cell, ...]
    workload = WORKLOAD


class Costs:
    """Sessions that cost `factor x ranks ^ exponent`, another factor in every block."""

    def __init__(self, exponent: float, absent: tuple[int, str] | None = None) -> None:
        self.blocks = tuple(range(8))
        self._exponent, self._absent = exponent, absent

    def column(self, cell: str, _statistic: str) -> list[float | None]:
        ranks = float(cell.partition("/")[0])
        found = [(1 + block) * ranks**self._exponent for block in self.blocks]
        return [None if (b, cell) == self._absent else cost for b, cost in enumerate(found)]


def planned(*ranks: str) -> Planned:
    cells = [
        Cell(id=f"{n}/{cache}", levels=MpiLevels({"cache": cache, "ranks": n}))
        for n in ranks
        for cache in ("plain", "nvio")
    ]
    return Planned((*cells, cells[0].model_copy(update={"id": "1/again", "replica": 2})))


@pytest.mark.parametrize("exponent", [-1.0, 0.0, 0.5, 2.0])
def test_the_exponent_is_found_whatever_the_machine_does_from_block_to_block(
    exponent: float,
) -> None:
    found = growths(cast("Any", planned("1", "4", "9")), cast("Any", Costs(exponent)), "time")
    assert [growth.factor for growth in found] == ["ranks", "ranks"]
    for growth in found:
        assert [number for number, _ in growth.cells] == [1.0, 4.0, 9.0]
        assert growth.exponent.estimate == pytest.approx(exponent)


def test_a_block_without_one_of_the_trials_is_left_out() -> None:
    costs = Costs(1.0, absent=(3, "4/nvio"))
    found = growths(cast("Any", planned("1", "4")), cast("Any", costs), "time")
    assert sorted(growth.exponent.n for growth in found) == [7, 8]


def test_one_level_is_no_growth() -> None:
    assert growths(cast("Any", planned("4")), cast("Any", Costs(1.0)), "time") == ()


def test_one_level_that_is_written_in_two_ways_is_no_growth() -> None:
    caches = ("nvio", "nvio nodes=1")
    cells = [Cell(id=f"1/{c}", levels=MpiLevels({"cache": c, "ranks": "1"})) for c in caches]
    assert growths(cast("Any", Planned(tuple(cells))), cast("Any", Costs(1.0)), "time") == ()
