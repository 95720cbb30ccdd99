"""The workload request-reply: what its factors mean, and how it answers when a process fails."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.errors import TrialError, UsageError
from tare.workloads.request_reply import WORKLOAD, EchoBench, EchoLevels, EchoSettings, _check

LEVELS = EchoLevels.defaults()
SESSION = EchoSettings({"requests": "1000", "warmup": "0", "timeout": "1 s"})


def level(factor: str, written: object) -> str:
    return EchoLevels.rows[factor].level(written)


@pytest.mark.parametrize(
    ("factor", "written", "shown"),
    [
        ("payload", "1024 B", "1 KiB"),
        ("payload", "64B", "64 B"),
        ("server_work", "0.1 ms", "100 us"),
        ("mode", "closed", "closed"),
        ("mode", "open 2 kHz", "open 2000/s"),
        ("mode", "open 1000/s", "open 1000/s"),
        ("link", "0.1 Gbit/s", "100 Mbit/s"),
        ("link", "unlimited", "unlimited"),
        ("clients", 4, "4"),
        ("clients", "1_000", "1000"),
    ],
)
def test_one_level_has_one_form_however_it_is_written(factor, written, shown):
    assert level(factor, written) == shown
    assert level(factor, shown) == shown


@pytest.mark.parametrize(
    ("factor", "written"),
    [
        ("transport", "tpc"),
        ("payload", "64"),
        ("payload", "64 s"),
        ("payload", "-1 B"),
        ("server_work", "100 B"),
        ("mode", "open"),
        ("mode", "open 0/s"),
        ("mode", "open soon"),
        ("mode", "closed 5/s"),
        ("link", "0 Mbit/s"),
        ("link", "100 MB"),
        ("clients", 0),
        ("clients", 1.5),
        ("clients", "many"),
        ("placement", "client=nobody"),
        ("reception", "poll"),
    ],
)
def test_a_level_that_means_nothing_is_refused(factor, written):
    with pytest.raises(UsageError, match=re.escape(str(written).split()[-1])):
        level(factor, written)


@given(st.sampled_from(sorted(EchoLevels.rows)), st.text(max_size=30) | st.integers() | st.none())
def test_whatever_is_written_is_a_level_or_a_usage_error(factor, written):
    try:
        shown = level(factor, written)
    except UsageError:
        return
    assert level(factor, shown) == shown


def test_icmp_knows_neither_reception_nor_work_and_only_a_dds_knows_reception():
    guest = LEVELS.but(environment="qemu")
    names = {t: WORKLOAD.applicable(guest.but(transport=t)) for t in ("icmp", "udp", "fastdds")}
    assert set(EchoLevels.rows) - names["icmp"] == {"reception", "server_work"}
    assert set(EchoLevels.rows) - names["udp"] == {"reception"}
    assert names["fastdds"] == set(EchoLevels.rows)


def test_only_a_guest_of_qemu_is_made_of_anything():
    names = WORKLOAD.applicable(LEVELS.but(environment="uml"))
    assert not names & {"vcpus", "memory", "machine", "accelerator"}


def test_a_session_takes_as_long_as_its_payload_takes_on_the_link_and_its_clients_together():
    nowhere: Any = None
    large = LEVELS.but(transport="tcp", payload="1 MiB", link="100 Mbit/s")
    way_s = 2 * 8 * (1 << 20) / 100e6
    assert WORKLOAD.seconds(large, SESSION) > 1000 * way_s
    assert EchoBench(nowhere, nowhere, SESSION).longest(large) > 1000 * way_s
    patient = EchoBench(nowhere, nowhere, SESSION.but(timeout="10 s"))
    assert patient.longest(LEVELS) > 1000 * 0.01 * 10
    many = WORKLOAD.seconds(LEVELS.but(clients="64"), SESSION)
    assert many > 10 * WORKLOAD.seconds(LEVELS, SESSION)


def test_a_schedule_makes_a_session_as_long_as_it_says():
    slow = LEVELS.but(mode="open 10/s")
    assert WORKLOAD.seconds(slow, SESSION) >= 1000 / 10
    nowhere: Any = None
    assert EchoBench(nowhere, nowhere, SESSION).longest(slow) > 1000 / 10


@pytest.mark.parametrize(
    ("mode", "losses"), [("closed", 10), ("open 1000/s", 160), ("open 0.5/s", 10), ("open 5/s", 50)]
)
def test_no_stall_of_a_few_timeouts_ends_a_session_of_either_loop(mode: str, losses: int):
    """In open loop one of little more than a timeout loses all that the window holds."""
    hosts: Any = SimpleNamespace(client_address="10.0.0.1")
    site: Any = SimpleNamespace(programs=Path("/build"), hosts=hosts)
    inside: Any = SimpleNamespace(address="10.0.0.2")
    argv = EchoBench(site, inside, SESSION)._ask(LEVELS.but(mode=mode), Path("/raw"))
    given = dict(pairwise(argv))
    assert given["--give-up-after"] == str(losses)
    assert given["--outstanding"] == ("1" if mode == "closed" else "16")


def test_a_session_with_corrupted_replies_or_none_is_no_measurement():
    _check({"received": 9, "lost": 1}, "udp")
    with pytest.raises(TrialError, match="3 replies over udp came back corrupted"):
        _check({"received": 9, "corrupted": 3}, "udp")
    with pytest.raises(TrialError, match="nothing came back over udp: 10 requests lost"):
        _check({"received": 0, "lost": 10}, "udp")
