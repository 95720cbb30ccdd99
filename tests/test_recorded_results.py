"""Recorded results of every workload: what is said of them today is what was said of them.

They were measured for real (testdata/results/README.md). `python tests/test_recorded_results.py`
writes anew what is said, after a change that means to say something else; its diff is then read.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from tare import analysis, export, report, workloads
from tare.record import Record

RESULTS = Path(__file__).parent.parent / "testdata" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/plan.json"))


def said(folder: Path) -> str:
    """The words and numbers of a result's page, a line an element; figures and scripts left out."""
    page = report.render(analysis.analyse(Record(folder)))
    page = re.sub(r"<(script|style|svg|head)\b.*?</\1>", "", page, flags=re.DOTALL)
    words = (" ".join(html.unescape(text).split()) for text in re.split(r"<[^>]*>", page))
    return "".join(f"{line}\n" for line in words if line)


def exported(folder: Path) -> str:
    """What `tare export` has of a result, a line a trial."""
    return "".join(f"{json.dumps(row)}\n" for row in export.rows(Record(folder)))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_said_of_a_recorded_result_is_what_was_said(folder: Path) -> None:
    assert said(folder).splitlines() == (folder / "said.txt").read_text().splitlines()
    assert exported(folder) == (folder / "exported.ndjson").read_text()


def test_a_result_of_every_workload_is_on_record() -> None:
    assert {folder.name for folder in FOLDERS} == set(workloads.by_name())


if __name__ == "__main__":
    for folder in FOLDERS:
        (folder / "said.txt").write_text(said(folder))
        (folder / "exported.ndjson").write_text(exported(folder))
