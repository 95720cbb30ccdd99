"""D11: what simulated sessions and the fuzzer have to say for the claim to hold."""

from __future__ import annotations

import pytest

import workshops
from claims import machines
from tare import process
from tare.stats.bounds import Kept

SHOP = workshops.bare()
SESSIONS = """
1000000 sessions, 676833 with a sender that lies, 10 bytes: {"whole": 3}
.1000000 sessions, 741666 with a receiver that lies, 20 bytes: {"whole": 4}
.
test result: ok. 2 passed; 0 failed
"""
FUZZED = """
pageshare-session: 1200 inputs, cov: 1041, 87 kept: ok
pageshare-conversation: 900 inputs, cov: 1190, 91 kept: ok
"""


def said(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setattr(process, "run", lambda *_, **__: process.Output(words, ""))


def test_sessions_of_both_kinds_that_end_as_they_should(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, SESSIONS)
    found = machines.sessions(SHOP)
    assert found.counted is Kept.HOLDS
    assert "1000000 sessions, in 741666 of which the receiver lies" in found.line


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("result: ok", "result: FAILED"),
        ("1000000 sessions, 676833", "6000 sessions, 4061"),
        ("receiver that lies", "receiver that sleeps"),
        ("676833 with", "0 with"),
    ],
)
def test_too_few_sessions_or_a_failed_one(
    monkeypatch: pytest.MonkeyPatch, right: str, wrong: str
) -> None:
    assert right in SESSIONS
    said(monkeypatch, SESSIONS.replace(right, wrong))
    assert machines.sessions(SHOP).counted is Kept.FAILS


def test_a_target_that_breaks_or_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, FUZZED)
    assert machines.fuzzed(SHOP).counted is Kept.HOLDS
    said(monkeypatch, FUZZED.replace("91 kept: ok", "91 kept: BROKEN by x"))
    assert machines.fuzzed(SHOP).counted is Kept.FAILS
    said(monkeypatch, FUZZED.replace(" 900 inputs", " 0 inputs"))
    assert machines.fuzzed(SHOP).counted is Kept.FAILS
    said(monkeypatch, FUZZED.split("pageshare-conversation", maxsplit=1)[0])
    assert machines.fuzzed(SHOP).counted is Kept.FAILS
