"""What is written for other tools says what the result says, in their form, and no more."""

import json
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import jsonschema
import pytest

import records
from tare import experiment as experiments
from tare import export, foreign, repetition, sides
from tare import plan as plans
from tare.cli import asked
from tare.errors import TareError, UsageError
from tare.history import summary
from tare.record import Record

HYPERFINE = Path(__file__).parents[1] / "testdata" / "foreign" / "hyperfine" / "old" / "1.json"
TEXT = """\
title: 'Quotes " and \\ backslashes'
factors: {environment: [native, qemu], transport: [icmp, udp]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""
COMMANDS = """\
title: Commands
workload: command
factors:
  environment: native
  command: {old: 'old -n {n}', new: 'new -n {n}'}
  n: ['1', '4']
baseline: {command: old}
read: {q-ps: {regex: 'a\\.b "(.*)"', unit: 1/s}, q.ps: {regex: 'c', unit: 1/s}}
session: {expect_exit: '3'}
blocks: {min: 8, max: 8}
"""
MACHINE = records.FINGERPRINT | {"memory_bytes": 8 << 30}
# https://bencher.dev/docs/reference/bencher-metric-format
BENCHER = {
    "type": "object",
    "patternProperties": {
        ".+": {
            "type": "object",
            "patternProperties": {
                "^[a-z0-9]+(-[a-z0-9]+)*$": {
                    "type": "object",
                    "properties": {
                        name: {"type": "number"} for name in ("value", "lower_value", "upper_value")
                    },
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        }
    },
}


@pytest.fixture(scope="module")
def responses(tmp_path_factory):
    return records.make(tmp_path_factory.mktemp("responses") / "r", records.Recipe(), TEXT)


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return commanded(tmp_path_factory.mktemp("commands") / "r")


def commanded(folder, *, status="ok", text=COMMANDS):
    """A result of a command: in each session one execution more than in the one before."""
    plan = repetition.planned(plans.make(experiments.parse(text, "x.yaml"), 1))
    record = Record.create(folder, text, plan, records.FINGERPRINT)
    with record.writing() as writer:
        for block, visits in enumerate(plan.blocks):
            for position, cell in enumerate(cell for visit in visits for cell in visit.cells):
                wall = [1_000_000 * (position + 1) + 1000 * (block + i) for i in range(block + 1)]
                values = {
                    "wall": float(statistics.median(wall)),
                    "user": 500_000.0 + block,
                    "q-ps": 2.0,
                    "q.ps": 3.0,
                }
                more = {
                    "values": values,
                    "counters": {"executions": len(wall)},
                    "settings": {"command": "x", "wall_ns": wall},
                }
                if status != "ok":
                    more = {"error": "it ended"}
                session = {"session": f"native-{block}", "status": status}
                writer.append(records.ended(block, position, cell, **session, **more))
    return record


def written(record, format_, path, statistic=None):
    export.export(record, format_, path, statistic)
    return path.read_text()


@dataclass
class Family:
    """A metric of OpenMetrics text."""

    unit: str
    help: str
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)


_TEXT = r'(?:[^"\\\n]|\\[\\"n])*'
_LABEL = rf'([a-zA-Z_][a-zA-Z0-9_]*)="({_TEXT})"'
_HEAD = re.compile(rf"# TYPE (\w+) gauge\n(?:# UNIT \1 (\w+)\n)?# HELP \1 ({_TEXT})\n")
_SAMPLE = re.compile(rf"(\w+)\{{({_LABEL}(?:,{_LABEL})*)\}} ([0-9.e+-]+)\n")


def unescaped(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def families_of(text):
    """Parse OpenMetrics text of gauges as strictly as its specification's grammar."""
    found, at = {}, 0
    while text[at:] != "# EOF\n":
        head = _HEAD.match(text, at)
        assert head, text[at : at + 200]
        name, unit, help_ = head.groups()
        assert name not in found, "a family stands once"
        assert not unit or name.endswith(f"_{unit}")
        family = found[name] = Family(unit or "", unescaped(help_))
        at = head.end()
        while (sample := _SAMPLE.match(text, at)) and sample[1] == name:
            labels = re.findall(_LABEL, sample[2])
            one = {key: unescaped(value) for key, value in labels}
            assert len(one) == len(labels)
            family.samples.append((one, float(sample.groups()[-1])))
            at = sample.end()
        assert len({tuple(sorted(one.items())) for one, _ in family.samples}) == len(family.samples)
        assert family.samples
    return found


def levels(record):
    """(cell, statistic) -> value, low, high of the first arms, as the history has them."""
    _, rows = summary.summarise(record.folder)
    return {
        (row["cell"], row["statistic"]): [row[end] for end in ("value", "low", "high")]
        for row in rows
        if row["replica"] == 1
    }


