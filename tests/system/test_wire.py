"""A wire between two hosts: what crosses it is counted, its limit stands, nothing is left."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from reach import await_that

from needs import PROGRAMS, needs_root
from tare import netns
from tare.command import Command, owner_mark, start_time
from tare.errors import TrialError
from tare.leftovers import Registry, clean
from tare.process import run, wait_pid
from tare.relay import Distance
from tare.testing import traces
from tare.wire import Wire
from tare.workloads.migration import tiny

pytestmark = [pytest.mark.system, needs_root]


def test_what_crosses_is_counted_in_both_directions(registry: Registry) -> None:
    with Wire(registry, None) as wire:
        before = wire.traffic()
        rate = wire.measured_rate()
        crossed = wire.traffic().since(before)
    assert rate > 0
    assert crossed.forth > crossed.back > 0


def test_both_ends_are_limited_with_the_burst_that_is_recorded(registry: Registry) -> None:
    with Wire(registry, 10**9) as wire:
        assert wire.burst_bytes == 25_000
        for namespace in (wire.source_ns, wire.destination_ns):
            shown = ("tc", "class", "show", "dev", "wire0")
            said = run(Command(shown, netns=namespace), 20).stdout
            assert "rate 1Gbit" in said
            assert "burst 25000b" in said


def test_without_a_limit_nothing_is_shaped(registry: Registry) -> None:
    with Wire(registry, None) as wire:
        shown = ("tc", "class", "show", "dev", "wire0")
        assert run(Command(shown, netns=wire.source_ns), 20).stdout == ""
        assert wire.burst_bytes is None


def test_a_limit_can_be_changed_and_taken_away(registry: Registry) -> None:
    shown = ("tc", "class", "show", "dev", "wire0")
    with Wire(registry, 10**9) as wire:
        wire.limit(10**10)
        assert "rate 10Gbit" in run(Command(shown, netns=wire.destination_ns), 20).stdout
        wire.limit(None)
        assert run(Command(shown, netns=wire.source_ns), 20).stdout == ""


FAR = Distance(round_trip_ns=30_000_000)


@pytest.fixture
def wire(registry: Registry) -> Iterator[Wire]:
    with Wire(registry, 10**9, PROGRAMS) as made:
        yield made


def crossed(wire: Wire, block: bytes) -> bytes:
    """What arrives of a block that is sent by TCP."""

    def listening(_ip: Any) -> socket.socket:
        return socket.create_server((wire.destination_address, 7600))

    with (
        netns.within(wire.destination_ns, listening) as server,
        netns.within(wire.source_ns, lambda _: socket.socket()) as sender,
    ):
        sender.connect((wire.destination_address, 7600))
        receiver, _ = server.accept()
        with receiver, ThreadPoolExecutor(1) as pool:
            sending = pool.submit(sender.sendall, block)
            arrived = receiver.recv(len(block), socket.MSG_WAITALL)
            sending.result()
    return arrived


def test_a_round_trip_is_at_least_what_is_declared_and_counted_outside_of_the_program(
    wire: Wire,
) -> None:
    wire.become(10**9, FAR)
    assert wire.measured_round_trip() >= FAR.round_trip_ns
    asked = (str(tiny.BUSYBOX), "ping", "-c", "3", "-i", "0.05", wire.destination_address)
    said = run(Command(asked, netns=wire.source_ns), 20).stdout
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", said)]
    assert len(times) == 3
    assert min(times) >= 30


def test_bytes_are_counted_at_a_distance_as_they_are_without(wire: Wire) -> None:
    block = random.Random(1).randbytes(4 << 20)
    found = []
    for distance in (None, FAR):
        wire.become(10**9, distance)
        wire.relayed()
        before = wire.traffic()
        assert crossed(wire, block) == block
        found.append(wire.traffic().since(before).forth)
    relayed = wire.relayed()
    for forth in found:
        # One pair of headers for up to 64 KiB, as the kernel lays them around.
        assert len(block) < forth < 1.02 * len(block)
    # What closes the connection may come later than either count.
    assert abs(relayed["forth"]["bytes"] - found[1]) < 4096
    assert relayed["forth"]["lost_segments"] == relayed["forth"]["overflowed_frames"] == 0


def test_what_is_lost_is_sent_again_and_is_the_share_that_was_asked_for(wire: Wire) -> None:
    block = random.Random(1).randbytes(16 << 20)
    wire.become(None, Distance(round_trip_ns=1_000_000, loss=0.01, seed=7))
    assert crossed(wire, block) == block
    forth = wire.relayed()["forth"]
    segments, lost = forth["segments"], forth["lost_segments"]
    assert segments > len(block) // 1500
    # 6 sigma of the binomial.
    assert abs(lost - 0.01 * segments) < 6 * (0.01 * segments) ** 0.5
    assert forth["frames"] < segments / 2  # they came whole


def test_the_limit_holds_at_a_distance_and_the_queue_is_large_enough_for_it(wire: Wire) -> None:
    wire.become(10**8, FAR)
    wire.relayed()
    rate = wire.measured_rate()
    assert 0 < rate < 10**8
    forth = wire.relayed()["forth"]
    assert forth["overflowed_frames"] == forth["refused_frames"] == 0
    assert wire.room_bytes is not None
    assert 0 < forth["held_most_bytes"] <= wire.room_bytes


def test_a_wire_can_come_back_from_a_distance(wire: Wire) -> None:
    (before,) = interfaces(wire.source_ns)
    wire.become(10**9, FAR)
    wire.become(10**9, None)
    assert wire.relayed() == {}
    assert interfaces(wire.source_ns) == [before]
    shown = ("tc", "class", "show", "dev", "wire0")
    assert "rate 1Gbit" in run(Command(shown, netns=wire.destination_ns), 20).stdout
    assert wire.measured_rate() > 0


def test_a_wire_whose_relay_has_ended_is_laid_anew(wire: Wire) -> None:
    wire.become(10**9, FAR)
    (relay,) = relays()
    os.kill(relay, signal.SIGKILL)
    assert wait_pid(relay, 20)
    with pytest.raises(TrialError, match="killed by signal 9"):
        wire.relayed()
    wire.become(10**9, FAR)
    assert relays() != [relay]
    assert wire.measured_round_trip() >= FAR.round_trip_ns


def relays() -> list[int]:
    """The processes of ours that relay."""
    return [
        pid
        for pid in traces.processes_of(owner_mark())
        if b"relay" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]


def interfaces(namespace: str) -> list[str]:
    """Kinds of the interfaces of a namespace, the loopback apart."""

    def look(ip: Any) -> list[str]:
        kinds = (link.get_attr("IFLA_LINKINFO") for link in ip.get_links())
        return [kind.get_attr("IFLA_INFO_KIND") for kind in kinds if kind]

    return netns.within(namespace, look)


LIFE = """
import sys
from pathlib import Path
from tare.leftovers import Registry
from tare.relay import Distance
from tare.wire import Wire
from tare.workloads.migration import tiny

root, programs = map(Path, sys.argv[1:])
with Registry(root) as registry, Wire(registry, 10**9, programs) as wire:
    wire.become(10**9, Distance(30_000_000))
    print(wire.source_ns, flush=True)
    sys.stdin.read()
"""


def test_killed_with_its_run_the_relay_is_gone_and_its_taps_with_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    argv = [sys.executable, "-c", LIFE, str(root), str(PROGRAMS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as life:
        mark = f"{life.pid}:{start_time(life.pid)}"
        assert life.stdout is not None
        namespace = life.stdout.readline().strip()
        assert interfaces(namespace) == ["tun"]
        (relay,) = traces.processes_of(mark)
        life.send_signal(signal.SIGKILL)
    assert wait_pid(relay, 20)
    assert await_that(lambda: interfaces(namespace) == [])
    clean(root)
    assert traces.of_run(namespace.split("-")[1], mark) == []
