"""Predictions on grounds whose truth is known, and the refusals where there is no ground."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from claims import prediction
from limits import no_file_grows
from tare import predict
from tare.cli import predict as predicting
from tare.errors import TareError, UsageError
from tare.predict import calibration as calibrations
from tare.predict.calibration import Calibration, Known
from tare.predict.ground import Target
from tare.predict.model import KINDS, Ground, fit, log_additive, terms
from tare.record import CauseSession
from tare.stats.bounds import Kept
from tare.stats.forecast import Score

HERE = {"clock": 20.0, "wake-ups": 1200.0, "calls": 100.0, "code": 12.0, "client": 12.0}
COUNTS = {"clock": 5.0, "wake-ups": 1.0, "calls": 3.0}


def ground(factor=1.0, **changed):
    """A response on the host, and an environment that multiplies its costs."""
    there = {kind: cost * factor for kind, cost in HERE.items()}
    plain = Ground(
        floor_here_ns=7_000.0,
        here_ns=17_000.0,
        floor_there_ns=7_000.0 * factor,
        client_share=0.5,
        counts=COUNTS,
        costs_here_ns=HERE,
        costs_there_ns=there,
    )
    return replace(plain, **changed)


def target(environment, placement="same-core", factor=10.0, **changed):
    levels = {"transport": "cyclonedds", "payload": "64 B", "placement": placement}
    found = ground(factor, **changed)
    return Target(environment, levels, {"p50": found, "mean": found})


def known(environment, placement, factor, weights=(1.0,) * 5, **changed):
    asked = target(environment, placement, factor, **changed)
    truth = terms(asked.ground["p50"]).total(weights)
    return Known(asked, {"p50": truth, "mean": truth})


def test_on_the_host_itself_the_model_gives_what_was_measured():
    assert terms(ground(1.0)).total((1.0,) * 5) == pytest.approx(17_000.0)


def test_a_dearer_operation_adds_its_cost_as_often_as_it_happens():
    costs = {**HERE, "clock": 7_000.0}
    dearer = terms(ground(1.0, costs_there_ns=costs)).total((1.0,) * 5)
    assert dearer - 17_000.0 == pytest.approx(5 * (7_000.0 - 20.0))


def test_a_call_that_belongs_to_a_wake_up_is_not_counted_twice():
    one, more = ({**COUNTS, "wake-ups": 1.0, "calls": c} for c in (0.0, 2.0))
    assert terms(ground(counts=one)) == terms(ground(counts=more))


def test_a_negative_count_is_none():
    less = {"clock": -1.0, "wake-ups": -2.0, "calls": -3.0}
    assert terms(ground(counts=less)).weighted[:3] == (0.0, 0.0, 0.0)


positive = st.floats(1.0, 1e7)


@given(*[positive] * 3, st.floats(0.0, 1.0), st.lists(positive, min_size=10, max_size=10))
def test_a_prediction_is_finite_and_no_less_than_the_floor(here, floor, there, share, costs):
    one, other = (dict(zip(KINDS, part, strict=True)) for part in (costs[:5], costs[5:]))
    priced = terms(Ground(floor, here, there, share, COUNTS, one, other))
    assert math.isfinite(priced.total((1.0,) * 5))
    assert priced.total((1.0,) * 5) >= there


def test_the_fit_finds_the_weights_that_made_the_data():
    weights = (2.0, 0.8, 1.0, 3.0, 1.2)
    rows = [
        terms(ground(factor, counts={"clock": c, "wake-ups": w, "calls": 4 * w}, here_ns=here))
        for factor in (2.0, 20.0, 80.0)
        for c in (0.0, 5.0, 12.0)
        for w in (0.0, 1.0, 3.0)
        for here in (17_000.0, 40_000.0)
    ]
    found = fit(rows, [row.total(weights) for row in rows])
    truth = [row.total(weights) for row in rows]
    missed = [abs(math.log(r.total(found) / t)) for r, t in zip(rows, truth, strict=True)]
    assert max(missed) < 0.10


def test_without_data_every_weight_is_one():
    assert fit([], []) == (1.0,) * 5


def test_the_simple_model_multiplies_environment_and_transport():
    assert log_additive(ground(10.0)) == pytest.approx(170_000.0)


CALIBRATION = Calibration(
    tuple(
        known(environment, placement, factor)
        for environment, factor in (("gvisor", 30.0), ("uml", 8.0), ("qemu", 15.0))
        for placement in ("same-core", "across-cores")
    )
)


def test_a_prediction_lies_in_its_interval_and_its_parts_make_it_up():
    found = CALIBRATION.predict(target("new", factor=12.0), "p50")
    assert isinstance(found, predict.Prediction)
    assert found.low_ns <= found.value_ns <= found.high_ns
    assert sum(found.parts_ns.values()) == pytest.approx(found.value_ns)


def test_an_environment_that_was_left_out_is_forgotten():
    left = CALIBRATION.without("qemu")
    assert {k.target.environment for k in left.known} == {"gvisor", "uml"}


def test_an_environment_unlike_all_that_is_known_is_refused():
    costs = {kind: cost * 12.0 for kind, cost in HERE.items()} | {"clock": 1e6}
    found = CALIBRATION.predict(target("new", factor=12.0, costs_there_ns=costs), "p50")
    assert isinstance(found, predict.Refusal)
    assert "clock" in found.why


def test_an_environment_that_costs_nothing_is_told_to_be_the_host():
    found = CALIBRATION.predict(target("container", factor=1.05), "p50")
    assert isinstance(found, predict.Refusal)
    assert "on the host" in found.why


def test_a_calibration_on_too_little_is_refused():
    little = CALIBRATION.without("uml").without("qemu")
    found = little.predict(target("new"), "p50")
    assert isinstance(found, predict.Refusal)
    assert "1 environment" in found.why


def test_a_calibration_survives_being_written_down():
    assert Calibration.from_json(CALIBRATION.to_json(), "x") == CALIBRATION


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_what_is_no_calibration_is_refused_with_its_name(text):
    with pytest.raises(UsageError, match=r"some\.json"):
        Calibration.from_json(text, "some.json")


EXPERIMENT = """\
title: What does a prediction start from?
workload: request-reply
factors:
  environment: [native, uml]
  transport: [udp, cyclonedds]
