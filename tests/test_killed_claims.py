"""D7 and D12: what benchmarks that count guests have to say for a claim to hold."""

from __future__ import annotations

from typing import Any

import pytest

import workshops
from claims import Workshop, benchmarks, judge
from tare.stats.bounds import Kept

SHOP = workshops.bare()
FAR = {
    "kills": 200, "aimed": 40, "late": 0, "round_trip_ms": 40, "channels": 2,
    "arrived": 90, "stayed": 110, "lost": 0, "doubled": 0, "changed": 0,
}  # fmt: skip
NEAR = FAR | {"kills": 100, "aimed": 20, "round_trip_ms": 0, "channels": 0, "stayed": 10}
UPGRADED = {
    "migrations": 100, "older_sends": 50, "arrived": 100, "wire_version": 2, "newest": 3,
}  # fmt: skip


def said(monkeypatch: pytest.MonkeyPatch, **documents: dict[str, Any]) -> list[dict[str, str]]:
    """Have the benchmarks say so; returns what each was told."""
    told: list[dict[str, str]] = []

    def cargo(workshop: Workshop, bench: str, **env: str) -> dict[str, Any]:
        told.append(env)
        return documents[bench]

    monkeypatch.setattr(benchmarks, "_cargo", cargo)
    return told


def test_kills_are_asked_for_near_and_far(monkeypatch: pytest.MonkeyPatch) -> None:
    near = said(monkeypatch, kills=NEAR)
    assert benchmarks.kills(SHOP).counted is Kept.HOLDS
    far = said(monkeypatch, kills=FAR)
    assert benchmarks.far_kills(SHOP).counted is Kept.HOLDS
    asked = ("PAGESHARE_KILLS", "PAGESHARE_ROUND_TRIP", "PAGESHARE_CHANNELS")
    assert near == [dict(zip(asked, ("100", "0", "0"), strict=True))]
    assert far == [dict(zip(asked, ("200", "40", "2"), strict=True))]


@pytest.mark.parametrize(
    "other",
    [
        {"stayed": 109, "lost": 1},
        {"stayed": 109, "doubled": 1},
        {"stayed": 109, "changed": 1},
        {"kills": 199, "stayed": 109},
        {"kills": 199, "late": 1},
        {"aimed": 39},
        {"round_trip_ms": 0},
        {"channels": 0},
    ],
)
def test_a_guest_too_few_or_a_kill_of_another_kind_breaks_the_claim(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, int]
) -> None:
    told = said(monkeypatch, kills=FAR | other)
    assert benchmarks.far_kills(SHOP).counted is Kept.FAILS
    assert told[0]["PAGESHARE_ROUND_TRIP"] == "40"


@pytest.mark.parametrize("other", [{"arrived": 99}, {"migrations": 98}, {"older_sends": 51}])
def test_every_guest_arrives_from_either_version(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, int]
) -> None:
    said(monkeypatch, versions=UPGRADED)
    assert benchmarks.versions(SHOP).counted is Kept.HOLDS
    said(monkeypatch, versions=UPGRADED | other)
    assert benchmarks.versions(SHOP).counted is Kept.FAILS


def test_the_parts_of_a_claim_keep_what_each_has_found(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, kills=FAR, versions=UPGRADED)
    result = judge([benchmarks.far_kills(SHOP), benchmarks.versions(SHOP)])
    assert result.holds
    assert FAR in result.data.values() and UPGRADED in result.data.values()
    assert "at 40 ms over 2 channels of multifd" in result.figure
