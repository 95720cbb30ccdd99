"""What an experiment file asks of commands, and what is read of their output."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import experiment, plan
from tare.errors import TrialError, UsageError
from tare.schema import json_schema
from tare.units import scale
from tare.workloads.command import Command
from tare.workloads.command.document import program, substituted, words
from tare.workloads.command.executions import Printed, read
from tare.workloads.command.reading import Reading
from tare.workloads.command.requirements import lacking
from tare.workloads.command.rows import CommandSettings

FILE = """\
title: Is the new one faster?
workload: command
factors:
  command:
    new: ./new/app --threads {threads}
    old: [./old/app, --threads, '{threads}', -x, 'two words']
  threads: [1, 2, 4]
baseline: {command: old}
session: {cwd: /, env: 'MODE={mode}', prepare: 'rm -f out'}
read:
  qps: {regex: '(\\d+) queries/s', unit: 1/s}
  latency: {json: 'all.0.p50', unit: us}
statistic: qps
blocks: {min: 9}
"""


def parsed(text: str) -> experiment.Experiment:
    return experiment.parse(text, "x.yaml")


def test_commands_and_parameters_are_factors_and_readings_statistics() -> None:
    text = FILE.replace("threads: [1, 2, 4]", "threads: [1, 2, 4]\n  mode: [a, b]")
    asked = parsed(text)
    assert asked.factors["command"] == ("new", "old")
    laid_out = plan.make(asked, 1)
    assert {cell.id for cell in laid_out.cells if cell.replica == 1} == {
        f"{name}/{threads}/{mode}" for name in ("new", "old") for threads in "124" for mode in "ab"
    }
    workload = laid_out.workload
    assert workload.statistics["qps"].better == "higher"
    assert workload.statistics["latency"].unit == "ns"
    again = plan.Plan.model_validate_json(laid_out.model_dump_json())
    assert again.workload is workload


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("  threads: [1, 2, 4]", "  treads: [1, 2, 4]", "x.yaml:7: factors.treads: unknown factor"),
        ("    new: ./new/app --threads {threads}", "    new: 'a \"b'", "cannot be split"),
        ("    new: ./new", "    'ne w': ./new", "'ne w' is no name of a command"),
        ("qps: {", "wall: {", "read.wall: is measured of every command"),
        ("unit: 1/s", "unit: parsec", "read.qps.unit: 'parsec' is no unit"),
        ("regex: '(\\d+)", "regex: '(\\d+", "read.qps.regex: is no regular expression"),
        ("unit: 1/s", "json: a", "read.qps: say by `regex` or by `json`"),
        ("cwd: /", "expect_file: out", "session.expect_file: 'out' is no checksum"),
        ("cwd: /", "shell: \"sh 'x\"", "x.yaml:9: session.shell: cannot be split into words"),
        ("statistic: qps", "statistic: []", "statistic: a list: choose wall"),
        ("cwd: /", "expect_exit: 300", "session.expect_exit: '300' is no exit code"),
        ("'MODE={mode}'", "no-name", "session.env: 'no-name' is no variable"),
        ("workload: command", "workload: cpu", "command: unknown factor"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line(line: str, instead: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(FILE.replace(line, instead))
    assert said in error.value.what


def test_without_a_command_there_is_nothing_to_run() -> None:
    with pytest.raises(UsageError, match="command: is required"):
        parsed("{title: t, workload: command, factors: {environment: native}, baseline: {}}")


def test_what_is_of_commands_alone_means_nothing_elsewhere() -> None:
    text = "{title: t, factors: {environment: native}, baseline: {}, read: {a: {regex: b}}}"
    with pytest.raises(UsageError, match="read: means nothing for request-reply"):
        parsed(text)


def test_a_single_line_is_named_after_its_program() -> None:
    asked = parsed(
        "{title: t, workload: command, baseline: {}, factors: {command: /usr/bin/gzip -c x}}"
    )
    assert asked.commands == {"gzip": "/usr/bin/gzip -c x"}


@pytest.mark.parametrize(
    ("factors", "accepted"),
    [
        ({"command": {"new": "a {n}", "old": ["a", "{n}"]}, "n": [1, 2]}, True),
        ({"command": "gzip -c x", "environment": "native"}, True),
        ({"command": {"new": {"a": "b"}}}, False),
        ({"command": "true", "files": "borrowed"}, False),
    ],
)
def test_editors_know_commands(factors: dict[str, Any], accepted: bool) -> None:
    document = {"title": "t", "workload": "command", "factors": factors, "baseline": {}}
    document |= {"read": {"q": {"regex": "a"}}, "statistic": "q"}
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(document) is accepted


def test_a_level_is_no_more_than_a_part_of_a_word() -> None:
    parameters = {"name": "two words", "n": "3"}
    assert words("app {name} '{n} x' {other} {{n}}", parameters, "") == [
        "app", "two words", "3 x", "{other}", "{3}",
    ]  # fmt: skip
    assert words("a {n} | b", parameters, "sh -e") == ["sh", "-e", "-c", "a 3 | b"]


@given(st.text(), st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), st.text()))
def test_what_names_no_parameter_stays(text: str, parameters: dict[str, str]) -> None:
    if not any(f"{{{name}}}" in text for name in parameters):
        assert substituted(text, parameters) == text


def test_numbers_are_read_by_expression_or_path_in_their_unit() -> None:
    def of(out: str, err: str = "", **how: str) -> float:
        return Reading.model_validate(how).of("n", Printed(out), Printed(err))

    assert of("a 1.5 ms\nb 2.5 ms", regex=r"(\S+) ms", unit="ms") == 2.5e6
    assert of("", "total: 12", regex=r"^total: (\d+)", unit="1") == 12
    assert of('{"jobs": [{"bw": 3}]}', json="jobs[0].bw", unit="kB/s") == 3000
    for how, out in (
        ({"regex": "x(.)"}, "nothing"),
        ({"regex": "x(.)"}, "xy"),
        ({"regex": "x(nan)"}, "xnan"),
        ({"json": "a"}, '{"a": Infinity}'),
        ({"json": "a.b"}, '{"a": []}'),
        ({"json": "a"}, "no JSON"),
        ({"json": "a"}, '{"a": true}'),
    ):
        with pytest.raises(TrialError, match="no n was found there") as caught:
            of(out, **how)
        assert "None" not in caught.value.what
    assert of("x0", regex="x(.)") == 0


@given(st.text(), st.text(), st.text())
def test_whatever_is_printed_is_a_number_or_said_not_to_be(path: str, out: str, err: str) -> None:
    for how in ({"json": path}, {"regex": "([0-9a-z])"}):
        try:
            found = Reading.model_validate(how).of("n", Printed(out), Printed(err))
            assert math.isfinite(found)
        except TrialError as error:
            assert error.what


@pytest.mark.parametrize(
    ("regex", "out", "found"),
    [
        ("([0-9.]+) cycles", "  1,234,567 cycles", None),
        ("([0-9.]+) queries", "9,900 queries", None),
        ("([0-9.]+) s", "1.5e+06 s", None),
        ("[0-9]+", "1.500", None),
        ("(-?[0-9.]+) s", "1.5e-06 s", None),
        ("([0-9.]+)$", "time,12,34", 34),  # a column
        ("([0-9.]+)$", "x,64,100.3", 100.3),
        ("([0-9.]+)$", "1024,100", 100),
        (r"(?<=p99_)\d+", "p99_12", 12),
        (",([0-9]+)$", "12,345", 345),
        ("([0-9.]+) s", "took 1.5 s", 1.5),
    ],
)
def test_the_end_of_a_number_is_not_taken_for_it(regex: str, out: str, found: float | None) -> None:
    reading = Reading(regex=regex)
    if found is not None:
        assert reading.of("n", Printed(out), Printed("")) == found
        return
    with pytest.raises(TrialError, match="is only the end of"):
        reading.of("n", Printed(out), Printed(""))


def test_a_name_with_dots_is_quoted_in_a_path() -> None:
    out = Printed('{"clat": {"99.000000": [5, 7]}}')
    for path in ('clat["99.000000"][1]', "clat['99.000000'][1]"):
        assert Reading(json=path).of("n", out, Printed("")) == 7
    with pytest.raises(TrialError, match="no n was found there"):
        Reading(json="n").of("n", Printed(f'{{"n": {"9" * 401}}}'), Printed(""))


def test_words_and_levels_stay_as_they_stand_in_the_file() -> None:
    asked = parsed(
        """\
