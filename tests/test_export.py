"""Exports hold every trial, and absence as absence."""

import json
import re
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import records
from tare import export, workloads
from tare.errors import TareError, UsageError

TEXT = """\
title: "A title"
factors: {environment: [native, container], transport: [icmp, udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""
NASTY = "it said \"no\", then; \N{BLACK HEART SUIT}\nand 'ended'"


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    failing = frozenset({(1, "container/udp")})
    recipe = records.Recipe(blocks=3, requests=400, failing=failing, error=NASTY)
    return records.make(tmp_path_factory.mktemp("export") / "r", recipe, TEXT)


def read(path, format_):
    if format_ == "parquet":
        return pq.read_table(path).to_pylist()
    if format_ == "json":
        return json.loads(path.read_text())
    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parsing).to_pylist()


@pytest.mark.parametrize("format_", sorted(export.FORMATS))
def test_what_is_written_is_what_is_on_record(record, tmp_path, format_):
    path = tmp_path / f"it's an export.{format_}"
    export.export(record, format_, path)
    rows = read(path, format_)
    assert len(rows) == len(record.trials())
    failed = next(row for row in rows if row["status"] == "failed")
    assert failed["error"] == NASTY
    assert failed["p50_ns"] is None
    whole = next(row for row in rows if row["cell"] == "native/udp")
    assert whole["p50_ns"] == pytest.approx(6900, rel=0.1)
    assert whole["p99_ns"] > whole["p50_ns"]
    assert whole["p99.99_ns"] is None, "400 samples cannot resolve it"
    assert whole["drift_flagged"] in (True, False)


def test_a_factor_that_does_not_apply_is_null(record):
    rows = export.rows(record)
    assert {row["server_work"] for row in rows if row["transport"] == "icmp"} == {None}


def test_json_goes_to_standard_output(record, capfdbinary):
    export.export(record, "json", None)
    assert len(json.loads(capfdbinary.readouterr().out)) == len(record.trials())


def test_a_run_without_trials_exports_an_empty_table(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=0), TEXT)
    export.export(record, "csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "block,cell,status\n"


def test_an_unknown_format_is_refused(record, tmp_path):
    with pytest.raises(UsageError, match="xlsx") as caught:
        export.export(record, "xlsx", tmp_path / "x")
    assert "csv" in caught.value.remedy


def test_a_folder_that_is_not_there_is_an_error_that_names_it(record, tmp_path):
    with pytest.raises(TareError, match="nowhere"):
        export.export(record, "csv", tmp_path / "nowhere" / "out.csv")


def test_every_column_is_documented_and_no_other(tmp_path):
    page = (Path(__file__).parents[1] / "docs/formats/export.md").read_text()
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    (row, *_) = export.rows(records.make(tmp_path / "r"))
    factors = set(workloads.by_name()["request-reply"].levels.rows)
    assert documented - factors == row.keys() - factors


def test_a_position_is_the_place_within_a_setting_up(tmp_path):
    record = records.make(tmp_path / "r")
    for row in export.rows(record):
        visits = [v for v in record.plan.blocks[row["block"]] if row["cell"] in v.cells]
        assert [v.cells.index(row["cell"]) for v in visits] == [row["position"]]
