"""What is wrong with an experiment file is a sentence with its place, soon, in plain words."""

import itertools
import json
import os
import re
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tare import experiment, plan, suite
from tare.errors import UsageError

GOOD = """\
title: A question
factors:
  environment: [native, container]
  transport: [udp, tcp]
  payload: [64 B, 4 KiB]
baseline: {environment: native}
"""
FOREIGN = re.compile(
    r"<class|NoneType|Commented|ordereddict|Input should|Traceback|pydantic"
    r"|constrained|literal|function-|valid (string|dict|tuple)|object at 0x|recursion"
    r"|\b(int|dict|str|tuple)\b"
)
PLACE = re.compile(r"x\.yaml:\d+: \S")


def refused(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        experiment.parse(text, "x.yaml")
    assert caught.value.remedy
    return caught.value.what.splitlines()


def in_plain_words(error: UsageError) -> None:
    assert error.remedy
    for line in error.what.splitlines():
        assert PLACE.match(line), line
        # What was found is quoted, and may be anything.
        assert not FOREIGN.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)), line


@pytest.mark.parametrize(
    ("written", "found"), [("2", "2"), ("0x2", "2"), ("+2", "2"), ("true", None), ("2.5", None)]
)
def test_a_whole_number_is_one_in_every_notation_of_yaml_and_a_truth_is_none(written, found):
    text = f"""\
title: t
factors: {{environment: [qemu], transport: [udp], vcpus: [{written}, 4]}}
baseline: {{vcpus: 4}}
"""
    if found is None:
        assert "is not a whole number" in refused(text)[0]
    else:
        assert experiment.parse(text, "x.yaml").factors["vcpus"] == (found, "4")


@pytest.mark.parametrize("field", ["family", "exclude", "a_a"])
def test_a_rule_with_a_level_that_no_cell_has_is_refused_with_the_nearest(field):
    rule = "{environment: [native, container], payload: 46 B}"
    text = f"{field}: {rule}" if field == "family" else f"{field}: [{rule}]"
    (line,) = refused(GOOD + text)
    assert "'46 B' is not among the levels: 64 B, 4 KiB (did you mean '64 B'?)" in line
    assert line.startswith(f"x.yaml:7: {field}.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blocks: {sessions: some}",
         "x.yaml:7: blocks.sessions: has to be a whole number or 'auto', not 'some'"),
        ("hosts: at once", "x.yaml:7: hosts: has to be 'in-turn' or 'at-once', not 'at once'"),
        ("gate: {fails_on: slower}", "x.yaml:7: gate.fails_on: unknown field: remove it"),
    ],
)  # fmt: skip
def test_a_field_of_several_kinds_says_all_of_them_at_its_own_place(text, said):
    assert said in refused(GOOD + text)


def test_a_family_of_which_nothing_is_compared_is_refused():
    asked = experiment.parse(GOOD + "family: {environment: native}", "x.yaml")
    with pytest.raises(UsageError, match="no comparison is of a cell with environment: native"):
        plan.make(asked)
    none = experiment.parse(GOOD + "family: none\nblocks: {min: 2, max: 2}", "x.yaml")
    assert plan.make(none).family == ()


@pytest.mark.parametrize("field", ["baseline", "floor"])
def test_what_the_exclusions_leave_without_anything_to_compare_with_is_refused(field):
    text = GOOD.replace("baseline: {environment: native}\n", "")
    levels = {"baseline": "{environment: native}", "floor": "{transport: udp}"}
    text += "".join(f"{name}: {where}\n" for name, where in levels.items())
    asked = experiment.parse(f"{text}exclude: [{levels[field]}]", "x.yaml")
    with pytest.raises(UsageError, match=f"{field}: no cell is left with"):
        plan.make(asked)


@pytest.mark.parametrize(
    ("transport", "payload", "said"),
    [
        ("udp", "0 B", "'0 B' is out of range"),
        ("udp", "10 GiB", "'10 GiB' is out of range"),
        ("udp", "65484 B", "'65484 B' is more than UDP carries in one packet: give at most 65483"),
        ("icmp", "1 MiB", "'1 MiB' is more than ICMP echo carries"),
        ("tcp", "67108865 B", "out of range: give 1 B to 64 MiB"),
    ],
)
def test_a_payload_that_nothing_carries_is_refused(transport, payload, said):
    text = GOOD.replace("[udp, tcp]", f"[{transport}]").replace("4 KiB", payload)
    (line,) = refused(text)
    assert line.startswith("x.yaml:5: factors.payload.1: ")
    assert said in line


