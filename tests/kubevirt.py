"""virt-handler and virt-launcher, played for tests of pageshare's node hooks.

What is said goes by KubeVirt's published interface (its `pkg/hooks/plugins/v1alpha1/api.proto`), in
bytes written out here and not by the code under test.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc

from needs import HOME, PROGRAMS
from tare import process
from tare.command import Command
from tare.pauses import pauses
from tare.process import Running
from tare.workloads.migration.proxies import program

SERVER = HOME / "packaging/kubevirt/node_hooks.py"
METHOD = "/kubevirt.hooks.plugins.v1alpha1.NodeHookService/ExecuteNodeHook"
LAUNCHER_UID = 107
"""Of QEMU in a launcher's pod, to whom virt-handler gives the sockets."""


_COUNT = itertools.count(2)


def fresh_address() -> str:
    """An address of this machine that no other test's server listens at."""
    pid = os.getpid()
    return f"127.{pid >> 8 & 0xFF}.{pid & 0xFF}.{next(_COUNT) % 250}"


def request(point: str, vmi: bytes, node: str) -> bytes:
    """An ExecuteNodeHookRequest: hookPoint 1, vmi 2, node_context 3, whose node_name is 1."""
    context = _field(1, node.encode())
    return _field(1, point.encode()) + _field(2, vmi) + _field(3, context)


def _field(number: int, content: bytes) -> bytes:
    length, left = b"", len(content)
    while left > 0x7F:
        length, left = length + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([number << 3 | 2]) + length + bytes([left]) + content


@dataclass
class Vmi:
    """A virtual machine that goes from one node to another, as both virt-handlers know it."""

    source: str
    target: str
    namespace: str = "tenant"
    uid: str = field(default_factory=lambda: str(uuid4()))
    migration: str = field(default_factory=lambda: str(uuid4()))
    pods: tuple[str, str] = field(default_factory=lambda: (str(uuid4()), str(uuid4())))

    def text(self, **state: Any) -> bytes:
        """The object in JSON, of which a hook bears all; here the part that is of migrations."""
        source, target = self.pods
        migration = {
            "migrationUid": self.migration, "sourceNode": self.source, "targetNode": self.target,
        }  # fmt: skip
        return json.dumps(
            {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "metadata": {"name": "web", "namespace": self.namespace, "uid": self.uid},
                "status": {
                    "activePods": {source: self.source, target: self.target},
                    "migrationState": migration | state,
                    "migrationTransport": "Unix",
                },
            }
        ).encode()

    @property
    def stream(self) -> Path:
        """The socket of QEMU's stream, in what a launcher and its node share."""
        return Path("migrationproxy") / f"{self.uid}-49152-source.sock"


@dataclass(frozen=True)
class Node:
    """A node with its server of hooks."""

    name: str
    root: Path
    running: Running

    def call(self, point: str, vmi: bytes) -> bytes:
        """Call a hook as virt-handler does; raises grpc.RpcError where that fails."""
        with grpc.insecure_channel(f"unix:{self.root / 'hooks.sock'}") as channel:
            execute = channel.unary_unary(METHOD)
            # Its socket is there a moment before it listens.
            asked = request(point, vmi, self.name)
            said: bytes = execute(asked, timeout=60, wait_for_ready=True)
        return said

    def pod(self, uid: str) -> Path:
        """The directory that a launcher's pod shares with its node, as the kubelet lays it out."""
        path = self.root / "pods" / uid / "volumes/kubernetes.io~empty-dir/public"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def said(self) -> str:
        """What the server has said."""
        return self.running.stderr()


@contextmanager
def node(name: str, root: Path, *words: str, netns: str | Path | None = None) -> Iterator[Node]:
    """Start a node's server of hooks; yields once virt-handler would find it."""
    (root / "pods").mkdir(parents=True)
    argv = (
        sys.executable, str(SERVER), "--socket", str(root / "hooks.sock"), "--node", name,
        "--pods", str(root / "pods"), "--listen", name, "--pageshare", str(program(PROGRAMS)),
        "--scopes", str(root / "scopes"), *words,
    )  # fmt: skip
    # A server may run on another Python's packages than the system's.
    env = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with process.start(Command(argv, env=env, netns=netns), log_dir=root, name="hooks") as running:
        for _ in pauses(60):
            if (root / "hooks.sock").exists():
                break
            assert running.alive(), running.stderr()
        yield Node(name, root, running)


@contextmanager
def handlers_socket(path: Path, uid: int = LAUNCHER_UID) -> Iterator[socket.socket]:
    """virt-handler's own socket for QEMU's stream, at the source, as its proxy makes it."""
    path.parent.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(path.parent)  # a path from the root would be too long for a socket
        try:
            listener.bind(path.name)
        finally:
            os.chdir(here)
        os.chown(path, uid, uid)
        listener.listen()
        listener.setblocking(False)
        yield listener