def test_openmetrics_has_each_statistic_with_its_interval_and_what_it_is_of(responses, tmp_path):
    families = families_of(written(responses, "openmetrics", tmp_path / "x"))
    found = {}
    for name, unit, divisor in (("p50", "seconds", 1e9), ("throughput", "per_second", 1.0)):
        for part, end in (("", 0), ("_low", 1), ("_high", 2)):
            family = families[f"tare_{name}{part}_{unit}"]
            assert family.unit == unit
            for labels, value in family.samples:
                assert labels["statistic"] == name
                found.setdefault((labels["cell"], name), [0.0] * 3)[end] = value * divisor
    known = levels(responses)
    assert found == {key: pytest.approx(known[key], rel=1e-12) for key in found}
    assert len({cell for cell, _ in found}) == 4
    guest = next(
        labels
        for labels, _ in families["tare_p50_seconds"].samples
        if labels["environment"] == "qemu"
    )
    assert guest["run_title"] == 'Quotes " and \\ backslashes'
    assert guest["accelerator"] == "tcg", "what it ran under, not auto"
    assert (guest["payload"], guest["machine"]) == ("64 B", "q35")
    ((run, began),) = families["tare_run_start_time_seconds"].samples
    assert began == 1767225600.0
    assert guest["run"] == run["run"] == export.rows(responses)[0]["run"]
    assert not any("p99_99" in name for name in families), "1000 replies cannot resolve it"


def test_statistics_that_differ_in_a_sign_alone_are_still_told_apart(commands, tmp_path):
    families = families_of(written(commands, "openmetrics", tmp_path / "x"))
    found = families["tare_q_ps_per_second"]
    assert found.help.startswith('what matches a\\.b "(.*)"')
    values = {labels["statistic"]: value for labels, value in found.samples}
    assert values == {"q-ps": pytest.approx(2.0), "q.ps": pytest.approx(3.0)}
    assert families["tare_wall_seconds"].samples[0][0]["n"] == "1"


def test_a_parameter_takes_no_label_of_another(tmp_path):
    text = COMMANDS.replace("'old -n {n}'", "'old {cell} {cell_level}'")
    text = text.replace("'new -n {n}'", "'new {cell} {cell_level}'")
    text = text.replace("n: ['1', '4']", "cell_level: [a]\n  cell: ['1']")
    families = families_of(
        written(commanded(tmp_path / "r", text=text), "openmetrics", tmp_path / "x")
    )
    labels, _ = families["tare_wall_seconds"].samples[0]
    assert (labels["cell_level"], labels["cell_level_level"]) == ("a", "1")


def test_bencher_gets_every_statistic_with_its_bounds(responses, tmp_path):
    document = json.loads(written(responses, "bencher", tmp_path / "x"))
    jsonschema.validate(document, BENCHER)
    known = levels(responses)
    assert len(known) == sum(map(len, document.values()))
    for cell in ("native/udp", "qemu/udp"):
        assert list(document[cell]["p99-ns"].values()) == known[cell, "p99"]
        assert list(document[cell]["throughput-per-s"].values()) == known[cell, "throughput"]
    one = json.loads(written(responses, "bencher", tmp_path / "x", "p90"))
    assert [*one["native/udp"]] == ["p90-ns"]


def test_two_statistics_that_are_one_measure_of_benchers_are_refused(commands, tmp_path):
    with pytest.raises(UsageError, match="both be Bencher's measure q-ps-per-s") as caught:
        export.export(commands, "bencher", tmp_path / "x")
    assert caught.value.remedy == "add --statistic with one of them"
    assert "q-ps-per-s" in written(commands, "bencher", tmp_path / "x", "q.ps")


def test_one_block_has_no_bounds_and_they_are_left_out(tmp_path):
    record = records.make(tmp_path / "r", records.Recipe(blocks=1), TEXT)
    document = json.loads(written(record, "bencher", tmp_path / "x"))
    assert [*document["native/udp"]["p50-ns"]] == ["value"]
    assert "_low" not in written(record, "openmetrics", tmp_path / "x")
    entries = json.loads(written(record, "google-benchmark", tmp_path / "x"))["benchmarks"]
    assert [entry["run_type"] for entry in entries] == ["iteration"] * 4


@pytest.mark.parametrize("statistic", [None, "p99"])
def test_what_is_written_as_google_benchmark_is_read_again_with_equal_medians(
    responses, tmp_path, statistic
):
    document = json.loads(written(responses, "google-benchmark", tmp_path / "x.json", statistic))
    tool, found = foreign.load(tmp_path / "x.json")
    assert tool.name == "Google Benchmark"
    name = statistic or "p50"
    column = f"{name}_ns"
    for cell in ("native/udp", "qemu/udp"):
        ours = statistics.median(
            row[column] for row in export.rows(responses) if row["cell"] == cell
        )
        (theirs,) = found.benchmarks[f"{cell}/{name}"].restarts
        assert statistics.median(theirs) == ours
        (told,) = (b for b in document["benchmarks"] if b["name"] == f"{cell}/{name}_median")
        assert told["real_time"] == ours
    assert {b.get("aggregate_name") for b in document["benchmarks"]} == {
        None, "mean", "median", "stddev", "cv",
    }  # fmt: skip
    assert not any("cpu_time" in entry for entry in document["benchmarks"]), "nobody told it"