title: t
workload: command
factors:
  command: {a: [echo, true, 1.50, 007, 1e3, no, "{v}"]}
  v: [3.10, 08, 0x10]
baseline: {v: 3.10}
"""
    )
    assert asked.factors["v"] == ("3.10", "08", "0x10")
    assert asked.commands == {"a": "echo true 1.50 007 1e3 no '{v}'"}


def test_units_are_multiples_of_ours() -> None:
    assert scale("us") == ("ns", 1e3)
    assert scale("MiB") == ("B", 1 << 20)
    assert scale("Mbit/s") == ("B/s", 125_000)
    assert scale("kHz") == ("1/s", 1e3)
    assert scale("1") == ("1", 1)


class Side:
    """Says what it is given, as `probe/execute` would."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self._lines = iter(lines)

    def event(self, timeout_s: float) -> dict[str, Any]:
        return next(self._lines)


LINE = {
    "event": "execution", "warmup": False, "code": 0, "timed_out": False, "wall_ns": 2_000_000,
    "user_ns": 1_000_000, "system_ns": 0, "peak_bytes": 1 << 20, "minor_faults": 50,
    "major_faults": 1, "voluntary_switches": 1, "involuntary_switches": 1, "stdout": "",
    "stderr": "", "check": "", "stdout_bytes": 0, "stderr_bytes": 0, "round_ns": 3_000_000,
}  # fmt: skip
FAULTS = ("minor_faults", "major_faults")
SWITCHES = ("voluntary_switches", "involuntary_switches")
DONE = {"event": "done"}


