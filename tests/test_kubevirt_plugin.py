"""pageshare's node hooks for KubeVirt: what they refuse and leave alone, and their manifests."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import grpc
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

import kubevirt
from kubevirt import Node, Vmi
from needs import HOME, needs_root
from tare.pauses import pauses
from tare.workloads.migration import certificates

PACKAGING = HOME / "packaging/kubevirt"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """Two nodes of this machine, named by their addresses."""
    with (
        kubevirt.node(kubevirt.fresh_address(), tmp_path / "a", "--insecure") as source,
        kubevirt.node(kubevirt.fresh_address(), tmp_path / "b", "--insecure") as target,
    ):
        yield source, target


def refused(node: Node, point: str, vmi: bytes) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as found:
        node.call(point, vmi)
    error: Any = found.value
    return error.code(), error.details()


def connects(path: Path, to: socket.socket) -> bool:
    """Whether who connects to a path reaches this listener."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path.name)
    finally:
        os.chdir(here)
    try:
        to.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def listening_at(node: Node, vmi: Vmi) -> int:
    found = re.findall(
        rf"migration {vmi.migration}: .* waiting for senders at \S+:(\d+),", node.said()
    )
    assert len(found) == 1, node.said()
    return int(found[0])


def test_hooks_are_called_in_the_bytes_that_kubevirts_own_client_writes() -> None:
    vmi = Vmi(
        "node-a", "127.0.0.3",
        uid="11111111-2222-4333-8444-555555555555",
        migration="66666666-7777-4888-9999-aaaaaaaaaaaa",
        pods=("bbbbbbbb-cccc-4ddd-8eee-ffffffffffff", "00000000-1111-4222-8333-444444444444"),
    )  # fmt: skip
    golden = (HOME / "testdata/kubevirt/pre-migration-target.bin").read_bytes()
    assert kubevirt.request("PreMigrationTarget", vmi.text(), vmi.target) == golden


def test_a_hook_that_is_not_of_a_migration_is_refused(nodes: tuple[Node, Node]) -> None:
    source, _ = nodes
    code, words = refused(source, "PreVMStart", Vmi("a", "b").text())
    assert code is grpc.StatusCode.UNIMPLEMENTED and "PreMigrationSource" in words
    for text in (b"", b"[]", b'{"metadata": {}}', Vmi("a", "b").text(migrationUid=None)):
        code, words = refused(source, "PreMigrationSource", text)
        assert code is grpc.StatusCode.INVALID_ARGUMENT, words


def test_names_do_not_lead_out_of_the_directory_of_pods(nodes: tuple[Node, Node]) -> None:
    _, target = nodes
    for bad in (
        Vmi("a", target.name, uid="../../x"),
        Vmi("a", target.name, pods=("x", "../b/pods")),
        Vmi("a", target.name, namespace="../scopes"),
    ):
        code, words = refused(target, "PreMigrationTarget", bad.text())
        assert code is grpc.StatusCode.INVALID_ARGUMENT, words


