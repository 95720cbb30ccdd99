"""`tare explain` and `tare predict` as a user calls them."""

import json
import re

import pytest

import records
from needs import tare
from tare import experiment, plan
from tare.record import Record
from test_predict import start


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    recipe = records.Recipe(blocks=8, requests=200)
    return str(records.make(tmp_path_factory.mktemp("r") / "r", recipe, QEMU).folder)


QEMU = """\
title: Two environments
factors: {environment: [native, qemu], transport: [udp, cyclonedds]}
baseline: {environment: native}
blocks: {min: 8, max: 8}
"""


def test_explain_says_what_makes_up_the_effect(result):
    said = tare("explain", result, "qemu/cyclonedds")
    assert said.returncode == 0, said.stderr
    assert "vcpu on CPU" in said.stdout
    assert "level: environment" in said.stdout


def test_explain_gives_machines_the_same(result):
    said = json.loads(tare("explain", result, "qemu/udp", "native/udp", "--json").stdout)
    assert said["threads"]["parts"][0]["name"] == "vcpu on CPU"
    assert said["explained"] is True


def test_a_cell_is_explained_whatever_its_name_holds(tmp_path):
    text = """\
title: Which pattern?
workload: command
factors: {command: {grep: "grep {pattern}"}, pattern: ["[/b]", "[red]"]}
baseline: {pattern: "[/b]"}
blocks: {min: 8, max: 8}
"""
    made = plan.make(experiment.parse(text, "x"), 1)
    folder = Record.create(tmp_path / "r", text, made, records.FINGERPRINT).folder
    said = tare("explain", folder, "[red]")
    assert said.returncode == 0, said.stderr
    assert re.search(r"^what +\[red\] +\[/b\]", said.stdout, re.MULTILINE)


def test_explain_names_the_cells_that_there_are(result):
    said = tare("explain", result, "qemu/tcp")
    assert said.returncode == 2
    assert "qemu/cyclonedds" in said.stderr


def test_predict_shows_each_response_with_its_interval(tmp_path):
    said = tare("predict", str(start(tmp_path / "r").folder), "--json")
    assert said.returncode == 0, said.stderr
    rows = json.loads(said.stdout)
    assert [row["environment"] for row in rows] == ["uml"]
    assert rows[0]["low_ns"] < rows[0]["predicted_ns"] < rows[0]["high_ns"]


def test_predict_says_why_it_cannot(tmp_path):
    said = tare("predict", str(start(tmp_path / "r", counted=False).folder))
    assert said.returncode == 1
    assert "were not counted" in said.stderr
    assert "causes: 2" in said.stderr


def test_predict_refuses_a_result_of_something_else(result):
    said = tare("predict", result, "--statistic", "p99")
    assert said.returncode == 2
    assert "p50 or mean" in said.stderr


def test_a_calibration_needs_what_was_measured(result):
    said = tare("predict", result, "--record")
    assert said.returncode == 2
    assert "--check" in said.stderr
