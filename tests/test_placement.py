"""Placements: which processors each party gets, and one text for each."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import UsageError
from tare.placement import PINNINGS, Placement

HERE = {3, 5, 8}


@pytest.fixture(autouse=True)
def _three_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: HERE)


def test_host_and_guest_are_the_clients_side_and_the_environment_whole() -> None:
    found = Placement.parse("guest=second host=first")
    assert found.client == (3,)
    assert found.server == found.vmm == found.vcpus == (5,)
    assert str(found) == "host=first guest=second"


def test_all_is_every_processor_of_this_machine_whatever_their_number() -> None:
    found = Placement.parse("host=all guest=3")
    assert found.client == (3, 5, 8)
    assert found.vcpus == (3,)


@pytest.mark.parametrize("text", PINNINGS)
def test_a_pinning_of_paper_b_reads_back_as_it_is_written(text: str) -> None:
    assert str(Placement.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("guest=first vcpus=second", "cannot read"),
        ("host=third", "cannot read"),
        ("nobody=first", "cannot read"),
        ("host=4", "names processor 4; this machine offers 3, 5, 8"),
        ("", "empty"),
    ],
)
def test_what_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Placement.parse(text)


def test_a_second_processor_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2})
    with pytest.raises(UsageError, match="needs two processors"):
        Placement.parse("host=first guest=second")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_and_reads_back(text: str) -> None:
    try:
        found = Placement.parse(text)
    except UsageError:
        return
    assert str(Placement.parse(str(found))) == str(found)
