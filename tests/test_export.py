"""Exports hold every trial, and absence as absence."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import records
from tare import experiment as experiments
from tare import export, lines, report, units, workloads
from tare import plan as plans
from tare.errors import TareError, UsageError
from tare.history import summary
from tare.record import Record, Trial

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


@pytest.mark.parametrize("format_", sorted(export.TABLES))
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
    assert isinstance(whole["drift_flagged"], bool)


def test_a_factor_that_does_not_apply_is_null(record):
    rows = export.rows(record)
    assert {row["server_work"] for row in rows if row["transport"] == "icmp"} == {None}


def test_tables_of_many_runs_are_told_apart_and_copies_are_not(record, tmp_path):
    shutil.copytree(record.folder, tmp_path / "copy")
    other = records.make(tmp_path / "other", records.Recipe(blocks=3, seed=2), TEXT)
    identities = []
    for one in (record, Record(tmp_path / "copy"), other):
        rows = export.rows(one)
        (found,) = {tuple(row[name] for name in row if name.startswith("run")) for row in rows}
        identities.append(found)
    assert identities[0] == identities[1]
    assert identities[0][0] != identities[2][0]
    words = "Test processor, 24 GiB, Debian GNU/Linux 12 (bookworm)"
    assert identities[0][1:] == (
        "A title", identities[2][2], words, None, "2026-01-01T00:00:00.000+00:00",
    )  # fmt: skip


def test_a_run_is_the_same_in_its_table_and_in_the_history(record):
    run, _ = summary.summarise(record.folder)
    assert {run["id"]} == {row["run"] for row in export.rows(record)}


COMMANDS = """\
title: "A title"
workload: command
factors:
  environment: [native, qemu]
  command: {dd: "dd bs={block} count={n} of={name} iflag={since}"}
  block: [512 B, 4 KiB]
  n: ['1', '1e3']
  name: ['7', x]
  since: [10m, 20m]
baseline: {environment: native}
blocks: {min: 12, max: 12}
"""


def test_beside_the_text_of_a_level_stands_its_number_in_a_column_with_its_unit():
    plan = plans.make(experiments.parse(COMMANDS, "commands.yaml"), 1)
    levels = export.levels(plan, {"block"})
    cell = next(c for c in plan.cells if c.levels["block"] == "4 KiB" and c.levels["n"] == "1e3")
    found = levels[cell.id]
    assert (found["block_level"], found["block_bytes"]) == ("4 KiB", 4096)
    assert (found["n"], found["n_value"]) == ("1e3", 1000.0)
    assert not found.keys() & {"block", "name_value", "since_ns", "since_value", "command_value"}
    memory = {(one["memory"], one["memory_bytes"]) for one in levels.values()}
    assert memory == {(None, None), ("512 MiB", 512 << 20)}


def test_a_parameter_takes_no_column_of_another():
    text = """\
title: A title
workload: command
factors: {command: {a: "a {cell_level} {cell}"}, cell_level: [a, b], cell: [1, 2]}
baseline: {cell_level: a}
blocks: {min: 8, max: 8}
family: none
"""
    plan = plans.make(experiments.parse(text, "x"), 1)
    for cell in plan.cells:
        found = export.levels(plan, {"cell"})[cell.id]
        assert found["cell_level"] == cell.levels["cell_level"]
        assert found["cell_level_level"] == cell.levels["cell"]
        assert found["cell_value"] == float(cell.levels["cell"])


def test_what_a_command_prints_takes_no_column_of_a_parameter_or_of_its_trial(tmp_path):
    text = """\
