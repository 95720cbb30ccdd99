"""Placements: which processors each party gets, and one text for each."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import UnavailableError, UsageError
from tare.machine import Fingerprint
from tare.placement import PINNINGS, Placement, in_list, parse
from tare.workloads.migration.rows import processors
from tare.workloads.request_reply import WORKLOAD

HERE = {3, 5, 8}


@pytest.fixture(autouse=True)
def _three_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: HERE)


def test_host_and_guest_are_the_clients_side_and_the_environment_whole() -> None:
    assert parse("guest=second host=first") == "host=first guest=second"
    found = Placement.here("host=first guest=second")
    assert found.client == (3,)
    assert found.server == found.vmm == found.vcpus == (5,)


def test_all_is_every_processor_of_this_machine_whatever_their_number() -> None:
    found = Placement.here("host=all guest=3")
    assert found.client == (3, 5, 8)
    assert found.vcpus == (3,)


def test_one_core_is_the_last_and_two_are_the_last_two() -> None:
    assert Placement.here("same-core") == Placement((8,), (8,), (8,), (8,))
    assert Placement.here("across-cores") == Placement((5,), (8,), (8,), (8,))
    assert Placement.here("anywhere") == Placement()


@pytest.mark.parametrize(
    ("siblings", "client"),
    [("5,8", 3), ("8", 5), ("4-8", 3), ("3,5,8", 5)],  # the last: a machine of one core
)
def test_across_cores_are_no_two_threads_of_one_core_where_there_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, siblings: str, client: int
) -> None:
    (tmp_path / "cpu8" / "topology").mkdir(parents=True)
    (tmp_path / "cpu8" / "topology" / "thread_siblings_list").write_text(f"{siblings}\n")
    monkeypatch.setattr("tare.placement._SYSTEM", tmp_path)
    assert Placement.here("across-cores") == Placement((client,), (8,), (8,), (8,))


def test_a_migrations_hosts_are_no_two_threads_of_one_core_where_there_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpu3" / "topology").mkdir(parents=True)
    (tmp_path / "cpu3" / "topology" / "thread_siblings_list").write_text("3,8\n")
    monkeypatch.setattr("tare.placement._SYSTEM", tmp_path)
    assert processors("one a host") == ((3,), (5,))


@pytest.mark.parametrize(
    ("cpu", "levels", "said"),
    [
        ({"online": "0-1", "smt": "1"}, {"placement": "across-cores"}, True),
        ({"online": "0-1", "smt": "1"}, {"placement": "same-core"}, False),
        ({"online": "0-1", "smt": "0"}, {"placement": "across-cores"}, False),
        ({"online": "0-3", "smt": "1"}, {"placement": "across-cores"}, False),
        ({"online": "0-1"}, {"placement": "across-cores"}, False),
        (
            {"online": "0-1", "smt": "1"},
            {"placement": "across-cores", "environment": "ssh me@board"},
            False,
        ),
    ],
)
def test_a_report_says_where_two_cores_were_threads_of_one(
    cpu: dict[str, str], levels: dict[str, str], said: bool
) -> None:
    found: Any = SimpleNamespace(
        cells=[SimpleNamespace(cell=SimpleNamespace(levels=levels))],
        fingerprint=Fingerprint.model_validate({"cpu": cpu}),
    )
    assert ("two threads of one core" in " ".join(WORKLOAD.remarks(found))) == said


@pytest.mark.parametrize("text", PINNINGS)
def test_a_pinning_of_paper_b_reads_back_as_it_is_written(text: str) -> None:
    assert parse(text) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("guest=first vcpus=second", "cannot read"),
        ("host=third", "cannot read"),
        ("nobody=first", "cannot read"),
        ("", "empty"),
    ],
)
def test_what_is_no_placement_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("text", "here", "said"),
    [
        ("host=4", HERE, "names processor 4; this machine offers 3, 5, 8"),
        ("host=first guest=second", {2}, "needs two processors; this machine offers one"),
        ("across-cores", {2}, "needs two processors; this machine offers one"),
    ],
)
def test_what_this_machine_does_not_offer_can_be_read_and_not_be_had(
    monkeypatch: pytest.MonkeyPatch, text: str, here: set[int], said: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: here)
    assert parse(text) == text
    with pytest.raises(UnavailableError, match=said):
        Placement.here(text)


def test_what_is_on_another_machine_has_that_ones_processors_and_the_client_ours() -> None:
    board = in_list("0-1,12")
    for text, client, server in (
        ("same-core", (8,), (12,)),
        ("across-cores", (5,), (12,)),
        ("host=first guest=second", (3,), (1,)),
        ("client=5 server=0,12", (5,), (0, 12)),
        ("anywhere", (), ()),
    ):
        found = Placement.here(text, ("client",)).there(board, "the board")
        assert (found.client, found.server) == (client, server), text
    with pytest.raises(UnavailableError, match="names processor 8; the board offers 0, 1, 12"):
        Placement.here("server=8").there(board, "the board")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_and_reads_back(text: str) -> None:
    try:
        found = parse(text)
    except UsageError:
        return
    assert parse(found) == found