exclude:
  - {environment: uml, transport: cyclonedds}
baseline: {environment: native}
family: none
a_a: [{environment: native, transport: udp}]
blocks: {min: 2, max: 2}
"""
COSTS = {
    "inside clock reading": 20.0,
    "inside wake by futex": 1200.0,
    "inside system call": 100.0,
    "inside function in a request": 12.0,
    "function in a request": 12.0,
    "inside cold function": 6.0,
    "cold function": 6.0,
}


def truth_us(cell):
    return 10.0 if cell.levels["environment"] == "native" else 100.0


def start(folder, *, environments=("native", "uml"), counted=True, text=EXPERIMENT, there=None):
    """A record as experiments/predict.yaml gives it, with an environment ten times as dear."""
    record = records.make(folder, records.Recipe(blocks=2, requests=200, truth_us=truth_us), text)
    with record.writing() as writer:
        for cell in record.plan.cells:
            environment = cell.levels["environment"]
            if cell.replica > 1 or environment not in environments:
                continue
            factor = 1.0 if environment == "native" else 10.0
            costs = {k: v * factor for k, v in COSTS.items()}
            if environment != "native":
                costs |= there or {}
            counts = {"server calls": 2.0, "server switches": 1.0}
            if counted:
                counts["server clock readings"] = 5.0 if "cyclone" in cell.id else 0.0
            for repeat in range(2):
                writer.append(
                    CauseSession(
                        repeat=repeat,
                        cell=cell.id,
                        unit_costs_ns=COSTS,
                        unit_medians_ns=costs,
                        counts=counts,
                        mean_ns=1e4,
                    )
                )
    return record


def test_what_was_measured_on_the_host_alone_becomes_a_target(tmp_path):
    found, refused = predict.targets(start(tmp_path / "r"))
    assert [(t.environment, t.levels["transport"]) for t in found] == [("uml", "cyclonedds")]
    assert refused == []
    base = found[0].ground["p50"]
    assert base.counts["clock"] == 5.0
    assert base.costs_there_ns["clock"] == pytest.approx(200.0)
    assert base.here_ns == pytest.approx(1e4, rel=0.05)


def test_code_that_no_response_shows_costs_what_cold_code_does_there_over_here(tmp_path):
    hidden = {"function in a request": -20.0, "cold function": 9.0}
    found, refused = predict.targets(start(tmp_path / "r", there=hidden))
    assert refused == []
    costs = found[0].ground["p50"].costs_there_ns
    assert costs["client"] == pytest.approx(12.0 * 9.0 / 6.0)
    assert costs["code"] == pytest.approx(120.0)


def test_code_that_no_response_shows_and_nothing_measured_by_itself_is_a_refusal(tmp_path):
    record = start(tmp_path / "r", there={"function in a request": -20.0, "cold function": 0.0})
    assert "no whole overhead vector" in reasons(record)[0]


def reasons(record):
    return [refusal.why for refusal in predict.targets(record)[1]]


def test_an_environment_without_a_vector_is_refused(tmp_path):
    assert (
        "uml has no whole overhead vector"
        in reasons(start(tmp_path / "r", environments=["native"]))[0]
    )


def test_operations_that_were_not_counted_are_a_refusal(tmp_path):
    assert "were not counted" in reasons(start(tmp_path / "r", counted=False))[0]


def test_requests_that_wait_for_each_other_are_refused(tmp_path):
    text = EXPERIMENT.replace("factors:", "factors:\n  clients: [4]")
    assert "clients is 4" in reasons(start(tmp_path / "r", text=text))[0]


def test_without_udp_there_is_no_floor_to_stand_on(tmp_path):
    text = EXPERIMENT.replace("  - {environment: uml, transport: cyclonedds}", "  - {environment: uml, transport: udp}")  # fmt: skip # noqa: E501
    assert "UDP was not measured in uml" in reasons(start(tmp_path / "r", text=text))[0]


def test_a_result_of_the_host_alone_is_no_start(tmp_path):
    text = EXPERIMENT.replace("[native, uml]", "[native]").replace("{environment: native}", "{transport: udp}")  # fmt: skip # noqa: E501
    text = text.replace("exclude:\n  - {environment: uml, transport: cyclonedds}\n", "")
    with pytest.raises(UsageError, match="on the host and in an environment"):
        predict.targets(start(tmp_path / "r", text=text))


def test_a_check_against_other_responses_says_so(tmp_path):
    record = start(tmp_path / "r")
    predictions = [CALIBRATION.predict(t, "p50") for t in predict.targets(record)[0]]
    with pytest.raises(UsageError, match="measured none"):
        predict.check(predictions, record, record)


def test_a_check_scores_both_models(tmp_path):
    record = start(tmp_path / "r")
    text = EXPERIMENT.replace("exclude:\n  - {environment: uml, transport: cyclonedds}\n", "")
    recipe = records.Recipe(blocks=2, requests=200, truth_us=truth_us)
    truth = records.make(tmp_path / "truth", recipe, text)
    predicted = predict.predict(record, CALIBRATION)
    chosen = [p for p in predicted.predictions if p.statistic == "p50"]
    checked = predict.check(chosen, record, truth)
    ours, simple = predict.scores(checked)
    assert (ours.n, simple.n) == (1, 1)
    assert ours.covered is not None
    made = predict.calibrate(record, truth)
    assert len(made.known) == 1


def test_a_prediction_is_not_checked_on_another_machine_or_under_another_accelerator(tmp_path):
    record = start(tmp_path / "r")
    other = {**records.FINGERPRINT, "cpu": {"model": "Another processor"}}
    stranger = records.make(tmp_path / "other", records.Recipe(blocks=2, requests=200), fingerprint=other)  # fmt: skip # noqa: E501
    with pytest.raises(UsageError, match=r"different machines \(cpu.model, "):
        predict.check([], record, stranger)
    guests = [
        records.make(
            tmp_path / name,
            records.Recipe(blocks=2, requests=200, accelerator=lambda _b, _c, name=name: name),
        )
        for name in ("kvm", "tcg")
    ]
    with pytest.raises(UsageError, match="what guests ran under"):
        predict.calibrate(*guests)


def test_a_result_of_two_guests_does_not_tell_which_was_predicted(tmp_path):
    text = EXPERIMENT.replace("uml", "qemu").replace("factors:", "factors:\n  vcpus: [1, 2]")
    recipe = records.Recipe(blocks=2, requests=200)
    guests = records.make(tmp_path / "guests", recipe, text)
    with pytest.raises(UsageError, match=r"qemu in .* stands for guests that differ"):
        predict.check([], start(tmp_path / "r"), guests)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A calibration in the place of the one that ships."""
    path = tmp_path / "ships" / "calibration.json"
    path.parent.mkdir()
    path.write_text(CALIBRATION.to_json())
    monkeypatch.setattr(calibrations, "path", lambda: path)
    return path