title: A title
workload: command
factors: {command: {a: "a {size} {x} {x_value}"}, size: [1MiB, 2MiB], x: [1, 2], x_value: [3, 4]}
baseline: {size: 1MiB}
read: {size: {regex: x, unit: B}, status: {regex: y}, lost: {regex: z}}
blocks: {min: 8, max: 8}
family: none
"""
    plan = plans.make(experiments.parse(text, "x"), 1)
    record = Record.create(tmp_path / "r", text, plan, records.FINGERPRINT)
    cell = next(c for c in plan.cells if c.levels["size"] == "2MiB" and c.levels["x"] == "2")
    with record.writing() as writer:
        writer.append(
            Trial(
                block=0, position=0, repeat=0, cell=cell.id, session="s", seconds=1.0, status="ok",
                started="2026-01-01T00:00:00.000+00:00",
                values={"size": 7.0, "status": 3.0, "lost": 0.5},
            )
        )  # fmt: skip
    (row,) = export.rows(record)
    assert (row["size"], row["size_bytes"], row["size_level_bytes"]) == ("2MiB", 7.0, 2 << 20)
    assert (row["status"], row["status_statistic"]) == ("ok", 3.0)
    export.export(record, "parquet", tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == [row]
    told = (row["x"], row["x_value"], row["x_value_level"], row["x_value_value"])
    assert told == ("2", 2.0, cell.levels["x_value"], float(cell.levels["x_value"]))


def test_a_column_without_a_number_keeps_its_type(record, tmp_path):
    export.export(record, "parquet", tmp_path / "t.parquet")
    schema = pq.read_schema(tmp_path / "t.parquet")
    assert {str(schema.field(name).type) for name in ("link_bits_per_s", "clients_value")} == {
        "double"
    }
    assert str(schema.field("run_commit").type) == "string"


def test_a_column_without_a_text_keeps_its_type(tmp_path):
    """As of a run that was killed before any trial of a cell with that factor."""
    record = records.make(tmp_path / "r", records.Recipe(blocks=1), TEXT)
    trials = record.folder / "trials.ndjson"
    kept = trials.read_text().splitlines(keepends=True)
    trials.write_text("".join(line for line in kept if '"cell":"native/icmp"' in line))
    none = records.make(tmp_path / "none", records.Recipe(blocks=0), TEXT)
    for one in (record, none):
        export.export(one, "parquet", tmp_path / "t.parquet")
        schema = pq.read_schema(tmp_path / "t.parquet")
        texts = {"cell", "status"} | ({"server_work"} if one is record else set())
        assert {str(schema.field(name).type) for name in texts} == {"string"}


def test_a_carriage_return_ends_no_row_of_csv(tmp_path):
    failing = frozenset({(0, "native/udp")})
    recipe = records.Recipe(blocks=1, requests=50, failing=failing, error="10 %\r20 %\rended")
    record = records.make(tmp_path / "r", recipe, TEXT)
    export.export(record, "csv", tmp_path / "t.csv")
    rows = read(tmp_path / "t.csv", "csv")
    assert len(rows) == len(record.trials())
    assert {row["error"] for row in rows if row["status"] == "failed"} == {recipe.error}


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
    page, _, _ = page.partition("## Files for other tools")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    (row, *_) = export.rows(records.make(tmp_path / "r"))
    rows = workloads.by_name()["request-reply"].levels.rows.values()
    numbers = {f"{r.name}{units.COLUMNS[r.unit] or '_value'}" for r in rows if r.unit}
    levels = {r.name for r in rows} | numbers | {"block_level"}
    assert documented - levels == row.keys() - levels


def test_a_position_is_the_place_within_a_setting_up(tmp_path):
    record = records.make(tmp_path / "r")
    for row in export.rows(record):
        visits = [v for v in record.plan.blocks[row["block"]] if row["cell"] in v.cells]
        assert [v.cells.index(row["cell"]) for v in visits] == [row["position"]]


def test_a_file_that_is_written_anew_is_read_by_no_more_people(record, tmp_path):
    out = tmp_path / "out.csv"
    out.touch(0o600)
    os.chown(out, 65534, 65534) if os.geteuid() == 0 else None
    was = out.stat()
    export.export(record, "csv", out)
    now = out.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (was.st_mode, was.st_uid, was.st_gid)
    assert out.read_text().startswith("run,")


def test_a_file_whose_owner_a_user_namespace_does_not_know_is_written_all_the_same(
    monkeypatch, tmp_path
):
    def unknown(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    for call in ("chown", "fchown"):
        monkeypatch.setattr(os, call, unknown)
    (tmp_path / "page").write_text("before")
    lines.put(tmp_path / "page", b"now")
    assert (tmp_path / "page").read_text() == "now"


def test_a_file_is_never_written_by_way_of_another_that_lies_beside_it(tmp_path):
    (tmp_path / "page").write_text("before")
    (tmp_path / "page.part").write_text("a user's own")
    lines.put(tmp_path / "page", b"now")
    assert (tmp_path / "page.part").read_text() == "a user's own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page", "page.part"]


def test_of_two_who_write_one_file_neither_fails(monkeypatch, tmp_path):
    page = tmp_path / "page"
    page.write_text("before")
    meanwhile = iter([b"another's"])
    monkeypatch.setattr(os, "fchown", lambda *_: [lines.put(page, c) for c in meanwhile])
    lines.put(page, b"now")
    assert page.read_text() == "now"
    assert list(tmp_path.iterdir()) == [page]


def test_an_interrupted_write_leaves_nothing(monkeypatch, tmp_path):
    page = tmp_path / "page"
    page.write_text("before")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fchown", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lines.put(page, b"now")
    assert page.read_text() == "before"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(
    ("write", "begins"),
    [
        (lambda record, to: export.export(record, "csv", to), b"run,"),
        (lambda _, to: report.write("a page", to), b"a page"),
    ],
)
def test_what_is_no_ordinary_file_is_written_to_and_stays_what_it_is(
    record, tmp_path, write, begins
):
    """As root's /dev/null: a file in its place would break the machine."""
    pipe, link, there = tmp_path / "pipe", tmp_path / "link", tmp_path / "there"
    os.mkfifo(pipe)
    link.symlink_to(there)
    there.touch()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(record, pipe)
        assert os.read(reader, 1 << 20).startswith(begins)
    finally:
        os.close(reader)
    write(record, link)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert there.read_bytes().startswith(begins)
    for folder in (Path(), Path("/"), tmp_path):
        with pytest.raises(TareError, match="cannot write"):
            write(record, folder)
    assert sorted(tmp_path.iterdir()) == [link, pipe, there]