def test_of_a_long_output_the_number_at_its_end_counts_or_it_is_said() -> None:
    length = 70_000
    for end, found in (("\nops 7\n", 7), ("\nops 7\nops 8", 8), (" 7\n", None), ("7 ops\n", None)):
        out = Printed.of(f"ops 6\n6 ops\n[...]\n{end}", length)
        for regex in (r"ops (\d)", r"^ops (\d)", r"(\d) ops"):
            try:
                assert Reading(regex=regex).of("n", out, Printed("")) == found
            except TrialError as error:
                assert found is None or regex.endswith("ops"), error
                assert "the middle of its 70000 bytes was not kept" in error.what
    assert Reading(regex="ops (.)").of("n", out, Printed("ops 9")) == 9
    assert Reading(regex="ops (.)").of("n", Printed("ops 9"), out) == 9
    out = Printed.of('{"a": \n[...]\n1}', length)
    with pytest.raises(TrialError, match="the middle of its 70000 bytes was not kept"):
        Reading.model_validate({"json": "a"}).of("n", out, Printed(""))


def test_values_are_of_all_executions_and_the_untold_are_absent() -> None:
    lines = [{**LINE, "wall_ns": ns, "minor_faults": ns} for ns in (3, 1, 2)]
    warm = {**LINE, "warmup": True, "wall_ns": 1000}
    empty = {"event": "empty", "wall_ns": [4, 9, 5]}
    session = read(Side(empty, warm, *lines, DONE), "c", 0, 1.0, "1 s")
    assert session.values() == {
        "wall": 2.0, "user": 1e6, "system": 0.0, "peak": 1 << 20, "faults": 3.0, "switches": 2.0,
        "start": 5.0,
    }  # fmt: skip
    # gVisor's kernel counts neither faults nor switches, and says 0.
    none = dict.fromkeys(LINE.keys() & {*FAULTS, *SWITCHES}, 0)
    values = read(Side({**LINE, **none}, DONE), "c", 0, 1.0, "1 s").values()
    assert values.keys() == {"wall", "user", "system", "peak"}
    assert session.counters() == {
        "executions": 3, "major_faults": 3, "storage_read_bytes": 0, "storage_written_bytes": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**LINE, "code": 3, "stderr": "no such file"}, "exit code 3; its last words: no such"),
        ({**LINE, "code": -11, "warmup": True}, "by signal 11 while it warmed up"),
        ({**LINE, "code": -9, "timed_out": True}, "did not end within 1 s, and was killed"),
        ({"event": "failed", "why": "cannot start c"}, "could not be executed: cannot start c"),
        (DONE, "was not executed"),
        ({"event": "execution"}, "printed something else"),
    ],
)
def test_a_failed_execution_fails_the_trial_with_its_words(line: Any, said: str) -> None:
    with pytest.raises(TrialError, match=said):
        read(Side(line, DONE), "c", 0, 1.0, "1 s")