def both(folder, *environments):
    """A start, and what was measured after all, in these environments beside the host."""
    text = EXPERIMENT.replace("[native, uml]", f"[native, {', '.join(environments)}]")
    text = text.replace("{environment: uml,", f"{{environment: [{', '.join(environments)}],")
    whole = text.replace(text[text.index("exclude:") : text.index("baseline:")], "")
    recipe = records.Recipe(blocks=2, requests=200, truth_us=truth_us)
    started = start(folder / "r", environments=("native", *environments), text=text)
    return started.folder, records.make(folder / "truth", recipe, whole).folder


def test_results_of_one_environment_do_not_replace_the_calibration_that_ships(tmp_path, kept):
    begun, truth = both(tmp_path, "uml")
    with pytest.raises(UsageError, match="a calibration of 1 environments") as caught:
        predicting.predict(begun, check=truth, record=True)
    assert "more environments" in caught.value.remedy
    assert kept.read_text() == CALIBRATION.to_json()
    assert list(kept.parent.iterdir()) == [kept]


def test_a_check_that_fails_does_not_replace_the_calibration_that_ships(tmp_path, kept):
    begun, _ = both(tmp_path / "three", "container", "gvisor", "uml")
    _, truth = both(tmp_path / "two", "container", "gvisor")
    with pytest.raises(UsageError, match="measured none"):
        predicting.predict(begun, environment="uml", check=truth, record=True)
    assert kept.read_text() == CALIBRATION.to_json()


