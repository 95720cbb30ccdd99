"""The papers' figures are data with sources."""

import pytest

from claims import exhibits
from tare.published import Figure, papers


def test_every_paper_is_there_and_every_figure_has_its_source():
    assert list(papers()) == ["A", "B", "C", "D"]
    for paper in papers().values():
        ids = [item.id for item in (*paper.figures, *paper.tables)]
        assert len(ids) == len(set(ids))
        assert all(item.where and item.measured for item in (*paper.figures, *paper.tables))


def test_a_figure_without_a_number_is_refused():
    with pytest.raises(ValueError, match="no number"):
        Figure(id="x", where="Fig. 1", measured="nothing", unit="%")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"value": 30}, "30 %"),
        ({"low": 120, "high": 300, "about": True}, "about 120 to 300 %"),
        ({"high": 50, "about": True}, "up to about 50 %"),
        ({"low": 40}, "40 % or more"),
    ],
)
def test_a_figure_says_whether_it_is_a_number_a_range_or_a_bound(numbers, said):
    assert Figure(id="x", where="Fig. 1", measured="it", unit="%", **numbers).text == said


@pytest.mark.parametrize("paper", papers().values(), ids=lambda paper: paper.name)
def test_every_figure_and_table_of_a_paper_has_a_row_and_one_that_has_none_is_missed(
    paper,
):
    assert exhibits.unnamed(paper) == []
    more = paper.exhibits.model_copy(update={"tables": paper.exhibits.tables + 1})
    lacking = paper.model_copy(update={"exhibits": more})
    assert exhibits.unnamed(lacking) == [f"Table {more.tables}"]
