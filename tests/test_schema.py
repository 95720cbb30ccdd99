"""Editors accept what Tare accepts: every file that ships, and what only its workload knows."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from tare.schema import json_schema

FOLDER = Path(__file__).parents[1] / "experiments"
FILES = sorted(FOLDER.rglob("*.yaml"))
SCHEMA = jsonschema.Draft202012Validator(json.loads(json.dumps(json_schema())))


def accepts(text):
    document = YAML(typ="safe", pure=True).load(text)
    return SCHEMA.is_valid(json.loads(json.dumps(document)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_ships_is_accepted(path):
    assert accepts(path.read_text())


@pytest.mark.parametrize(
    "text",
    [
        "{title: t, workload: network, factors: {mode: closed}, baseline: {mode: alone}}",
        "{title: t, factors: {to: remote}, baseline: {environment: native}}",
        "{title: t, factors: {environment: native}, baseline: {}, statistic: guest}",
        "{title: t, factors: {environment: native}, baseline: {}, exclude: [{to: remote}]}",
        "{title: t, parts: []}",
        "{title: t, parts: [a.yaml], factors: {environment: native}}",
    ],
)
def test_what_a_workload_does_not_know_is_underlined(text):
    assert not accepts(text)
