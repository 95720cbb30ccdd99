"""A guest of libvirt's migrates by KubeVirt's node hooks, between two hosts of this machine.

As in a launcher, libvirt is given `unix:///var/run/kubevirt/migrationproxy/...` at both ends, in
the directory that the pod shares with its node.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import kubevirt
from kubevirt import Vmi
from needs import HOME, PROGRAMS, needs_root
from tare import process
from tare.command import Command
from tare.guests import Kernel
from tare.pauses import pauses
from tare.process import Output
from tare.workloads.migration import tiny

CACHE = PROGRAMS / "test-cache"
SCRIPT = HOME / "pageshare/proxy/tests/lab/libvirt-host"
QEMU_UID = 64055
"""Debian's user of libvirt's QEMUs."""
DOMAIN = """\
<domain type='qemu'>
  <name>tenant_web</name>
  <memory unit='MiB'>128</memory>
  <os>
    <type arch='x86_64' machine='pc-i440fx-7.2'>hvm</type>
    <kernel>{shared}/kernel</kernel>
    <initrd>{shared}/initrd</initrd>
    <cmdline>console=ttyS0 quiet no_timer_check</cmdline>
  </os>
  <devices>
    <serial type='file'><source path='/run/console'/></serial>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
</domain>
"""

pytestmark = [pytest.mark.system, needs_root]


@dataclass(frozen=True)
class LibvirtHost:
    """A host with a libvirtd of its own."""

    name: str
    address: str
    shared: Path
    init: int
    """Its first process, as seen from here."""

    @property
    def uri(self) -> str:
        return f"qemu+unix:///system?socket={self.shared / self.name / 'libvirt-sock'}"

    @property
    def netns(self) -> Path:
        return Path(f"/proc/{self.init}/ns/net")

    def run(self, *argv: str) -> Output:
        enter = ("nsenter", f"--target={self.init}", "--mount", "--net", "--uts", "--pid", "--root")
        return process.run(Command((*enter, "--wd=/", *argv)), 120)

    def virsh(self, *words: str) -> str:
        return self.run("virsh", "-c", self.uri, *words).stdout.strip()


@contextmanager
def libvirt_host(shared: Path, name: str, address: str) -> Iterator[LibvirtHost]:
    (shared / name).mkdir()
    spaces = ("--mount", "--net", "--uts", "--pid", "--fork", "--kill-child")
    uuid = f"{address[-1]}0000000-1111-4222-8333-444444444444"
    argv = ("unshare", *spaces, str(SCRIPT), str(shared), name, uuid)
    with process.start(Command(argv), log_dir=shared / name, name="host") as running:
        for _ in pauses(60):
            assert running.alive(), running.stderr()
            if (shared / name / "libvirt-sock").exists():
                break
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
        host = LibvirtHost(name, address, shared, int(children))
        try:
            yield host
        finally:
            os.kill(host.init, 9)


def connect(a: LibvirtHost, b: LibvirtHost) -> None:
    link = ("ip", "link", "add", "wire", "netns", str(a.init), "type", "veth")
    process.run(Command((*link, "peer", "name", "wire", "netns", str(b.init))), 30)
    for host in (a, b):
        host.run("ip", "address", "add", f"{host.address}/24", "dev", "wire")
        host.run("ip", "link", "set", "wire", "up")


def test_libvirt_migrates_a_guest_through_the_sockets_that_the_hooks_prepare() -> None:
    with ExitStack() as stack:
        shared = Path(stack.enter_context(TemporaryDirectory()))
        shared.chmod(0o755)
        shutil.copy(Kernel.fetch(CACHE).vmlinuz, shared / "kernel")
        shutil.copy(tiny.pack(CACHE).path, shared / "initrd")
        a, b = (
            stack.enter_context(libvirt_host(shared, name, address))
            for name, address in (("node-a", "10.78.0.1"), ("node-b", "10.78.0.2"))
        )
        connect(a, b)
        source, target = (
            stack.enter_context(
                kubevirt.node(
                    host.address, shared / "nodes" / host.name, "--insecure", netns=host.netns
                )
            )
            for host in (a, b)
        )
        vmi = Vmi(source.name, target.name)
        for host, node, pod in ((a, source, vmi.pods[0]), (b, target, vmi.pods[1])):
            # In a pod the directory is mounted there.
            host.run("ln", "-s", str(node.pod(pod)), "/var/run/kubevirt")
            host.run("install", "-m", "666", "/dev/null", "/run/console")
        (shared / "web.xml").write_text(DOMAIN.format(shared=shared))
        a.virsh("create", str(shared / "web.xml"))
        console = Path(f"/proc/{a.init}/root/run/console")
        for _ in pauses(200):
            if "tare: ready" in console.read_text(errors="replace"):
                break
        else:
            pytest.fail(console.read_text(errors="replace"))

        target.call("PreMigrationTarget", vmi.text())
        sockets = target.pod(vmi.pods[1]) / "migrationproxy"
        sockets.mkdir()
        os.chown(sockets, QEMU_UID, QEMU_UID)
        here = source.pod(vmi.pods[0]) / vmi.stream
        stack.enter_context(kubevirt.handlers_socket(here, QEMU_UID))
        source.call("PreMigrationSource", vmi.text())
        to = ("--migrateuri", f"unix:///var/run/kubevirt/{vmi.stream}")
        a.virsh("migrate", "--live", "--p2p", "tenant_web", b.uri, *to)
        target.call("PostMigrationTarget", vmi.text())

        assert b.virsh("domstate", "tenant_web") == "running"
        assert a.virsh("list", "--all", "--name") == ""
        ended = re.compile(r"ended: (\d+) stream bytes, (\d+) bytes on the wire")
        for node in (source, target):
            for _ in pauses(60):
                if found := ended.search(node.said()):
                    break
            else:
                pytest.fail(node.said())
            stream, wire = map(int, found.groups())
            assert 0 < wire < stream
