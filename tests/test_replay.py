"""The papers replayed: every figure has its row, each is judged, and one page says so."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import records
from tare import analysis, experiment, plan, replay
from tare.analysis import Analysis
from tare.cli import app
from tare.cuts import Absent, without
from tare.errors import TareError, UsageError
from tare.pairing import paired
from tare.published import Claim, papers
from tare.published.beside import Beside, Ours
from tare.record import Course, Record
from tare.replay import Standing
from tare.report import replayed as replayed_page
from tare.report import tables, wording
from tare.report.markup import prose
from tare.stats.bounds import Kept
from tare.suite import Suite, SuiteResult

HOME = Path(__file__).parents[1]
RECORDED = {
    "dds-in-virtual-machines": "request-reply",
    "computing": "cpu",
    "memory": "memory",
    "disk": "disk",
    "network": "network",
    "nvram-cache": "mpi-io",
    "page-sharing-migration": "migration",
}
"""Part of a replay -> a small result of the same workload, measured for real."""
PRINTED = {
    "A": {"Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4"},
    "B": {f"Fig. {n}" for n in range(1, 7)},
    "C": {f"Fig. {n}" for n in range(1, 9)} | {"Table 1", "Table 2"},
    "D": {f"Fig. {n}" for n in range(1, 9)} | {"Table 1", "Table 2"},
}
"""Every figure and table of the papers."""


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> SuiteResult:
    folder = tmp_path_factory.mktemp("replayed")
    for part, recorded in RECORDED.items():
        shutil.copytree(HOME / "testdata/results" / recorded, folder / part)
    asked = Suite(title="t", parts=tuple(RECORDED), replays=("A", "B", "C", "D"))
    absent = {"nvram-cache-writes-simulated": "no GlusterFS"}
    return SuiteResult.create(folder, asked, RECORDED, absent)


@pytest.fixture(scope="module")
def parts(replayed: SuiteResult) -> dict[str, Analysis]:
    return {name: analysis.analyse(record) for name, record in replayed.parts.items()}


def places(where: str) -> set[str]:
    """Each figure and table that a text such as "Figs. 1 to 3, Table 1" names."""
    found = set()
    pattern = r"(Fig|Table)s?\.? (\d+)(?: (?:to|and) (\d+))?"
    for kind, first, last in re.findall(pattern, where):
        dot = "." if kind == "Fig" else ""
        found |= {f"{kind}{dot} {n}" for n in range(int(first), int(last or first) + 1)}
    return found


@pytest.mark.parametrize("letter", PRINTED)
def test_every_figure_and_table_has_its_row(letter: str) -> None:
    paper = papers()[letter]
    assert set().union(*(places(claim.where) for claim in paper.claims)) == PRINTED[letter]
    assert all(claim.says.endswith(".") and len(claim.says) > 20 for claim in paper.claims)


def test_every_claim_names_cells_of_its_experiment_and_a_statistic() -> None:
    for paper in papers().values():
        _, files = replay.suite([paper], HOME / "experiments")
        plans = {name: plan.make(experiment.load(file)) for name, file in files.items()}
        for claim in paper.claims:
            if claim.not_asked or claim.figure:
                continue
            asked = plans[claim.part]
            statistics = {claim.statistic, claim.over} - {None}
            assert statistics <= asked.workload.statistics.keys(), claim
            for cells in claim.cells:
                against = "{0}" if claim.over and claim.against is None else claim.against
                assert paired(asked, cells, against), claim
        figures = {figure.id for figure in paper.figures}
        assert {claim.figure for claim in paper.claims if claim.figure} <= figures


def test_claims_are_judged_by_whole_intervals(parts: dict[str, Analysis]) -> None:
    def judged(**asked: object) -> replay.Judged:
        shared = {"where": "x", "says": "x", "part": "page-sharing-migration"}
        return replay.answer(Claim.model_validate({**shared, **asked}), parts, {})

    every = judged(cells=["*"], statistic="wire", most=1e9)
    assert every.verdict is Standing.HOLDS
    assert every.kept == len(every.bounds) > 0
    assert judged(cells=["*"], statistic="wire", most=1e-9).verdict is Standing.FAILS
    (one, *_) = every.bounds
    assert one.found.low is not None
    straddled = judged(cells=["*"], statistic="wire", most=one.found.estimate)
    assert Kept.INCONCLUSIVE in {bound.kept for bound in straddled.bounds}
    nothing = judged(cells=["absent"], statistic="wire", most=1)
    assert nothing.verdict is Standing.INCONCLUSIVE
    assert nothing.why.startswith("none of its cells was measured")
    not_run = judged(part="other", most=1)
    assert (not_run.verdict, not_run.why) == (Standing.INCONCLUSIVE, "there was no time to ask it")


@pytest.mark.parametrize("how", ["failed", "cut"])
def test_a_claim_is_inconclusive_while_one_of_its_cells_was_not_measured(
    tmp_path: Path, how: str
) -> None:
    lost = "qemu/cyclonedds"
    failing = frozenset((block, lost) for block in range(8) if how == "failed")
    record = records.make(tmp_path / "r", records.Recipe(requests=200, failing=failing))
    if how == "cut":
        gone = [Absent(lost, "not built", frozenset({lost}))]
        less = without(record.plan, gone).model_dump_json()
        (record.folder / "plan.json").write_text(less)
        lines = (record.folder / "trials.ndjson").read_text().splitlines(keepends=True)
        kept = "".join(line for line in lines if lost not in line)
        (record.folder / "trials.ndjson").write_text(kept)
    part = {"p": analysis.analyse(Record(record.folder))}

    def judged(**asked: object) -> replay.Judged:
        claim = {"where": "x", "says": "x", "part": "p", **asked}
        return replay.answer(Claim.model_validate(claim), part, {})

    found = judged(cells=["qemu/*"], least=1.5)
    assert found.kept == len(found.bounds) == 3
    assert found.verdict is Standing.INCONCLUSIVE
    assert found.why.startswith(f"not measured: {lost} over native/cyclonedds")
    assert judged(cells=["qemu/*"], most=1.5).verdict is Standing.FAILS
    assert judged(cells=["qemu/fastdds"], least=1.5).verdict is Standing.HOLDS
    shares = judged(cells=["qemu/*dds"], figure="virtualisation-share", least=0.0)
    assert shares.bounds
    assert (shares.verdict, shares.why[:13]) == (Standing.INCONCLUSIVE, "not measured:")


def test_where_a_cell_stopped_its_claim_ends_and_nothing_counts_as_failed(tmp_path: Path) -> None:
    record = records.make(tmp_path / "r", records.Recipe(blocks=10, requests=50))
    with record.writing() as writer:
        writer.append(Course(block=8, sessions={}, stopped=("qemu/udp",)))
    path = record.folder / "trials.ndjson"
    lines = map(json.loads, path.read_text().splitlines())
    kept = [x for x in lines if x.get("cell") != "qemu/udp" or x["block"] < 8]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in kept))
    part = {"p": analysis.analyse(Record(record.folder))}
    for asked in ({"statistic": "p50"}, {"over": "mean"}):
        claim = {"where": "x", "says": "x", "part": "p", "cells": ["qemu/udp"], **asked}
        found = replay.answer(Claim.model_validate({**claim, "least": 0.01}), part, {})
        assert (found.verdict, found.why) == (Standing.HOLDS, "")


def test_a_claim_is_inconclusive_where_most_blocks_lack_a_cell(tmp_path: Path) -> None:
    lost = "qemu/fastdds"
    failing = frozenset((block, lost) for block in range(6))
    record = records.make(tmp_path / "r", records.Recipe(requests=200, failing=failing))
    part = {"p": analysis.analyse(record)}
    for asked in ({"statistic": "p50"}, {"over": "mean"}, {"figure": "rti-over-opensplice"}):
        claim = {"where": "x", "says": "x", "part": "p", "cells": [lost], "least": 0.1, **asked}
        found = replay.answer(Claim.model_validate(claim), part, {})
        assert found.bounds
        assert found.verdict is Standing.INCONCLUSIVE


@pytest.mark.parametrize(
    "asked",
    [
        {"part": "p"},
        {"least": 1.0},
        {"not_asked": "why", "part": "p", "least": 1.0},
        {},
    ],
)
def test_a_claim_is_asked_or_has_a_reason(asked: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is asked by a part and a bound, or has a reason"):
        Claim.model_validate({"where": "x", "says": "x", **asked})


def test_one_page_has_every_claim(replayed: SuiteResult, parts: dict[str, Analysis]) -> None:
    page = replayed_page.render(replayed, parts)
    claims = [claim for paper in papers().values() for claim in paper.claims]
    assert f"Of {len(claims)} claims" in page
    assert page.count('<li class="') == len(claims)  # the map
    assert page.count('<span class="verdict ') == 2 * len(claims)
    assert "no GlusterFS" in page
    assert "<script" not in page
    told = replayed_page.told(replayed, parts)
    assert [*told] == [paper.name for paper in papers().values()]
    assert sum(map(len, told.values())) == len(claims)
    json.dumps(told)


def test_a_replay_is_drawn_again_like_any_result(replayed: SuiteResult) -> None:
    found = CliRunner().invoke(app, ["report", str(replayed.folder)])
    assert found.exit_code == 0, found.output
    assert "Of " in found.output
    assert "cannot be asked here" in found.output
    assert "papers, replayed" not in found.output
    assert (replayed.folder / "report.html").read_text().count("holds here") > 0


def test_each_paper_has_a_page_with_every_claim_and_a_picture_of_what_was_found(
    replayed: SuiteResult, tmp_path: Path
) -> None:
    folder = tmp_path / "papers"
    found = CliRunner().invoke(app, ["report", str(replayed.folder), "--pages", str(folder)])
    assert found.exit_code == 0, found.output
    for paper in papers().values():
        page = (folder / f"{paper.name}.md").read_text()
        rows = [line for line in page.splitlines() if line.startswith("| **")]
        assert len(rows) == len(paper.claims)
        assert {line.count("|") for line in rows} == {7}
        assert all(f"`experiments/{path}.yaml`: " in page for path in paper.replay)
    drawn = {file.name for file in folder.glob("*.svg")}
    assert drawn == {"dds-virtualised.svg"}  # of the others too little was measured
    picture = ElementTree.parse(folder / "dds-virtualised.svg").getroot()
    shapes = [shape.tag.rpartition("}")[2] for shape in picture]
    assert shapes.count("circle") == 6
    assert shapes.count("rect") == 1 + 4
    assert "(dds-virtualised.svg)" in (folder / "dds-virtualised.md").read_text()


def test_a_page_names_the_ends_of_many_cells_and_the_report_all(
    parts: Mapping[str, Analysis],
) -> None:
    part = parts["network"]
    cell = part.cells[0].cell
    ours = tuple(Ours(cell, value, None, None) for value in (7, 3, 9, 5))
    beside = Beside(papers()["B"].figures[0], "the same", ours)
    many = cast("Analysis", SimpleNamespace(beside=(beside,)))
    found = [tables.paper(many, wording.names_of(part), most) for most in (3, None)]
    few, every = (table.rows[0][3].split("\n") for table in found if table)
    assert len(every) == len(ours)
    assert few == ["4 cells, least and most:", every[1], every[2]]


def test_pages_are_of_a_replay_and_of_a_folder_that_can_be_made(
    replayed: SuiteResult, tmp_path: Path
) -> None:
    def refused(result: Path, folder: Path) -> str:
        found = CliRunner().invoke(app, ["report", str(result), "--pages", str(folder)])
        assert isinstance(found.exception, TareError)
        return found.exception.what

    part = replayed.folder / "disk"
    assert refused(part, tmp_path) == f"{part} is not the result of a replay"
    (tmp_path / "file").touch()
    said = refused(replayed.folder, tmp_path / "file/papers")
    assert said == f"cannot make {tmp_path}/file/papers: Not a directory"


def test_what_is_left_out_for_want_of_time_is_said() -> None:
    found = CliRunner().invoke(app, ["replay", "A", "nvram-cache", "--dry-run", "--budget", "6m"])
    assert found.exit_code == 0, found.output
    assert "more than there is" in found.output
    assert "there is no time to ask it" in found.output
    assert "nvram-cache-writes-simulated: about" in found.output
    assert "Virtualisation makes a response" in found.output


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no paper E"):
        replay.named(["E"])
    assert [paper.paper for paper in replay.named(["d", "dds-virtualised", "D"])] == ["D", "A"]


def test_code_stays_code_in_a_page_and_nothing_else_is_markup() -> None:
    said = prose("a_b `tare run x_y` *c* `d|e`")
    assert said == r"a\_b `tare run x_y` \*c\* \`d\|e\`"
