"""Reports of what is no response time: more may be better, and zero is a value."""

import re

import pytest

import records
from tare import analysis, experiment, plan, report
from tare.record import Record
from tare.report import figures, remarks, tables, terminal, wording

TEXT = """\
title: Of a number that a command prints
workload: command
factors: {environment: [native, container, gvisor], command: {one: 'one'}}
baseline: {environment: native}
read: {figure: {regex: '([0-9]+)', unit: '1', better: BETTER}}
statistic: figure
blocks: {min: 8, max: 8}
"""


def analysed(folder, figure, better="higher"):
    """Analyse a run in which every session of an environment printed its figures in turn."""
    text = TEXT.replace("BETTER", better)
    laid_out = plan.make(experiment.parse(text, "experiment.yaml"))
    record = Record.create(folder, text, laid_out, {})
    with record.writing() as writer:
        for block, visits in enumerate(laid_out.blocks):
            cells = [cell for visit in visits for cell in visit.cells]
            for position, name in enumerate(cells):
                values = figure[laid_out.cell(name).levels["environment"]]
                told = {"wall": 1e9, "figure": values[block % len(values)]}
                session = f"{name} {block}"
                writer.append(records.ended(block, position, name, session=session, values=told))
    return analysis.analyse(record)


MORE_AND_LESS = {"native": (50.0, 51.0), "container": (30.0, 31.0), "gvisor": (70.0, 71.0)}


@pytest.mark.parametrize(
    ("better", "good", "bad"),
    [("higher", "more-is-better", "less-is-worse"), ("lower", "less", "more")],
)
def test_what_is_better_has_the_colour_of_what_is_faster(tmp_path, better, good, bad):
    found = analysed(tmp_path / "r", MORE_AND_LESS, better)
    assert [wording.verdict_of(q) for q in found.questions] == ["less", "more"]
    page = report.render(found)
    reds, greens = (
        re.search(rf"^\.{which}, ([^{{]*)\{{", page, re.MULTILINE)[1]
        for which in ("slower", "faster")
    )
    assert f".{good}" in greens.split() or f".{good}," in greens.split()
    assert f".{bad}" in reds.split() or f".{bad}," in reds.split()
    words = {"more-is-better": "more", "less-is-worse": "less"}
    for style in (good, bad):
        word = words.get(style, style)
        assert f'<span class="verdict {style}">{word}</span>' in page
        assert f'<use class="{style}"' in page
    drawn = figures.draw(found, wording.names_of(found))["answers"]
    assert {style for style, _ in drawn.legend} == {good, bad}
    assert (terminal._STYLES[good], terminal._STYLES[bad]) == ("green", "red")


def test_zero_is_not_said_to_have_failed(tmp_path):
    found = analysed(tmp_path / "r", {"native": (0.0, 3.0), "container": (4.0,), "gvisor": (0.0,)})
    names = wording.names_of(found)
    assert remarks.outcome(found).endswith("nothing can be compared: zero has no ratio.")
    assert str(wording.sentence(found.questions[0], names, 0.03, found.statistic)).endswith(
        "no block has both, above zero."
    )
    assert "two blocks that can be compared" in remarks.noise(found)[0]
    # Each cell that is not in a picture, and each mean that is no geometric one, is told.
    drawn = figures.draw(found, names)
    for name in ("levels", "by_block"):
        assert drawn[name].caption.endswith("Log scale, which has no place for cells with zeros.")
    (table,) = tables.values(found, names)
    assert table.rows[0][-1] == "1.50"
    assert table.note.endswith("where a session has zero: the mean.")


def test_where_nothing_is_zero_nothing_is_said_of_it(tmp_path):
    found = analysed(tmp_path / "r", MORE_AND_LESS)
    drawn = figures.draw(found, wording.names_of(found))
    assert drawn["levels"].caption.endswith("Log scale.")
    assert "zero" not in "".join(one.note for one in tables.values(found, wording.names_of(found)))
