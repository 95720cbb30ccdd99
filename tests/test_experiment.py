import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import experiment, plan, suite
from tare.errors import UsageError
from tare.placement import PINNINGS

HOME = Path(__file__).parents[1] / "experiments"
SUITES = [path for path in sorted(HOME.rglob("*.yaml")) if suite.load(path) is not None]
EXPERIMENTS = [path for path in sorted(HOME.rglob("*.yaml")) if path not in SUITES]

GOOD = """\
title: A question
factors:
  environment: [native, container]
  transport: [udp, icmp]
  server_work: [0 us, 100us]
baseline: {environment: native}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(UsageError) as caught:
        experiment.parse(text, "x.yaml")
    return caught.value.what.splitlines()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.relative_to(HOME).as_posix())
def test_every_experiment_that_ships_can_be_planned(path):
    asked = experiment.load(path)
    assert asked.title
    assert plan.make(asked).cells


@pytest.mark.parametrize("path", SUITES, ids=lambda p: p.name)
def test_every_part_of_a_suite_that_ships_can_be_planned_and_judges_something(path):
    for part in suite.load(path).files(path).values():
        asked = experiment.load(part)
        laid_out = plan.make(asked)
        assert laid_out.family, part


def test_paper_bs_pinnings_are_all_asked_for():
    found = experiment.load(HOME / "kvm-overhead/network.yaml").factors["placement"]
    assert found == PINNINGS


def test_levels_come_out_in_one_canonical_form():
    found = experiment.parse(GOOD, "x")
    assert found.factors["server_work"] == ("0 us", "100 us")
    assert found.session == {"requests": "2000", "warmup": "200", "timeout": "1 s"}


def test_an_unknown_level_is_named_with_its_line_and_the_allowed_ones():
    (line,) = problems(GOOD.replace("[udp, icmp]", "[udp, ucp]"))
    assert line.startswith("x.yaml:4: factors.transport.1: 'ucp' is not one of icmp, udp")


def test_a_unit_that_means_nothing_is_named_with_its_line_wherever_it_stands():
    for setting in ("blocks: {until: 3 apples}", "margin: 3 apples"):
        (line,) = problems(
            f"title: t\nfactors: {{environment: [native]}}\nbaseline: {{}}\n{setting}"
        )
        assert line.startswith("x.yaml:4: ")
        assert "'3 apples' has an unknown unit" in line


@pytest.mark.parametrize(
    ("setting", "key", "said"),
    [
        ("margin: 3", "margin", "'3' is 300 %"),
        ("margin: 0 %", "margin", "'0 %' is 0 %"),
        ("margin: 100 %", "margin", "'100 %' is 100 %"),
        ("blocks: {until: 3}", "blocks.until", "'3' is 300 %"),
        ("blocks: {until: 0 %}", "blocks.until", "'0 %' is 0 %"),
        ("deadlines: [10 ms, 0 ms]", "deadlines.1", "'0 ms' leaves no time at all"),
    ],
)
def test_a_quantity_that_nothing_could_be_judged_by_is_refused_before_the_run(setting, key, said):
    (line,) = problems(GOOD + setting + "\n")
    assert line.startswith(f"x.yaml:7: {key}: {said}")
    assert "such as" in line


def test_a_misspelt_factor_is_guessed():
    (line,) = problems(GOOD.replace("server_work", "server_wrk"))
    assert "x.yaml:5" in line
    assert "did you mean 'server_work'" in line


def test_a_misspelt_field_is_guessed():
    assert "did you mean 'deadlines'" in problems(GOOD + "deadline: [1 ms]\n")[0]


def test_every_problem_is_reported_at_once():
    found = problems(GOOD.replace("udp, icmp", "upd, icmp").replace("100us", "100 B"))
    assert [line.split(":")[1] for line in found] == ["4", "5"]


def test_a_baseline_that_no_cell_has_is_refused():
    (line,) = problems(GOOD.replace("{environment: native}", "{environment: qemu}"))
    assert "'qemu' is not among the levels: native, container" in line


def test_a_level_given_twice_is_refused():
    assert "names a level twice" in problems(GOOD.replace("100us", "0 ms"))[0]


def test_a_stopping_rule_that_cannot_stop_is_refused():
    found = problems(GOOD + "blocks: {min: 9, max: 8}\n")
    assert "max (8) is smaller than min (9)" in found[0]
    assert found[0].startswith("x.yaml:7")


@pytest.mark.parametrize(
    "text", ["", "- 1", "a: [", "title: 1\ntitle: 2", "&a [*a]", "\x00", "[" * 5000]
)
def test_what_is_no_experiment_is_refused_in_words(text):
    assert problems(text)[0].startswith("x.yaml:")


@given(st.text(max_size=200))
def test_no_text_does_worse_than_a_usage_error(text):
    with suppress(UsageError):
        experiment.parse(text, "x.yaml")


@given(
    st.dictionaries(
        st.sampled_from([*experiment.Experiment.model_fields, "x"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=8) | st.sampled_from(["native", "64 B"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["environment", "payload", "q"]), inner, max_size=3
                )
            ),
            max_leaves=6,
        ),
    )
)
def test_no_structure_does_worse_than_a_usage_error(structure):
    with suppress(UsageError):
        experiment.parse(json.dumps(structure), "x.yaml")


def test_an_absent_file_is_said_to_be_absent(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        experiment.load(tmp_path / "none.yaml")
