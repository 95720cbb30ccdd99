"""The proxies of the migration's testbed, with two sockets in the place of two QEMUs."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest

from needs import PROGRAMS, needs_root
from tare.leftovers import Registry
from tare.relay import Distance
from tare.wire import Wire
from tare.workloads.migration import certificates
from tare.workloads.migration.arms import ARMS, Arm
from tare.workloads.migration.proxies import Proxies, Scope

STREAM = b"no stream of QEMU's: passed on as it is" * 1000
pytestmark = [pytest.mark.system, needs_root]


def carried(proxies: Proxies, stream: bytes = STREAM) -> bytes:
    """Send it in at one end; return what comes out at the other."""
    with (
        contextlib.chdir(proxies._scratch.parent),
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as source,
    ):
        listener.bind(proxies.inward.removeprefix("unix:"))
        listener.listen()
        listener.settimeout(60)
        source.connect(proxies.outward.removeprefix("unix:"))

        def send() -> None:
            source.sendall(stream)
            source.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        destination, _ = listener.accept()
        with destination:
            destination.settimeout(60)
            found = []
            while chunk := destination.recv(1 << 20):
                found.append(chunk)
        sender.join()
    return b"".join(found)


@pytest.mark.parametrize("secured", [False, True], ids=["insecure", "mutual TLS"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_what_goes_in_comes_out_at_the_other_host(
    registry: Registry, tmp_path: Path, secured: bool, back: bool
) -> None:
    tls = certificates.make(tmp_path / "pki") if secured else None
    scope = Scope.make(PROGRAMS, tmp_path / "scope.json")
    far = tmp_path / ("far" * 40) / "trip"  # no socket could be named by its whole path
    far.mkdir(parents=True)
    with (
        Wire(registry, None) as wire,
        Proxies(
            PROGRAMS, wire, scope, far, send=(), receive=(), cpus=((), ()), tls=tls, back=back
        ) as proxies,
    ):
        before = wire.traffic()
        meters = proxies.meters()
        assert carried(proxies) == STREAM
        records = proxies.records()
        crossed = wire.traffic().since(before)
        assert all(meter.read() > 0 for meter in meters)
        assert (crossed.back if back else crossed.forth) > len(STREAM) / 50
        assert records["send"]["stream_bytes"] == len(STREAM)
        assert records["send"]["migration"] == records["receive"]["migration"]


def test_over_a_distance_one_connection_has_under_way_what_the_kernel_lets_it(
    registry: Registry, tmp_path: Path
) -> None:
    stream = os.urandom(48 << 20)
    scope = Scope.make(PROGRAMS, tmp_path / "scope.json")
    send = ("--ask", "never", "--compress", "never")
    with Wire(registry, 10**9, PROGRAMS) as wire:
        wire.become(10**9, Distance(round_trip_ns=100_000_000))
        with Proxies(
            PROGRAMS, wire, scope, tmp_path, send=send, receive=(), cpus=((), ())
        ) as proxies:
            assert carried(proxies, stream) == stream
        forth = wire.relayed()["forth"]
    # A send buffer of a fixed size was 512 KiB, at any distance.
    assert forth["held_most_bytes"] > 1 << 20


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.proxied], ids=lambda arm: arm.name)
def test_pageshare_knows_the_options_of_every_arm(
    registry: Registry, tmp_path: Path, arm: Arm
) -> None:
    send = [*(arm.send or ()), *(("--ksm-pid", str(os.getpid())) if arm.ksm else ())]
    kept = tmp_path / "kept"
    receive = [*arm.receive, *(("--kept", str(kept)) if arm.returning else ())]
    if arm.returning:
        send += ["--keep", str(kept), "--keep-name", "guest"]
    if arm.differing:
        send += ["--kept", str(kept)]
        receive += ["--keep", str(kept), "--keep-name", "guest"]
    scope = Scope.make(PROGRAMS, tmp_path / "scope.json")
    with (
        Wire(registry, None) as wire,
        Proxies(
            PROGRAMS, wire, scope, tmp_path, send=send, receive=receive, cpus=((), ())
        ) as proxies,
    ):
        assert carried(proxies) == STREAM