def test_google_benchmark_gets_the_processor_time_of_a_command(commands, tmp_path):
    document = json.loads(written(commands, "google-benchmark", tmp_path / "x.json"))
    first, *_ = document["benchmarks"]
    assert (first["cpu_time"], first["iterations"]) == (500_000.0, 1)


def test_what_is_written_as_hyperfine_is_read_again_with_equal_medians(commands, tmp_path):
    document = json.loads(written(commands, "hyperfine", tmp_path / "x.json"))
    tool, found = foreign.load(tmp_path / "x.json")
    assert tool.name == "hyperfine"
    (run,) = sides.runs_of(tmp_path / "x.json")
    cells = {cell.id for cell in commands.plan.cells if cell.replica == 1}
    assert set(run.names) == cells == found.benchmarks.keys()
    for result in document["results"]:
        told = [
            ns
            for trial in commands.trials()
            if trial.cell == result["command"]
            for ns in trial.settings["wall_ns"]
        ]
        theirs = [ns for (ns,) in found.benchmarks[result["command"]].restarts]
        assert theirs == pytest.approx(told, rel=1e-12)
        assert statistics.median(theirs) == pytest.approx(statistics.median(told), rel=1e-12)
        assert result["median"] == pytest.approx(statistics.median(told) / 1e9)
        assert result["exit_codes"] == [3] * len(told)
        of_executions = sum((block + 1) * (500_000 + block) for block in range(8)) / 36 / 1e9
        assert result["user"] == pytest.approx(of_executions)
        assert result["system"] is None, "never told: zero, or unknown"
    assert {result["parameters"]["n"] for result in document["results"]} == {"1", "4"}
    of_theirs = json.loads(HYPERFINE.read_text())["results"][0].keys()
    assert document["results"][0].keys() == of_theirs | {"parameters"}


def test_exports_of_two_machines_are_not_compared_unasked(responses, tmp_path):
    other = records.make(tmp_path / "r", records.Recipe(), TEXT, MACHINE)
    for name, record in (("a", responses), ("b", other)):
        export.export(record, "google-benchmark", tmp_path / f"{name}.json")
    pair = [sides.runs_of(tmp_path / f"{name}.json")[0] for name in "ab"]
    with pytest.raises(UsageError, match="different machines \\(run_machine"):
        sides.refuse_unlike(*pair, across_machines=False)


def refusal(record, format_, statistic=None):
    with pytest.raises(UsageError) as caught:
        export.export(record, format_, None, statistic)
    assert caught.value.remedy
    return caught.value.what


def test_what_a_format_cannot_say_is_refused_in_a_sentence(responses, commands, tmp_path):
    assert "not request-reply" in refusal(responses, "hyperfine")
    assert "not another statistic" in refusal(commands, "hyperfine", "user")
    assert "throughput is in 1/s" in refusal(responses, "google-benchmark", "throughput")
    assert "no statistic 'p98'" in refusal(responses, "bencher", "p98")
    assert "p99.99: its sessions are too short" in refusal(responses, "openmetrics", "p99.99")
    assert "a table has every statistic" in refusal(responses, "parquet", "p50")
    assert "no trial that was measured" in refusal(
        commanded(tmp_path / "r", status="failed"), "bencher"
    )


def test_a_value_over_two_accelerators_is_refused(tmp_path):
    recipe = records.Recipe(accelerator=lambda block, _: "kvm" if block else "tcg")
    record = records.make(tmp_path / "r", recipe, TEXT)
    assert "kvm and tcg" in refusal(record, "openmetrics")


def test_an_export_that_cannot_be_made_is_refused_before_anything_is_measured(tmp_path):
    csv = tmp_path / "x.csv"
    found = asked.exports({"csv": csv, "json": None}, [f"bencher={tmp_path}/a=b.json"])
    assert found == [("csv", csv), ("bencher", tmp_path / "a=b.json")]
    for named, other, said in (
        ({}, "bencher", "cannot read --export"),
        ({}, "xml=x", "no format 'xml'"),
        ({}, f"bencher={tmp_path}/no/x", "its folder is not there"),
        ({"csv": tmp_path / "no" / "x"}, f"csv={csv}", "its folder is not there"),
    ):
        with pytest.raises(TareError, match=said) as caught:
            asked.exports(named, [other])
        assert caught.value.remedy
