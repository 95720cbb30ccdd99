"""A guest migrates by KubeVirt's node hooks: called as virt-handler calls them, over a real wire.

What no cluster is needed for is real: two servers of hooks on two hosts, pageshare, QEMU, and paths
as the kubelet lays them out. virt-handler and virt-launcher are played by the test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

import kubevirt
from kubevirt import Node, Vmi
from needs import PROGRAMS, needs_root
from tare.guests import Kernel
from tare.leftovers import Registry
from tare.pauses import pauses
from tare.wire import Wire
from tare.workloads.migration import certificates, tiny
from tare.workloads.migration.guest import Blueprint, Guest
from tare.workloads.migration.hypervisor import choose
from tare.workloads.migration.journey import travel
from tare.workloads.migration.proxies import Scope

CACHE = PROGRAMS / "test-cache"
ALIKE_BYTES = 16 << 20
"""What every guest has and no compressor makes smaller."""

pytestmark = [pytest.mark.system, needs_root]


def guest(name: str, netns: str, logs: Path, role: Literal["boot", "await"]) -> Guest:
    kernel, initrd = Kernel.fetch(CACHE).vmlinuz, tiny.pack(CACHE).path
    made = Blueprint(choose("tcg", PROGRAMS), kernel, initrd, False, "tcg", 128 << 20)
    return Guest(made, name=name, netns=netns, logs=logs, folder=logs.parent, role=role)


@contextmanager
def both(wire: Wire, tmp_path: Path, *words: str) -> Iterator[tuple[Node, Node]]:
    a, b = wire.source_address, wire.destination_address
    with (
        kubevirt.node(a, tmp_path / "a", *words, netns=wire.source_ns) as source,
        kubevirt.node(b, tmp_path / "b", *words, netns=wire.destination_ns) as target,
    ):
        yield source, target


def in_launcher(short: Path, pod: Path, vmi: Vmi) -> str:
    """The URI that libvirt gives QEMU, in whose pod the directory has a short name."""
    short.symlink_to(pod)
    return f"unix:{short / vmi.stream}"


def test_a_guest_migrates_by_the_hooks_and_what_its_namespace_has_there_is_not_sent(
    registry: Registry, tmp_path: Path
) -> None:
    tls = certificates.make(tmp_path / "pki")
    for host in ("a", "b"):
        (tmp_path / host / "scopes").mkdir(parents=True)
    scope = Scope.make(PROGRAMS, tmp_path / "a/scopes/tenant.json").path
    shutil.copy(scope, tmp_path / "b/scopes/tenant.json")  # with its mode: nobody else may read it
    words = ("--tls-dir", str(tls), "--tls-name", certificates.RECEIVER)
    words += ("--peer", certificates._SENDER)
    logs = tmp_path / "logs"
    with (
        Wire(registry, 10**9) as wire,  # on one that is faster than its processor it need not ask
        both(wire, tmp_path, *words) as (source, target),
        guest("elsewhere_web", wire.source_ns, logs, "boot") as leaves,
        guest("tenant_db", wire.destination_ns, logs, "boot") as neighbour,
    ):
        leaves.wait_ready(200)
        neighbour.wait_ready(200)
        vmi = Vmi(source.name, target.name)
        here, there = source.pod(vmi.pods[0]), target.pod(vmi.pods[1])

        assert target.call("PreMigrationTarget", vmi.text()) == b""
        (there / "migrationproxy").mkdir()
        with (
            tempfile.TemporaryDirectory() as short,
            kubevirt.handlers_socket(here / vmi.stream) as handlers,
            guest("tenant_web", wire.destination_ns, logs, "await") as comes,
        ):
            for again in range(2):
                assert source.call("PreMigrationSource", vmi.text()) == b"", again
                target.call("PreMigrationTarget", vmi.text())
            assert (here / vmi.stream).stat().st_uid == kubevirt.LAUNCHER_UID
            for end in (leaves, comes):
                on = dict.fromkeys(("events", "return-path", "multifd"), True)
                end.allow(on, {"max-bandwidth": 1 << 40})
            comes.ask("migrate-incoming", uri=in_launcher(Path(short, "t"), there, vmi))
            before = wire.traffic()
            travel(leaves, comes, in_launcher(Path(short, "s"), here, vmi), 200)
            crossed = wire.traffic().since(before).forth
            # All that QEMU sent went through pageshare, which had the half that is alike there.
            sent = leaves.ask("query-migrate")["ram"]["transferred"]
            assert sent - crossed > ALIKE_BYTES, (sent, crossed, source.said(), target.said())
            with pytest.raises(BlockingIOError):
                handlers.accept()
            assert target.call("PostMigrationTarget", vmi.text()) == b""
            for _ in pauses(60):
                if not os.path.lexists(here / vmi.stream):
                    break
            else:
                pytest.fail(f"the sender has not ended: {source.said()}")