def test_a_payload_that_one_transport_cannot_carry_may_be_excluded_there():
    text = GOOD.replace("4 KiB", "1 MiB")
    assert "exclude it with transport udp" in refused(text)[0]
    experiment.parse(text + "exclude: [{transport: udp, payload: 1 MiB}]", "x.yaml")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("session: {requests: 100000000000000000000}", "from 1 to 2147483648"),
        ("session: {timeout: 0 s}", "'0 s' is out of range"),
        ("session: {timeout: 1e30 h}", "'1e+30 h' is out of range|'1e30 h' is out of range"),
        ("deadlines: [1000 h]", "is more than a week"),
    ],
)
def test_what_would_never_end_is_refused(more, said):
    (line,) = refused(GOOD + more)
    assert re.search(said, line), line


@pytest.mark.parametrize(
    ("factor", "level", "said"),
    [
        ("clients", "1000000", "from 1 to 1024"),
        ("link", "1e300 bit/s", "faster than any wire"),
        ("vcpus", "1000", "1 to 255"),
        ("mode", "open 1e7/s", "more often than"),
    ],
)
def test_a_level_beyond_all_measure_is_refused(factor, level, said):
    (line,) = refused(GOOD.replace("  payload", f"  {factor}: [{level}]\n  payload"))
    assert line.startswith(f"x.yaml:5: factors.{factor}.0: ")
    assert said in line


def test_work_that_a_transport_would_leave_out_is_refused_unless_some_cell_does_none():
    text = GOOD.replace("[udp, tcp]", "[udp, icmp]").replace("[64 B, 4 KiB]", "[64 B]")
    work = text.replace("  payload", "  server_work: [100 us, 1 ms]\n  payload")
    found = refused(work)
    assert (
        "x.yaml:5: factors.server_work.0: '100 us' would be left out with transport icmp"
        in (found[0])
    )
    assert len(found) == 2
    experiment.parse(work.replace("[100 us,", "[0 us,"), "x.yaml")
    experiment.parse(work + "exclude: [{transport: icmp}]", "x.yaml")


def test_a_grid_of_which_no_rank_has_a_piece_is_refused():
    text = (
        "title: t\nworkload: mpi-io\nfactors: {program: grid, cache: [plain, nvio], size: 1 MiB,"
        "\n  piece: [4 KiB, 1 MiB]}\nbaseline: {cache: plain}\n"
    )
    (line,) = refused(text)
    assert line.startswith("x.yaml:4: factors.piece.1: '1 MiB' is more than one of 4 ranks has")


def test_a_tiny_guest_that_is_to_work_is_refused():
    text = (
        "title: t\nworkload: migration\nfactors: {testbed: tiny, guest: [idle, web],"
        " arm: [plain, pageshare]}\nbaseline: {arm: plain}\n"
    )
    assert refused(text)[0].startswith("x.yaml:3: factors.guest.1: 'web' is more than a kernel")


def test_a_factor_that_means_nothing_for_any_cell_is_refused():
    (line,) = refused(GOOD.replace("  payload", "  reception: [waitset]\n  payload"))
    assert line == "x.yaml:5: factors.reception: means nothing for any of the cells: remove it"


def test_a_product_of_levels_beyond_all_measure_is_refused_before_it_is_made():
    many = ", ".join(f"{n} us" for n in range(1, 300))
    sizes = ", ".join(f"{n} B" for n in range(1, 300))
    text = GOOD.replace("[64 B, 4 KiB]", f"[{sizes}]\n  server_work: [{many}]")
    (line,) = refused(text)
    assert "x.yaml:2: factors: make 357604 combinations, and the most are 10000" in line


def test_aliases_that_stand_for_more_than_anybody_writes_are_refused():
    grown = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
    text = f"x0: &x0 [native]\n{grown}\n{GOOD}family: {{environment: *x11}}\n"
    (line,) = refused(text)
    assert re.fullmatch(r"x\.yaml:\d: stands for more than 20000 values", line)
    (line,) = refused(GOOD + "family: &a {environment: *a}")
    assert line == "x.yaml:7: *a stands for what it is in"
    found = experiment.parse(
        GOOD.replace("[64 B, 4 KiB]", "&p [64 B]") + "family: {payload: *p}", "x.yaml"
    )
    assert found.family == {"payload": ("64 B",)}


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path):
    pipe = tmp_path / "x.yaml"
    os.mkfifo(pipe)
    found: list[UsageError] = []

    def read() -> None:
        suite.load(pipe)
        with pytest.raises(UsageError) as caught:
            experiment.load(pipe)
        found.append(caught.value)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(60)
    assert found, "it waits for the pipe"
    assert found[0].what == f"{pipe} is not an ordinary file"


