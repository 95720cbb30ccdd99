"""A suite is several experiments, each whole by itself, under one title."""

import re
from pathlib import Path

import pytest

import records
from needs import in_a_line, tare
from tare import analysis, catalogue, suite
from tare.errors import Exit, UsageError
from tare.record import Record
from tare.report import overview

PART = """\
title: %s
factors: {environment: [native, container], transport: [udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""


@pytest.fixture
def written(tmp_path):
    (tmp_path / "parts").mkdir()
    for name in ("first", "second"):
        (tmp_path / "parts" / f"{name}.yaml").write_text(PART % f"The {name} question?")
    file = tmp_path / "both.yaml"
    file.write_text("title: Both\nparts: [parts/first.yaml, parts/second.yaml]\n")
    return file


@pytest.fixture
def result(written, tmp_path):
    found = suite.load(written)
    for name, file in found.files(written).items():
        records.make(tmp_path / "results" / "r" / name, text=file.read_text())
    folder = tmp_path / "results" / "r"
    return suite.SuiteResult.create(folder, found, ["first", "second"], {"third": "no <X>"})


def test_parts_are_found_beside_the_suite(written, tmp_path):
    files = suite.load(written).files(written)
    assert files["first"] == tmp_path / "parts" / "first.yaml"


def test_an_experiment_is_no_suite(written):
    assert suite.load(written.parent / "parts" / "first.yaml") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("parts: [parts/first.yaml]", "title"),
        ("title: t\nparts: []", "parts"),
        ("title: t\nparts: [parts/third.yaml]", r"there is no part .*third\.yaml"),
        ("title: t\nparts: [parts/first.yaml, ./parts/first.yaml]", "two parts have one name"),
        ("title: t\nparts: [parts/first.yaml]\nblocks: 3", "blocks"),
        ("title: t\nparts: [parts/a part.yaml]", r"'a part\.yaml' names a result badly"),
        ("title: t\nparts: [both.yaml]", r"both\.yaml is a suite itself: name its parts here"),
    ],
)
def test_a_suite_that_is_wrong_is_refused_with_its_reason(written, text, why):
    written.write_text(text)
    with pytest.raises(UsageError, match=why):
        suite.load(written)


def test_the_page_has_every_part_and_the_way_to_its_own_report(result):
    parts = {name: analysis.analyse(record) for name, record in result.parts.items()}
    page = overview.render(result, parts)
    for name in ("first", "second"):
        assert f"The {name} question?" in page
        assert f'href="{name}/report.html"' in page
    assert "Without third: no &lt;X&gt;" in page
    assert "<script" not in page
    picture = re.search(r'<figure id="figure-answers".*?</figure>', page, re.DOTALL)[0]
    assert re.findall("<h4>(.*?)</h4>", picture) == ["first", "second"]
    assert re.search(r'class="headline">First: .*\. Second: ', page)
    assert page.index("figure-answers") < page.index('<section id="first"')


def test_a_suites_page_elsewhere_leaves_the_result_alone_and_leads_to_it(result, tmp_path):
    (tmp_path / "pages").mkdir()
    page = tmp_path / "pages" / "p.html"
    found = tare("report", result.folder, "--out", page)
    assert found.returncode == 0, found.stderr
    assert not [*result.folder.rglob("report.html")]
    addresses = re.findall(r'href="([^"#]*)/report\.html', page.read_text())
    assert {Path(address).name for address in addresses} == {"first", "second"}
    for address in addresses:
        assert (page.parent / address).resolve().parent == result.folder
    assert tare("report", result.folder).returncode == 0
    assert (result.folder / "first/report.html").is_file()


def test_a_suites_folder_is_no_single_result(result):
    with pytest.raises(UsageError, match="holds several results") as caught:
        Record(result.folder)
    assert str(result.folder / "first") in caught.value.remedy
    found = tare("run", result.folder)
    assert found.returncode == Exit.USAGE
    in_a_line(found, f"go on with it: tare run --resume {result.folder}")


def test_suites_and_their_results_are_listed(written, result):
    kinds = {row.path.name: row.kind for row in catalogue.experiments(written.parent)}
    assert kinds == {"both.yaml": "suite"}
    found = [row.title for row in catalogue.results(result.folder.parent)]
    assert found == ["The first question?", "The second question?"]


def test_a_damaged_suite_says_what_can_still_be_read(result):
    (result.folder / "suite.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read") as caught:
        suite.SuiteResult(result.folder)
    assert "each is a result" in caught.value.remedy
