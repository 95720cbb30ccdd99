"""What other tools wrote is read as they meant it, and what is broken is told in a sentence."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from needs import in_a_line, tare
from tare import compare, compared, foreign, sides
from tare.errors import Exit, UsageError
from tare.stats import Verdict

HERE = Path(__file__).parents[1] / "testdata" / "foreign"
FILES = {
    "hyperfine": HERE / "hyperfine" / "old" / "1.json",
    "Google Benchmark": HERE / "google-benchmark" / "1.json",
    "pyperf": HERE / "pyperf" / "1.json",
    "JMH": HERE / "jmh" / "1.json",
}
PATHS = {**FILES, "Criterion": HERE / "criterion"}


def test_every_tool_has_a_file_that_it_wrote():
    assert PATHS.keys() == {tool.name for tool in foreign.tools()}


@pytest.mark.parametrize("name", PATHS)
def test_a_file_is_known_for_what_it_is(name):
    tool, found = foreign.load(PATHS[name])
    assert tool.name == name
    assert all(v > 0 for b in found.benchmarks.values() for r in b.restarts for v in r)


def test_times_are_told_in_ns_and_by_the_process_that_they_are_of():
    _, hyperfine = foreign.load(FILES["hyperfine"])
    written = json.loads(FILES["hyperfine"].read_text())["results"][0]
    found = hyperfine.benchmarks["compress"].restarts
    assert found == [[pytest.approx(1e9 * time)] for time in written["times"]]
    _, google = foreign.load(FILES["Google Benchmark"])
    assert [len(b.restarts) for b in google.benchmarks.values()] == [1, 1, 1]
    assert google.benchmarks["BM_Copy"].restarts[0][0] == pytest.approx(185.4, rel=0.001)
    _, pyperf = foreign.load(FILES["pyperf"])
    assert [len(r) for r in pyperf.benchmarks["sum"].restarts] == [3, 3, 3, 3]
    assert 1e3 < pyperf.benchmarks["sum"].restarts[0][0] < 1e6
    _, criterion = foreign.load(PATHS["Criterion"])
    sample = json.loads((HERE / "criterion/sum/new/sample.json").read_text())
    first = sample["times"][0] / sample["iters"][0]
    assert criterion.benchmarks["sum"].restarts[0][0] == pytest.approx(first)
    assert "sort/unstable/1000" in criterion.benchmarks


def test_a_rate_is_better_higher_and_forks_are_restarts():
    _, jmh = foreign.load(FILES["JMH"])
    rate = jmh.benchmarks["sample.Sums.throughput n=100 thrpt"]
    assert (rate.statistic.unit, rate.statistic.better) == ("1/s", "higher")
    assert [len(fork) for fork in rate.restarts] == [2, 2, 2]
    time = jmh.benchmarks["sample.Sums.average n=100 avgt"]
    assert (time.statistic.unit, time.statistic.better) == ("ns", "lower")
    assert 100 < time.restarts[0][0] < 100_000


def test_what_jmh_sampled_is_read_from_its_histogram():
    _, found = foreign.load(HERE / "jmh" / "sampled.json")
    (one,) = found.benchmarks.values()
    written = json.loads((HERE / "jmh" / "sampled.json").read_text())[0]["primaryMetric"]
    pairs = np.array(written["rawDataHistogram"][0][0])
    mean = (pairs[:, 0] * pairs[:, 1]).sum() / pairs[:, 1].sum()
    assert one.restarts[0][0] == pytest.approx(mean)


def test_what_jmh_could_not_time_is_refused(tmp_path):
    written = json.loads((HERE / "jmh" / "sampled.json").read_text())
    for fork in written[0]["primaryMetric"]["rawDataHistogram"]:
        fork[:] = [[[0.0, 5]]]
    (file := tmp_path / "1.json").write_text(json.dumps(written))
    with pytest.raises(UsageError, match="is shorter than the clock's tick"):
        foreign.load(file)


def test_what_failed_is_left_out_and_told():
    _, found = foreign.load(FILES["Google Benchmark"])
    assert "BM_Fails" not in found.benchmarks
    assert "BM_Fails failed: no such device" in found.notes
    _, failing = foreign.load(HERE / "hyperfine" / "failing.json")
    assert "3 executions of false did not end with 0" in failing.notes
    _, unforked = foreign.load(HERE / "jmh" / "unforked.json")
    assert "ran in JMH's own process" in unforked.notes[0]


def test_what_skipped_itself_is_left_out_and_told_once(tmp_path):
    written = json.loads(FILES["Google Benchmark"].read_text())
    entry = {"name": "BM_Skips", "run_type": "iteration", "real_time": 0.0, "time_unit": "ns"}
    skipped = {**entry, "skipped": True, "skip_message": "no such device"}
    written["benchmarks"] += [skipped, skipped]
    (file := tmp_path / "1.json").write_text(json.dumps(written))
    _, found = foreign.load(file)
    assert "BM_Skips" not in found.benchmarks
    assert found.notes.count("BM_Skips was skipped: no such device") == 1
    assert len(found.benchmarks) == 3


def test_a_repetition_that_failed_fails_its_benchmark_whose_others_are_told(tmp_path):
    written = json.loads(FILES["Google Benchmark"].read_text())
    first = next(entry for entry in written["benchmarks"] if entry["run_type"] == "iteration")
    written["benchmarks"].append({**first, "error_occurred": True, "error_message": "boom"})
    (file := tmp_path / "1.json").write_text(json.dumps(written))
    _, found = foreign.load(file)
    failed = [name for name, benchmark in found.benchmarks.items() if benchmark.failed]
    assert failed == [first["run_name"]]
    assert f"{first['name']} failed: boom" in found.notes


def test_a_saved_baseline_of_criterion_is_named_behind_its_folder():
    first, second = HERE / "criterion", Path(f"{HERE / 'criterion'}@main")
    found = compare.compare(sides.runs_of(first), sides.runs_of(second))
    assert [cell.cell for cell in found.cells] == ["sum"]
    assert found.only_earlier == ("sort/unstable/100", "sort/unstable/1000")
    with pytest.raises(UsageError, match="with a baseline 'none'"):
        sides.runs_of(Path(f"{HERE / 'criterion'}@none"))


@pytest.mark.parametrize("name", PATHS)
def test_one_run_of_a_tool_gives_no_verdict_and_says_what_it_forbids(name):
    run = sides.runs_of(PATHS[name])
    found = compare.compare(run, run)
    assert not found.judged
    said = compared.method(found)
    assert "no verdict: 1 run against 1" in said
    assert {
        "hyperfine": "all executions of one command run in a row",
        "Criterion": "never started anew",
        "Google Benchmark": "never started anew",
        "pyperf": "all processes of one benchmark run in a row",
        "JMH": "all forks of one benchmark run in a row",
    }[name] in said
    assert "take turns until each has 4 files" in said


def test_four_runs_a_side_are_judged_by_runs_and_not_by_executions():
    found = compare.compare(
        sides.runs_of(HERE / "hyperfine" / "old"), sides.runs_of(HERE / "hyperfine" / "new")
    )
    verdicts = {cell.cell: cell.judgement.verdict for cell in found.cells}
    assert verdicts == {"compress": Verdict.SLOWER, "list": Verdict.INCONCLUSIVE}
    assert found.cells[0].ratio.n_used == 4
    assert "the files do not tell" in compared.method(found)


def test_copies_of_one_file_are_as_many_runs(tmp_path):
    for number in range(4):
        shutil.copy(FILES["Google Benchmark"], tmp_path / f"{number}.json")
        shutil.copytree(PATHS["Criterion"], tmp_path / "c" / str(number))
    assert len(sides.runs_of(tmp_path)) == 4
    assert len(sides.runs_of(tmp_path / "c")) == 4
    (run,) = sides.runs_of(PATHS["Criterion"])
    assert run.folder == PATHS["Criterion"]


def test_groups_of_criterion_are_one_run_and_each_may_be_compared_alone(tmp_path):
    run = tmp_path / "target" / "criterion"
    shutil.copytree(PATHS["Criterion"] / "sort", run / "sort")
    shutil.copytree(PATHS["Criterion"] / "sort", run / "order")
    for file in run.glob("order/**/benchmark.json"):
        file.write_text(file.read_text().replace("sort", "order"))
    for path in (run, run.parent, run / "sort"):
        (found,) = sides.runs_of(path)
        assert "sort/unstable/100" in found.names
        assert len(found.names) == (2 if path.name == "sort" else 4)
    for number in range(4):
        shutil.copytree(run, tmp_path / "side" / str(number))
    assert [len(found.names) for found in sides.runs_of(tmp_path / "side")] == [4, 4, 4, 4]


def test_a_link_to_a_file_is_no_further_run(tmp_path):
    for number in range(3):
        shutil.copy(FILES["hyperfine"], tmp_path / f"{number}.json")
    (tmp_path / "latest.json").symlink_to("2.json")
    with pytest.raises(UsageError, match="is a copy of"):
        sides.runs_of(tmp_path)


def test_what_takes_no_time_beside_its_shell_is_left_out_and_told(tmp_path):
    written = json.loads(FILES["hyperfine"].read_text())
    short = {"command": "true", "times": [0.0, 0.001], "exit_codes": [0, 0]}
    (file := tmp_path / "1.json").write_text(json.dumps({"results": [*written["results"], short]}))
    _, found = foreign.load(file)
    assert len(found.benchmarks) == len(written["results"])
    assert "true took less than the shell around it: run hyperfine with -N" in found.notes


def test_what_has_aggregates_alone_is_told_also_beside_others(tmp_path):
    written = json.loads(FILES["Google Benchmark"].read_text())
    entry = {"name": "BM_B_mean", "run_name": "BM_B", "run_type": "aggregate"}
    written["benchmarks"].append({**entry, "aggregate_name": "mean"})
    (file := tmp_path / "1.json").write_text(json.dumps(written))
    _, found = foreign.load(file)
    assert [note for note in found.notes if "alone" in note] == [
        "BM_B has aggregates alone, of ReportAggregatesOnly"
    ]


def test_runs_of_two_tools_or_of_a_result_have_no_ratio(tmp_path):
    with pytest.raises(UsageError, match="they have no ratio"):
        compare.compare(sides.runs_of(FILES["pyperf"]), sides.runs_of(FILES["JMH"]))
    result = sides.TareRun(records.make(tmp_path / "r", records.Recipe(requests=100)))
    with pytest.raises(UsageError, match="they have no ratio") as caught:
        compare.compare([result], sides.runs_of(FILES["hyperfine"]))
    assert "one tool and one statistic" in str(caught.value.remedy)
    for name in ("pyperf", "JMH"):
        (tmp_path / "both").mkdir(exist_ok=True)
        shutil.copy(FILES[name], tmp_path / "both" / f"{name}.json")
    with pytest.raises(UsageError, match="several tools"):
        sides.runs_of(tmp_path / "both")


def test_another_host_is_refused_unless_asked_for(tmp_path):
    other = json.loads(FILES["Google Benchmark"].read_text())
    other["context"]["host_name"] = "elsewhere"
    (tmp_path / "b.json").write_text(json.dumps(other))
    pair = sides.runs_of(FILES["Google Benchmark"]), sides.runs_of(tmp_path / "b.json")
    with pytest.raises(UsageError, match="host_name: vm and elsewhere"):
        compare.compare(*pair)
    assert compare.compare(*pair, across_machines=True).machines["host_name"]


BROKEN = [
    ("{", "is no JSON"),
    ("[" * 100_000, "is no JSON"),
    ("\xff", "is no JSON"),
    ("{}", "none of the tools"),
    ("[]", "none of the tools"),
    ("3", "none of the tools"),
    ('{"results": 3}', "results: "),
    ('{"results": []}', "holds no benchmark"),
    ('{"results": [{"command": "x", "times": []}]}', "results.0.times: "),
    ('{"results": [{"command": "x", "times": [0.0]}]}', "less than the shell around it"),
    ('{"results": [{"command": "x", "times": [-1.0]}]}', "results.0.times.0: "),
    ('{"version": "5", "benchmarks": [{}], "commit_info": {}}', "none of the tools"),
    ('{"results": [{"command": "x", "times": [NaN]}]}', "results.0.times.0: "),
    ('{"results": [{"command": "x"}]}', "results.0.times: field required"),
    ('{"results": [{"command": "x", "times": [1]}, {"command": "x", "times": [1]}]}', "two bench"),
    ('{"context": {}, "benchmarks": [{"name": "b", "run_type": "aggregate"}]}', "aggregates alone"),
    ('{"context": {}, "benchmarks": [{"name": "b", "real_time": 1}]}', "time_unit: "),
    ('{"version": "1.0", "benchmarks": []}', "benchmarks: "),
    ('[{"jmhVersion": "1"}]', "benchmark: "),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_what_is_broken_is_told_with_its_file_and_place(tmp_path, text, said):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=r"x\.json") as caught:
        foreign.load(path)
    assert said in caught.value.what
    assert caught.value.remedy


def mangled(draw: st.DrawFn, document: object) -> object:
    """A document with a piece of it replaced by whatever JSON can hold."""
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    )
    if isinstance(document, dict) and document and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(document)))
        return {**document, key: mangled(draw, document[key])}
    if isinstance(document, list) and document and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(document) - 1))
        return [*document[:at], mangled(draw, document[at]), *document[at + 1 :]]
    return draw(anything)


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_whatever_stands_in_a_file_is_read_or_refused_in_a_sentence(tmp_path_factory, name, data):
    document = data.draw(st.composite(mangled)(json.loads(FILES[name].read_text())))
    path = tmp_path_factory.getbasetemp() / "mangled.json"
    path.write_text(json.dumps(document))
    try:
        _, found = foreign.load(path)
    except UsageError as error:
        assert str(path) in error.what
        assert error.remedy
    else:
        assert found.benchmarks
        for benchmark in found.benchmarks.values():
            assert all(value > 0 for values in benchmark.restarts for value in values)


@given(times=st.lists(st.floats(), max_size=3), iters=st.lists(st.floats(), max_size=3))
def test_whatever_stands_in_a_sample_of_criterion_likewise(tmp_path_factory, times, iters):
    folder = tmp_path_factory.getbasetemp() / "criterion" / "b" / "new"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmark.json").write_text('{"full_id": "b"}')
    (folder / "sample.json").write_text(json.dumps({"times": times, "iters": iters}))
    try:
        _, found = foreign.load(folder.parents[1])
    except UsageError as error:
        assert error.remedy
    else:
        assert all(np.isfinite(found.benchmarks["b"].restarts[0]))


def test_the_command_line_compares_files_and_gates_on_them(tmp_path):
    old, new = HERE / "hyperfine" / "old", HERE / "hyperfine" / "new"
    assert tare("compare", str(old), str(new), "--fail-on", "slower").returncode == Exit.FAILED
    one = tare("compare", str(old / "1.json"), str(new / "1.json"), "--fail-on", "slower")
    assert one.returncode == Exit.INCONCLUSIVE
    for file in old.glob("*.json"):
        written = json.loads(file.read_text())
        for result in written["results"]:
            result["exit_codes"] = [127] * len(result["times"])
        (tmp_path / "failing").mkdir(exist_ok=True)
        (tmp_path / "failing" / file.name).write_text(json.dumps(written))
    failing = tare("compare", str(old), str(tmp_path / "failing"), "--fail-on", "slower")
    assert failing.returncode == Exit.TRIALS_FAILED, failing.stderr
    missing = tare("compare", str(old), str(tmp_path / "none.json"))
    assert missing.returncode == Exit.USAGE
    in_a_line(missing, "none.json is not a result, of Tare or of another tool")
    alone = tare("compare", str(old))
    assert alone.returncode == Exit.USAGE
    in_a_line(alone, "there is nothing to compare")