def test_a_file_that_is_not_utf_8_is_refused_with_its_line(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes("title: one\n# gr\u00fcn\n".encode("latin-1"))
    with pytest.raises(UsageError) as caught:
        experiment.load(path)
    assert caught.value.what == f"{path}:2: not UTF-8: byte 0xfc"
    assert caught.value.remedy == "save the file in UTF-8"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (GOOD + "family: " + "[" * 5000, 7),
        (GOOD + "session: {requests: " + "9" * 5000 + "}", 7),
        (GOOD + "seed: 2001-99-99", 7),
        (GOOD + "session: !!set {requests}", 7),
        ("title: one\n\nfactors: \x01\n", 3),
        (GOOD + "margin: &x 3 %\nseed: &x 5", 8),
    ],
)
def test_what_is_no_experiment_has_a_line_too(text, where):
    (line,) = refused(text)
    assert line.startswith(f"x.yaml:{where}: "), line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title: 5", "title: has to be text, not 5"),
        ("title: ''", "title: has to be text of 1 characters or more, not ''"),
        ("exclude: {}", "exclude: has to be a list of mappings"),
        ("family: native", "family: has to be a mapping, not 'native'"),
        ("baseline: [native]", "baseline: has to be a mapping, not a list"),
        ("blocks: 5", "blocks: has to be a mapping, not 5"),
        ("blocks: {min: few}", "blocks.min: has to be a whole number, not 'few'"),
        ("causes: 101", "causes: has to be 100 or less, not 101"),
        ("margin: [3 %]", "margin: has to be one quantity, not a list"),
        ("workload: network\nstatistic: {}", "statistic: a mapping: choose guest"),
        ("workload: netwrok", "workload: 'netwrok' is no workload (did you mean 'network'?)"),
        ("factors: {transport: null}", "factors.transport: has no level"),
        ("factors: {transport: [null]}", "transport.0: has to be one level, not nothing; put it"),
        ("factors: {transport: [[udp]]}", "transport.0: has to be one level, not a list"),
        ("seed: -1", "seed: has to be 0 or more, not -1"),
        ("? [a]\n: b", "a list: unknown field"),
        ("? {a: [b]}\n: c", "not valid YAML: a key that is a list or a mapping"),
    ],
)
def test_what_was_found_is_told_as_it_is_written_and_not_as_python_has_it(text, said):
    key = text.partition(":")[0]
    kept = [line for line in GOOD.splitlines() if not line.startswith(f"{key}:")]
    if key == "factors":
        kept = [line for line in kept if not line.startswith("  ")]
    found = refused("\n".join([*kept, text]))
    assert any(said in line for line in found), found


WORDS = (
    ["native", "container", "udp", "icmp", "none", "request-reply", "disk", "p50", "same-core"],
    ["64 B", "0 B", "10 GiB", "3 %", "100 us", "open 5/s", "client=99", "9" * 5000],
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from([*itertools.chain(*WORDS)]),
)
INNER = (
    ["min", "max", "until", "requests", "timeout", "environment", "transport", "payload"],
    ["server_work", "clients", "mode", "<<", "1", "null"],
)
KEYS = st.sampled_from([*experiment.Experiment.model_fields, *itertools.chain(*INNER)])
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
CORRECT = {
    "title": "A question",
    "factors": {"environment": ["native", "container"], "transport": ["udp", "tcp"]},
    "baseline": {"environment": "native"},
}


@given(st.dictionaries(st.sampled_from([*experiment.Experiment.model_fields]), TREES, max_size=4))
@example({"exclude": [None]})
@example({"factors": {"payload": {"environment": []}}})
@example({"deadlines": [None, [], {}], "margin": {}})
def test_whatever_takes_a_fields_place_is_taken_or_refused_in_plain_words(changed):
    text = json.dumps({**CORRECT, **changed}, indent=1)
    try:
        asked = experiment.parse(text, "x.yaml")
    except UsageError as error:
        in_plain_words(error)
        return
    try:
        plan.make(asked)
    except UsageError as error:
        assert error.remedy


@given(st.data())
def test_whatever_is_written_over_a_piece_of_the_text_is_refused_in_plain_words(data):
    start = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(start, min(len(GOOD), start + 12)))
    pieces = ["&a ", "*a", "!x ", "{", "[", "- ", "? ", "<<: ", "\t", "\n", "2001-99-99", "|", "'"]
    piece = data.draw(st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=5))
    try:
        experiment.parse(GOOD[:start] + "".join(piece) + GOOD[end:], "x.yaml")
    except UsageError as error:
        in_plain_words(error)