def test_results_of_several_environments_become_the_calibration_that_ships(tmp_path, kept):
    begun, truth = both(tmp_path, "container", "gvisor", "uml")
    predicting.predict(begun, check=truth, record=True)
    assert set(predict.shipped().environments) == {"container", "gvisor", "uml"}
    assert list(kept.parent.iterdir()) == [kept]


def test_a_calibration_that_cannot_be_written_leaves_the_one_that_ships(kept):
    with no_file_grows(), pytest.raises(TareError, match="cannot keep the calibration"):
        calibrations.keep(CALIBRATION.without("qemu"))
    assert kept.read_text() == CALIBRATION.to_json()
    assert list(kept.parent.iterdir()) == [kept]


def test_the_calibration_that_ships_holds_where_each_environment_is_left_out():
    shipped = predict.shipped()
    assert len(shipped.environments) >= 3
    checked = []
    for one in shipped.known:
        if one.target.levels["transport"] not in ("cyclonedds", "fastdds"):
            continue
        rest = shipped.without(one.target.environment)
        found = rest.predict(one.target, "p50", however_unlike=True)
        assert isinstance(found, predict.Prediction)
        simple = log_additive(one.target.ground["p50"])
        checked.append(predict.Checked(found, one.measured_ns["p50"], simple))
    ours, simple = predict.scores(checked)
    # What claim B4 wants, of the data that ship: no clock is read here.
    assert ours.median_error <= 0.35
    assert ours.median_error < simple.median_error
    assert ours.within_two >= 0.90
    assert ours.covered is not None
    assert ours.covered >= 0.85


def test_the_claim_is_judged_on_every_dds_that_was_predicted(tmp_path):
    text = EXPERIMENT.replace("exclude:\n  - {environment: uml, transport: cyclonedds}\n", "")
    recipe = records.Recipe(blocks=2, requests=200, truth_us=lambda cell: 3 * truth_us(cell))
    truth = records.make(tmp_path / "truth", recipe, text)
    result = prediction.compared(start(tmp_path / "r"), truth)
    assert "of 1 DDS medians" in result.line
    assert result.data["model"]["n"] == 1
    # Predicted as ten times native, measured as thirty.
    assert result.counted is Kept.FAILS


@pytest.mark.parametrize(
    ("vectors", "failed", "good", "verdict"),
    [
        (("native", "uml", "gvisor"), (), True, Kept.HOLDS),
        (("native", "uml"), (), True, Kept.INCONCLUSIVE),
        (("native", "uml", "gvisor"), (0, 1), True, Kept.INCONCLUSIVE),
        (("native", "uml"), (0, 1), False, Kept.FAILS),
    ],
)
def test_the_claim_holds_only_where_all_was_predicted_and_measured(
    tmp_path, monkeypatch, vectors, failed, good, verdict
):
    text = EXPERIMENT.replace("uml", "[uml, gvisor]").replace(", [uml, gvisor]]", ", uml, gvisor]")
    whole = text.replace("exclude:\n  - {environment: [uml, gvisor], transport: cyclonedds}\n", "")
    failing = frozenset((block, "gvisor/cyclonedds") for block in failed)
    recipe = records.Recipe(blocks=2, requests=200, truth_us=truth_us, failing=failing)
    truth = records.make(tmp_path / "truth", recipe, whole)
    scores = Score(2, 0.1 if good else 0.9, 1.0, 1.0), Score(2, 0.5, 0.5, None)
    monkeypatch.setattr(predict, "scores", lambda _: scores)
    result = prediction.compared(start(tmp_path / "r", environments=vectors, text=text), truth)
    assert result.counted is verdict
    assert "intervals reach over a factor of" in result.line
    assert ("not predicted" in result.line) == (verdict is not Kept.HOLDS)
