"""One sentence answers, and says neither more nor less than the verdicts."""

import re

import pytest

import records
from tare import analysis
from tare.report import wording
from tare.report.headline import headline, over_parts

TEXT = """\
title: Three transports
factors: {environment: [native, container, qemu], transport: [udp, tcp, fastdds]}
baseline: {environment: native}
family: {environment: [container]}
blocks: {min: 8, max: 8}
"""


def answer(tmp_path, text=TEXT, **recipe):
    recipe = records.Recipe(**{"requests": 50, "truth_us": level(), "spread": 0.002} | recipe)
    record = records.make(tmp_path / "r", recipe, text)
    found = analysis.analyse(record)
    return headline(found, wording.names_of(found)).replace("\N{NO-BREAK SPACE}", " ")


def level(**factors):
    """Truth in us: alike but for a factor on some cells, named by environment and transport."""
    return lambda cell: (
        50.0 * factors.get(f"{cell.levels['environment']}_{cell.levels['transport']}", 1.0)
    )


def test_what_all_are_is_said_at_once(tmp_path):
    said = answer(tmp_path, TEXT.replace(", fastdds", ""))
    assert said == "In the container (runc): both equivalent."


def test_the_odd_one_is_named_with_the_blocks_that_would_tell(tmp_path):
    said = answer(tmp_path)  # Fast DDS has two modes in these records
    assert "2 of 3 equivalent; Fast DDS inconclusive, about " in said
    assert said.endswith(" blocks more would tell.")


def test_how_much_slower_is_said_from_least_to_most(tmp_path):
    truth = level(container_udp=2.0, container_tcp=3.0, container_fastdds=8.0)
    said = answer(tmp_path, truth_us=truth, spread=0.002)
    sizes = re.fullmatch(
        "In the container \\(runc\\): all 3 slower, ([0-9.]+) to ([0-9.]+)"
        " \N{MULTIPLICATION SIGN}\\.",
        said,
    )
    assert float(sizes[1]) == pytest.approx(2.0, rel=0.02)
    assert float(sizes[2]) == pytest.approx(8.0, rel=0.5)  # it has two modes


def test_where_everything_failed_it_was_not_measured_and_not_inconclusive(tmp_path):
    failing = frozenset((b, f"container/{t}") for b in range(8) for t in ("udp", "tcp", "fastdds"))
    said = answer(tmp_path, failing=failing)
    assert said == "In the container (runc): all 3 not measured."


def test_a_run_that_goes_on_says_so_first(tmp_path):
    assert answer(tmp_path, blocks=2).startswith("Provisional, 2 of at least 8 blocks. ")


def test_where_nothing_is_judged_nothing_is_answered(tmp_path):
    said = answer(tmp_path, TEXT.replace("family: {environment: [container]}", "family: none"))
    assert said == "Nothing is judged: every comparison is outside of the family."


@pytest.mark.parametrize("name", ["disk", "memory"])
def test_a_suite_answers_part_by_part(tmp_path, name):
    recipe = records.Recipe(requests=50, truth_us=level(), spread=0.002)
    text = TEXT.replace(", fastdds", "")
    found = analysis.analyse(records.make(tmp_path / "r", recipe, text))
    said = over_parts({name: found, "other": found})
    assert said == f"{name.capitalize()}: both equivalent. Other: both equivalent."


def test_a_part_that_goes_on_says_so_above_all_parts(tmp_path):
    """Else half of a suite is read as its answer."""
    parts = {
        name: analysis.analyse(
            records.make(
                tmp_path / name, records.Recipe(requests=50, truth_us=level(), blocks=blocks), TEXT
            )
        )
        for name, blocks in (("network", 2), ("disk", 8))
    }
    said = over_parts(parts)
    assert said.startswith("Network (provisional, 2 of at least 8 blocks): ")
    assert " Disk: " in said
    assert said.count("provisional") == 1