def test_a_migration_between_clusters_is_left_to_kubevirt(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    vmi = Vmi(source.name, target.name)
    target.pod(vmi.pods[1])
    other = vmi.text(sourceState={"virtualMachineInstanceUID": "another"})
    code, words = refused(target, "PreMigrationTarget", other)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and "between clusters" in words
    same = vmi.text(sourceState={"virtualMachineInstanceUID": vmi.uid}, targetState=None)
    assert target.call("PreMigrationTarget", same) == b""


def test_a_pod_that_is_not_there_is_told_with_where_it_was_looked_for(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    code, words = refused(target, "PreMigrationTarget", Vmi(source.name, target.name).text())
    assert code is grpc.StatusCode.FAILED_PRECONDITION and str(target.root / "pods") in words


@needs_root
def test_virt_handlers_socket_stays_where_no_receiver_awaits_the_migration(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    vmi, other = (Vmi(source.name, target.name) for _ in range(2))
    for one in (vmi, other):
        target.pod(one.pods[1])
    target.call("PreMigrationTarget", other.text())
    place = source.pod(vmi.pods[0]) / vmi.stream
    with kubevirt.handlers_socket(place) as handlers:
        code, words = refused(source, "PreMigrationSource", vmi.text())
        assert code is grpc.StatusCode.UNAVAILABLE and "awaits migration" in words
        assert connects(place, handlers)
        nobody = vmi.text(targetNode=kubevirt.fresh_address())
        code, words = refused(source, "PreMigrationSource", nobody)
        assert code is grpc.StatusCode.UNAVAILABLE and "do not answer" in words
        assert connects(place, handlers)
        target.call("PreMigrationTarget", vmi.text())
        assert source.call("PreMigrationSource", vmi.text()) == b""
        assert not connects(place, handlers)
    assert f"sending to tcp:{target.name}:{listening_at(target, vmi)}" in source.said()


@needs_root
def test_who_has_no_certificate_of_the_nodes_authority_is_told_of_no_receiver(
    tmp_path: Path,
) -> None:
    ours, others = (certificates.make(tmp_path / name) for name in ("pki", "others"))

    def node(name: str, tls: Path) -> AbstractContextManager[Node]:
        words = ("--tls-dir", str(tls), "--tls-name", certificates.RECEIVER)
        return kubevirt.node(kubevirt.fresh_address(), tmp_path / name, *words)

    with node("a", ours) as source, node("b", ours) as target, node("c", others) as stranger:
        for caller in (source, stranger):
            vmi = Vmi(caller.name, target.name)
            target.pod(vmi.pods[1])
            target.call("PreMigrationTarget", vmi.text())
            place = caller.pod(vmi.pods[0]) / vmi.stream
            with kubevirt.handlers_socket(place) as handlers:
                if caller is source:
                    assert caller.call("PreMigrationSource", vmi.text()) == b""
                    continue
                code, words = refused(caller, "PreMigrationSource", vmi.text())
                assert code is grpc.StatusCode.UNAVAILABLE and "do not answer" in words
                assert connects(place, handlers)
        context = ssl.create_default_context(cafile=str(ours / "ca-cert.pem"))
        with socket.create_connection((target.name, 24500)) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=certificates.RECEIVER) as tls:
                    tls.sendall(f"{vmi.migration}\n".encode())
                    answer = tls.recv(16)
            except (ssl.SSLError, ConnectionError) as refusal:
                assert not isinstance(refusal, ssl.SSLCertVerificationError)
                answer = b""  # reset, since it has shown no certificate
        assert answer == b""


@needs_root
def test_a_hook_that_is_called_again_takes_a_socket_that_virt_handler_has_made_anew(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    vmi = Vmi(source.name, target.name)
    target.pod(vmi.pods[1])
    target.call("PreMigrationTarget", vmi.text())
    place = source.pod(vmi.pods[0]) / vmi.stream
    for _ in range(2):
        place.unlink(missing_ok=True)
        with kubevirt.handlers_socket(place) as handlers:
            source.call("PreMigrationSource", vmi.text())
            assert not connects(place, handlers)
    source.call("PreMigrationSource", vmi.text())
    assert source.said().count("waiting for QEMU") == 2


@needs_root
def test_no_symlink_of_the_launchers_is_followed(nodes: tuple[Node, Node]) -> None:
    source, target = nodes
    vmi = Vmi(source.name, target.name)
    target.pod(vmi.pods[1])
    target.call("PreMigrationTarget", vmi.text())
    others = source.root / "of-another-pod" / vmi.stream.name
    with kubevirt.handlers_socket(others) as handlers:
        (source.pod(vmi.pods[0]) / vmi.stream.parent).symlink_to(others.parent)
        refused(source, "PreMigrationSource", vmi.text())
        assert connects(others, handlers)
        assert [path.name for path in others.parent.iterdir()] == [others.name]


@needs_root
def test_what_the_launcher_puts_in_the_way_of_the_senders_socket_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PACKAGING)
    module = importlib.import_module("place")
    victim, within = tmp_path / "victim", Path("migrationproxy/source.sock")
    victim.write_text("of another pod")
    before = victim.stat()
    with kubevirt.handlers_socket(tmp_path / within), socket.socket(socket.AF_UNIX) as own:
        place = module.Place(tmp_path, within)
        own.bind(f"{place.own}/{place.OWN}")
        own.listen()
        own.setblocking(False)
        (nest,) = (tmp_path / within.parent).glob(".pageshare-*")
        nest.rename(nest.with_name("aside"))
        nest.mkdir()
        (nest / place.OWN).symlink_to(victim)
        place.take()
        assert place.is_ours and connects(tmp_path / within, own)
        assert (tmp_path / within).stat().st_uid == kubevirt.LAUNCHER_UID
    after = victim.stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
    place.leave()
    assert not (tmp_path / within).exists() and not place.is_ours


def test_receivers_listen_at_an_address_of_ipv6(tmp_path: Path) -> None:
    for name, listen in (("a", "::1"), ("b", "[::1]")):
        words = ("--insecure", "--listen", listen)
        with kubevirt.node(kubevirt.fresh_address(), tmp_path / name, *words) as target:
            vmi = Vmi("a", target.name)
            target.pod(vmi.pods[1])
            assert target.call("PreMigrationTarget", vmi.text()) == b""
            socket.create_connection(("::1", listening_at(target, vmi))).close()


def test_each_migration_has_a_receiver_of_its_own_and_a_vm_but_one(
    nodes: tuple[Node, Node],
) -> None:
    source, target = nodes
    vmi, other = (Vmi(source.name, target.name) for _ in range(2))
    for one in (vmi, other):
        target.pod(one.pods[1])
        for _ in range(3):
            assert target.call("PreMigrationTarget", one.text()) == b""
    first, second = (listening_at(target, one) for one in (vmi, other))
    assert first != second
    again = Vmi(source.name, target.name, uid=vmi.uid, pods=vmi.pods)
    target.call("PreMigrationTarget", again.text())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((target.name, first))
    third = listening_at(target, again)
    assert third not in (first, second)
    for port in (second, third):
        socket.create_connection((target.name, port)).close()


def test_a_receiver_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    scopes = tmp_path / "scopes"
    scopes.mkdir()
    (scopes / "tenant.json").write_text("{}")
    words = ("--insecure", "--scopes", str(scopes))
    with kubevirt.node(kubevirt.fresh_address(), tmp_path / "b", *words) as target:
        vmi = Vmi("a", target.name)
        target.pod(vmi.pods[1])
        code, words_ = refused(target, "PreMigrationTarget", vmi.text())
        assert code is grpc.StatusCode.UNAVAILABLE and "tenant.json" in words_


def test_a_server_that_ends_leaves_no_socket_and_no_proxy(tmp_path: Path) -> None:
    with kubevirt.node(kubevirt.fresh_address(), tmp_path / "b", "--insecure") as target:
        vmi = Vmi("a", target.name)
        target.pod(vmi.pods[1])
        target.call("PreMigrationTarget", vmi.text())
        port = listening_at(target, vmi)
        os.kill(target.running.pid, 15)
        for _ in pauses(60):
            if not target.running.alive():
                break
        assert not (target.root / "hooks.sock").exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((target.name, port))


def test_a_proxy_ends_once_the_pod_that_it_is_for_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PACKAGING)
    move, proxy = (importlib.import_module(name) for name in ("move", "proxy"))
    monkeypatch.setattr(proxy, "_LOOK_S", 0.05)
    shared = tmp_path / "public"
    shared.mkdir()
    going = move.Move.read(Vmi("a", "b").text(), "a")

    async def live() -> None:
        one = await proxy.Proxy.start(going, shared, 0, ["sleep", "1000"])
        assert one.runs
        shared.rmdir()
        await asyncio.wait_for(one._watch, 60)
        assert not one.runs

    asyncio.run(live())


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """The objects that are installed, by kind."""
    found = YAML(typ="safe", pure=True).load_all((PACKAGING / "pageshare.yaml").read_text())
    return {one["kind"]: one for one in found}


@pytest.mark.parametrize("release", ["1.33", "1.36"])
def test_kubernetes_knows_every_field_of_the_manifest(
    manifests: dict[str, Any], release: str
) -> None:
    own = {kind: one for kind, one in manifests.items() if kind != "Plugin"}
    assert set(own) == {"Namespace", "ServiceAccount", "DaemonSet"}
    for one in own.values():
        kubernetes_validate.validate(one, release, strict=True)
    wrong = {**own["DaemonSet"], "spec": {**own["DaemonSet"]["spec"], "templat": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, release, strict=True)


def test_the_plugin_names_the_hooks_and_the_socket_that_the_daemon_set_serves(
    manifests: dict[str, Any], tmp_path: Path
) -> None:
    (hook,) = manifests["Plugin"]["spec"]["nodeHooks"]
    pod = manifests["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert f"--socket={hook['socket']}" in container["args"]
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounted = {one["mountPath"]: paths[one["name"]] for one in container["volumeMounts"]}
    # virt-handler looks under the same path, at its node's.
    assert mounted[str(Path(hook["socket"]).parent)] == str(Path(hook["socket"]).parent)
    assert mounted["/pods"] == "/var/lib/kubelet/pods"
    with kubevirt.node(kubevirt.fresh_address(), tmp_path / "b", "--insecure") as target:
        for point in hook["permittedHooks"]:
            code, words = refused(target, point, b"{}")
            assert code is grpc.StatusCode.INVALID_ARGUMENT, words


def test_the_server_takes_what_the_daemon_set_says(manifests: dict[str, Any]) -> None:
    (container,) = manifests["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    argv = [sys.executable, str(kubevirt.SERVER), *container["args"], "--help"]
    found = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    known = set(re.findall(r"--[a-z-]+", found.stdout))
    assert {word.partition("=")[0] for word in container["args"]} <= known


def test_the_image_has_every_file_of_the_server() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    copied = re.search(r"^COPY (.*\.py) /", text, re.M)
    assert copied is not None
    assert set(copied[1].split()) == {path.name for path in PACKAGING.glob("*.py")}
