"""Cells by patterns of their names."""

from __future__ import annotations

import json

import pytest

from tare import experiment, plan
from tare.pairing import paired
from tare.plan import Plan


@pytest.fixture(scope="module")
def made() -> Plan:
    factors = {"environment": ["native", "qemu"], "transport": ["icmp", "udp"], "payload": ["64 B"]}
    document = {"title": "?", "factors": factors, "baseline": {"environment": "native"}}
    return plan.make(experiment.parse(json.dumps(document), "x.yaml"), 1)


@pytest.mark.parametrize(
    ("cells", "against", "found"),
    [
        ("qemu/udp", "native/icmp", [("qemu/udp", "native/icmp")]),
        ("qemu/*", None, [("qemu/icmp", "native/icmp"), ("qemu/udp", "native/udp")]),
        ("qemu/*", "native/*", [("qemu/icmp", "native/icmp"), ("qemu/udp", "native/udp")]),
        ("*/u*p", "*/icm*p", []),
        ("*/*dp", "{1}/icmp", [("native/udp", "native/icmp"), ("qemu/udp", "qemu/icmp")]),
        ("*/udp", "{0}", [("native/udp", "native/udp"), ("qemu/udp", "qemu/udp")]),
        ("native/*", None, []),
        ("absent", "native/udp", []),
        ("qemu.udp", "native/udp", []),
    ],
)
def test_cells_are_paired(
    made: Plan, cells: str, against: str | None, found: list[tuple[str, str]]
) -> None:
    assert paired(made, cells, against) == found
