"""The heat maps of pinnings, drawn from a record whose truth is known."""

import pytest

import records
from tare import analysis
from tare.report import figures, wording

TEXT = """\
title: What does pinning do?
workload: network
factors:
  environment: [native]
  mode: [concurrent]
  placement:
    - host=first guest=first
    - host=first guest=second
    - host=all guest=all
baseline: {placement: host=first guest=first}
statistic: guest
blocks: {min: 8, max: 8}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return analysis.analyse(make(tmp_path_factory.mktemp("r") / "r", TEXT))


def make(folder, text):
    """A record of values, twice as much for the host as for the guest."""
    record = records.make(folder, records.Recipe(blocks=0), text)
    with record.writing() as writer:
        for block in range(8):
            for position, cell in enumerate(record.plan.cells):
                guest = 1e8 * (1 + position) * (1 + 0.01 * block)
                values = {"guest": guest, "host": 2 * guest, "sum": 3 * guest, "jain": 0.9}
                writer.append(records.ended(block, position, cell.id, values=values))
    return record


def test_every_pinning_stands_in_a_map_of_each_statistic(found):
    figure = figures.draw(found, wording.names_of(found))["pinnings"]
    assert figure is not None
    assert [one.heading for one in figure.maps] == ["guest", "host", "sum", "jain"]
    host, (first, _, absent) = figure.maps[-1].rows[0]
    assert (host, absent) == ("host first", None)
    assert first[:2] == (1.0, "0.9000")


def test_an_experiment_without_pinnings_has_no_map(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=2, requests=50))
    drawn = analysis.analyse(record)
    assert figures.draw(drawn, wording.names_of(drawn))["pinnings"] is None


def test_a_comparison_of_alone_with_both_at_once_reads_as_a_sentence(tmp_path):
    text = TEXT.replace("[concurrent]", "[alone, concurrent]").replace(
        "{placement: host=first guest=first}", "{mode: alone}"
    )
    drawn = analysis.analyse(make(tmp_path / "r", text))
    names = wording.names_of(drawn)
    said = [str(wording.sentence(q, names, 0.03, drawn.statistic)) for q in drawn.questions]
    assert len(said) == 3
    assert all("with host and guest at once" in one and " alone" in one for one in said)
    assert not any("with alone" in one for one in said)
