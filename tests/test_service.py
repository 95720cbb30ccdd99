"""What an experiment file asks of a service, and what is read of its processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tare import experiment, plan
from tare.errors import TrialError, UsageError
from tare.schema import json_schema
from tare.workloads.service.serving import consumed_in
from tare.workloads.service.workload import Service

FILE: dict[str, Any] = {
    "title": "t",
    "workload": "service",
    "server": {"new": ["./new", "--port", "{port}"], "old": "./old {port} {threads}"},
    "client": ["ask", "{address}", "a b"],
    "ready": {"output": "^ready$"},
    "setup": ["make-data", "{size}"],
    "read": {"rps": {"regex": "(.*)/s", "unit": "1/s"}},
    "factors": {"threads": [1, 2], "size": "10"},
    "baseline": {"server": "old"},
}


def parsed(**changed: Any) -> experiment.Experiment:

    return experiment.parse(json.dumps({**FILE, **changed}), "x.yaml")


def test_lines_are_levels_and_what_stands_at_the_top_is_of_the_session() -> None:
    asked = parsed()
    assert asked.server == {"new": "./new --port '{port}'", "old": "./old {port} {threads}"}
    assert asked.client == {"ask": "ask '{address}' 'a b'"}
    assert asked.factors["server"] == ("new", "old")
    assert asked.session["ready"] == "output ^ready$"
    assert asked.session["setup"] == "make-data '{size}'"
    assert asked.statistic == "rps"  # not how long the client was told to run
    laid_out = plan.make(asked, 1)
    assert {cell.levels["threads"] for cell in laid_out.cells} == {"1", "2"}
    again = experiment.Experiment.model_validate_json(asked.model_dump_json(by_alias=True))
    assert plan.make(again, 1).cells == laid_out.cells


def test_a_shell_splits_its_lines_itself() -> None:
    lines = {"new": "# don't stop\n./new", "old": "cat <<'E'\nit's\nE"}
    asked = parsed(server=lines, session={"shell": "sh"}, factors={"size": "10"})
    assert asked.server == lines
    with pytest.raises(UsageError, match=r"without a `shell`"):
        parsed(server=lines)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"server": None, "factors": {}, "setup": ""}, "server: is required"),
        ({"client": {"a": ""}}, "client.a: has to be a command line"),
        ({"ready": "soon"}, "'soon' tells of no server that it is ready"),
        ({"ready": {"output": "("}}, "'(' is no regular expression"),
        ({"ready": "http index"}, "'index' is no path of HTTP"),
        ({"session": {"setup": "x"}}, "setup: stands in `session`, too"),
        ({"factors": {"port": [1, 2]}}, "factors.port: is put in by Tare"),
        ({"read": {"server_cpu": {"regex": "a"}}}, "read.server_cpu: is measured"),
        ({"commands": {"a": "b"}}, "commands: means nothing for service"),
    ],
)
def test_what_is_wrong_is_told(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        parsed(**changed)
    assert said in error.value.what


@pytest.mark.parametrize(
    ("changed", "accepted"),
    [
        ({}, True),
        ({"server": "redis-server", "ready": "tcp"}, True),
        ({"server": {"a": {"b": "c"}}}, False),
        ({"workload": "cpu"}, False),
    ],
)
def test_editors_know_services(changed: dict[str, Any], accepted: bool) -> None:
    found = jsonschema.Draft202012Validator(json_schema())
    assert found.is_valid({**FILE, **changed}) is accepted


def test_processor_time_is_that_of_all_descendants_also_of_those_that_ended() -> None:
    stats = "\n".join(
        f"{pid} ({name}) S {parent} 0 0 0 0 0 0 0 0 0 {times} 20 0 1 0"
        for pid, name, parent, times in (
            (10, "master", 1, "1 2 30 4"),
            (11, "wor) S 1 ker", 10, "5 0 0 0"),
            (12, "of it", 11, "0 6 0 0"),
            (13, "another's", 1, "100 0 0 0"),
        )
    )
    assert consumed_in(stats, 10) == 48 * 10_000_000
    with pytest.raises(TrialError, match="process 99 ended"):
        consumed_in(stats, 99)


def test_what_is_copied_are_the_servers_of_every_level(tmp_path: Path) -> None:
    for name in ("new", "old-1", "old-2"):
        (tmp_path / name).touch(mode=0o755)
    server = {"new": "./new", "old": "./old-{threads} {size}"}
    laid_out = plan.make(parsed(server=server, session={"cwd": str(tmp_path)}), 1)
    assert isinstance(laid_out.workload, Service)
    found = laid_out.workload.programs_of("server", laid_out.session)
    assert found == [f"{tmp_path}/{name}" for name in ("new", "old-1", "old-2")]
