"""Tables on terminals of any width: no figure is cut, and every row tells what it is of."""

import os

import pytest
from rich.console import Console, RenderableType

import records
from tare import analysis, compared
from tare.compare import compare
from tare.report import terminal
from tare.report.columns import Columns
from tare.sides import TareRun

FIGURES = ("1128.25", "0.000017", "98765432")


def drawn(shown: RenderableType, width: int) -> list[str]:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(shown)
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", range(16, 90, 3))
def test_no_figure_is_cut_and_no_line_is_longer_than_the_terminal(width: int) -> None:
    table = Columns("verdict", "cell", "ratio", "later", "earlier", words=(0, 1), key=1)
    table.add_row("inconclusive", "container/cyclonedds", *FIGURES)
    lines = drawn(table, width)
    assert max(map(len, lines)) <= width
    for figure in FIGURES:
        assert sum(figure in line.split() for line in lines) == 1, lines


def test_a_key_behind_columns_that_fill_the_width_stands_once_in_each_table() -> None:
    table = Columns("one", "two", "three", "key", words=(), key=3)
    table.add_row("1" * 20, "2" * 9, "3" * 9, "k" * 9)
    for width in range(24, 48):
        assert not [line for line in drawn(table, width) if line.split().count("k" * 9) > 1]


@pytest.mark.parametrize("width", [36, 48, 60, 72, 100])
def test_verdicts_cells_and_figures_are_all_there_however_narrow_it_is(
    tmp_path_factory: pytest.TempPathFactory, width: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    record = records.make(folder / "r", records.Recipe(blocks=2, requests=300))
    found = compare([TareRun(record)], [TareRun(record)])
    for shown in (compared.table(found), terminal.summary(analysis.analyse(record))):
        told = {word for line in drawn(shown, 300) for word in line.split()}
        figures = {word for word in told if word.replace(".", "", 1).isdigit()}
        narrow = "\n".join(drawn(shown, width))
        assert figures <= set(narrow.split())
    for cell in found.cells:
        assert cell.cell in "".join(line[:16].strip() for line in drawn(compared.table(found), 36))