def test_its_folder_is_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = parsed(FILE.replace("cwd: /, ", "").replace(", env: 'MODE={mode}'", ""))
    assert asked.session["cwd"] == str(tmp_path)


def test_what_is_copied_are_the_programs_and_inputs_of_every_level(tmp_path: Path) -> None:
    """A level that prepare makes the files of, or no cell has, asks for none."""
    for name in ("1/app", "2/app", "data-1", "data-3", "more"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(mode=0o755)
    line = "{title: t, workload: command, baseline: {}, factors: {environment: qemu, files: copied,"
    asked = parsed(
        f"{line} command: './{{build}}/app {{n}}', build: [1, 2, 4], n: [1, 3, 5]}},"
        f" session: {{cwd: {tmp_path}, stdin: 'data-{{n}}', inputs: more, env: 'MODE={{n}}'}}}}"
    )
    laid_out = plan.make(asked, 1)
    workload = laid_out.workload
    assert isinstance(workload, Command)
    tree = workload.seen(laid_out.blocks[0][0].plot, laid_out.session)
    assert tree.files == "copied"
    assert tree.programs == tuple(f"{tmp_path}/{build}/app" for build in (1, 2))
    assert {*tree.inputs} == {f"{tmp_path}/{name}" for name in ("more", "data-1", "data-3")}


def test_of_an_image_only_what_lies_in_the_folder_is_this_machines(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    for stdin, copied in (("data", [f"{tmp_path}/data"]), ("/etc/passwd", [])):
        asked = parsed(
            "{title: t, workload: command, baseline: {}, factors: {environment: qemu,"
            f" command: cat}}, session: {{cwd: {tmp_path}, image: /an/image, stdin: {stdin}}}}}"
        )
        laid_out = plan.make(asked, 1)
        assert isinstance(laid_out.workload, Command)
        tree = laid_out.workload.seen(laid_out.blocks[0][0].plot, laid_out.session)
        assert [*tree.inputs] == copied


def test_a_program_is_looked_for_on_the_path_of_its_cell(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "app").touch(mode=0o755)
    asked = parsed(
        "{title: t, workload: command, baseline: {}, factors: {command: app, build: [1, 2]},"
        f" session: {{cwd: {tmp_path}, env: 'PATH={tmp_path}/{{build}}'}}}}"
    )
    settings = plan.make(asked, 1).session
    assert isinstance(settings, CommandSettings)
    for build, said in (("1", None), ("2", "there is no program app on PATH")):
        found = lacking(settings, ["app"], {"build": build}, copied=False)
        assert found == said or (said and found and said in found)


def test_a_command_is_named_by_its_program_and_not_by_a_piece_of_its_path() -> None:
    assert program("'./my tools/sort.py' -n") == "sort.py"
    assert program("'./my tools/sort all.py'") == ""
    assert program("/usr/bin/gzip -9") == "gzip"
    assert program("echo 'a quote that a shell would read") == ""
