"""KubeVirt's node hooks, answered with pageshare: one such server a node.

virt-handler calls it over gRPC on a Unix socket before and after a live migration (VEP 190, service
`kubevirt.hooks.plugins.v1alpha1.NodeHookService`). Before a VM arrives, a `pageshare receive` is
started for that migration alone; before one leaves, a `pageshare send` takes the place of the
socket that QEMU will connect to. docs/guides/kubevirt.md says how it is installed.

The sender learns from the other node's server which receiver is its migration's, in TLS: a port
alone would not say, and one guest must never reach the QEMU that awaits another.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import grpc
import grpc.aio
from move import PACKAGE, Move, RefusedError, request_type
from place import Place
from proxy import Proxy, say

SERVICE, METHOD = f"{PACKAGE}.NodeHookService", "ExecuteNodeHook"
_RECEIVERS = 255
_ANSWER_S = 10.0
_ARRIVED_S = 60.0
"""A receiver whose migration is over ends by itself; one that nobody used is ended then."""


class Node:
    """What the hooks of one node share.

    Args:
        asked: the command line.
    """

    def __init__(self, asked: argparse.Namespace) -> None:
        self._asked = asked
        self._proxies: dict[tuple[str, str], Proxy] = {}
        """(Role, VMI) -> the proxy of its newest migration."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # Each in its turn: the port of a receiver that has ended is the last to be taken again.
        self._ports = itertools.cycle(range(asked.port + 1, asked.port + 1 + _RECEIVERS))
        self._tasks: set[asyncio.Task[None]] = set()

    async def hook(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        """Answer virt-handler."""
        point = request.hookPoint
        points = {
            "PreMigrationTarget": self._receive,
            "PreMigrationSource": self._send,
            "PostMigrationTarget": self._arrived,
        }
        try:
            if point not in points:
                words = f"pageshare has nothing to do at {point}: permit {', '.join(points)} alone"
                raise RefusedError(grpc.StatusCode.UNIMPLEMENTED, words)
            move = Move.read(request.vmi, self._asked.node)
            # A hook whose caller no longer waits goes on: the next call finds it done.
            await asyncio.shield(self._in_turn(move, points[point]))
        except (RefusedError, OSError) as error:
            code = getattr(error, "code", grpc.StatusCode.UNAVAILABLE)
            say(f"{point}: {error}")
            await context.abort(code, str(error))
        return b""

    async def _in_turn(self, move: Move, work: Callable[[Move], Awaitable[None]]) -> None:
        """One hook after another of each VM; proxies that have ended are forgotten."""
        async with self._locks.setdefault(move.vmi, asyncio.Lock()):
            self._proxies = {key: proxy for key, proxy in self._proxies.items() if proxy.runs}
            await work(move)

    async def _receive(self, move: Move) -> None:
        if await self._there("receive", move):
            return
        directory = self._directory(move, Path())
        port = self._free_port()
        argv = ["receive", "--once", "--listen", f"tcp:{_bracketed(self._asked.listen)}:{port}"]
        argv += ["--qemu", f"unix:{move.stream}", *self._shared(move, of_receiver=True)]
        if not self._asked.insecure:
            argv += ["--peer", self._asked.peer]
        await self._start(move, directory, port, argv)

    async def _send(self, move: Move) -> None:
        if proxy := await self._there("send", move):
            if proxy.place and proxy.place.is_ours:
                return
            await proxy.end()  # virt-handler has made its own socket anew
        directory = self._directory(move, move.stream)
        port = await self._ask(move)
        argv = ["send", "--once", "--listen", f"unix:{Place.OWN}"]
        argv += ["--to", f"tcp:{_bracketed(move.target)}:{port}"]
        argv += self._shared(move, of_receiver=False)
        if not self._asked.insecure:
            argv += ["--tls-name", self._asked.tls_name]
        place = Place(directory, move.stream)
        await self._start(move, directory, port, argv, place)
        place.take()

    async def _arrived(self, move: Move) -> None:
        """End a receiver that nobody has used; one that has ends by itself."""
        proxy = self._proxies.get(("receive", move.vmi))
        if proxy is not None and proxy.move.migration == move.migration:
            task = asyncio.create_task(proxy.end(after_s=_ARRIVED_S))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _there(self, role: str, move: Move) -> Proxy | None:
        """The proxy of this migration, where there is one; one of an earlier migration is ended."""
        proxy = self._proxies.get((role, move.vmi))
        if proxy is None:
            return None
        if proxy.move.migration == move.migration:
            await proxy.listening()
            return proxy
        await proxy.end()
        return None

    async def _start(
        self,
        move: Move,
        directory: Path,
        port: int,
        argv: Sequence[str],
        place: Place | None = None,
    ) -> None:
        proxy = await Proxy.start(move, directory, port, [self._asked.pageshare, *argv], place)
        self._proxies[argv[0], move.vmi] = proxy
        await proxy.listening()

    def _directory(self, move: Move, within: Path) -> Path:
        """The directory that the VM's launcher on this node shares, in which a file is."""
        shared = "volumes/kubernetes.io~empty-dir/public"
        every = (Path(self._asked.pods, pod, shared) for pod in move.pods)
        found = [directory for directory in every if (directory / within).exists()]
        if len(found) != 1:
            words = (
                f"{len(found)} of the pods {', '.join(move.pods) or 'none'} of VMI {move.vmi} at"
                f" {self._asked.node} have {within} below {shared}, and it must be one: is the"
                f" kubelet's directory of pods mounted at {self._asked.pods}?"
            )
            raise RefusedError(grpc.StatusCode.FAILED_PRECONDITION, words)
        return found[0]

    def _shared(self, move: Move, *, of_receiver: bool) -> list[str]:
        """TLS, and the scope of the VM's namespace where it has one."""
        words = ["--insecure"] if self._asked.insecure else ["--tls-dir", str(self._asked.tls_dir)]
        scope = self._asked.scopes / f"{move.namespace}.json"
        if not scope.exists():
            return words
        words += ["--scope", str(scope)]
        # KubeVirt names a QEMU by namespace, underscore, VM; no namespace has an underscore.
        return [*words, "--source", f"qemu:name={move.namespace}_*"] if of_receiver else words

    def _free_port(self) -> int:
        for port in itertools.islice(self._ports, _RECEIVERS):
            try:
                family = socket.AF_INET6 if ":" in self._asked.listen else socket.AF_INET
                socket.create_server((self._asked.listen, port), family=family).close()
            except OSError:
                continue  # another's
            return port
        words = f"no port from {self._asked.port + 1} on is free for another receiver"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, words)

    async def tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a source's server: the port of a migration's receiver, or nothing."""
        try:
            asked = await asyncio.wait_for(reader.readline(), _ANSWER_S)
            name = asked.decode(errors="replace").strip()
            ports = (
                proxy.port
                for (role, _), proxy in self._proxies.items()
                if role == "receive" and proxy.move.migration == name and proxy.listens
            )
            writer.write(f"{next(ports, '')}\n".encode())
            await writer.drain()
        except (OSError, ValueError, TimeoutError):
            pass  # who does not ask in time, or in a line, is told nothing
        finally:
            writer.close()

    async def _ask(self, move: Move) -> int:
        """The port at which the target's receiver awaits this migration."""
        where = f"{move.target}:{self._asked.port}"
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_connection(
                    move.target, self._asked.port, ssl=self.tls(ssl.Purpose.SERVER_AUTH),
                    server_hostname=None if self._asked.insecure else self._asked.tls_name,
                )  # fmt: skip
                writer.write(f"{move.migration}\n".encode())
                answer = (await reader.readline()).decode(errors="replace").strip()
                writer.close()
        except (OSError, TimeoutError) as error:
            words = (
                f"the node hooks at {where} do not answer ({error!r}): KubeVirt's own way is left"
            )
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, words) from error
        if not answer.isdecimal():
            words = (
                f"nothing at {where} awaits migration {move.migration}: KubeVirt's own way is left"
            )
            raise RefusedError(grpc.StatusCode.UNAVAILABLE, words)
        return int(answer)

    def tls(self, purpose: ssl.Purpose) -> ssl.SSLContext | None:
        """The certificates that pageshare itself uses; None where there are to be none."""
        if self._asked.insecure:
            return None
        home, server = self._asked.tls_dir, purpose is ssl.Purpose.CLIENT_AUTH
        context = ssl.create_default_context(purpose, cafile=str(home / "ca-cert.pem"))
        side = "server" if server else "client"
        context.load_cert_chain(home / f"{side}-cert.pem", home / f"{side}-key.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        # Python 3.13 asks for extensions that neither pageshare nor QEMU does.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        return context

    async def end(self) -> None:
        """End every proxy."""
        await asyncio.gather(*(proxy.end() for proxy in self._proxies.values()), *self._tasks)


def _bracketed(host: str) -> str:
    """A host in front of a port."""
    return f"[{host}]" if ":" in host else host


async def serve(asked: argparse.Namespace) -> None:
    """Answer hooks until a signal to end."""
    node, ended = Node(asked), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    handler = grpc.unary_unary_rpc_method_handler(
        node.hook,
        request_deserializer=request_type().FromString,
        response_serializer=bytes,
    )
    server = grpc.aio.server()
    generic = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
    server.add_generic_rpc_handlers((generic,))
    teller = await asyncio.start_server(
        node.tell, asked.listen, asked.port, ssl=node.tls(ssl.Purpose.CLIENT_AUTH)
    )
    # To virt-handler a socket that is there is a plugin that is ready: it comes last.
    asked.socket.unlink(missing_ok=True)
    server.add_insecure_port(f"unix:{asked.socket}")
    await server.start()
    say(f"waiting for hooks at {asked.socket}")
    await ended.wait()
    asked.socket.unlink(missing_ok=True)
    teller.close()
    await server.stop(grace=None)
    await node.end()


def arguments(words: Iterable[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--socket", type=Path, required=True, help="where virt-handler calls")
    add("--node", required=True, help="this node's name, as KubeVirt has it")
    add("--pods", type=Path, default=Path("/pods"), help="the kubelet's directory of pods")
    add(
        "--listen", type=lambda text: text.strip("[]"), default="0.0.0.0",  # noqa: S104 - TLS guards
        help="address for other nodes",
    )  # fmt: skip
    add(
        "--port", type=int, default=24500, help=f"for other nodes; receivers take {_RECEIVERS} more"
    )
    add("--pageshare", default="pageshare", help="the program")
    add("--scopes", type=Path, default=Path("/etc/pageshare/scopes"), help="NAMESPACE.json each")
    add("--tls-dir", type=Path, default=Path("/etc/pki/qemu"), help="certificates, as pageshare's")
    add("--tls-name", default="pageshare", help="the name that each server's certificate bears")
    add("--peer", default="pageshare", help="the name that each client's certificate bears")
    add("--insecure", action="store_true", help="go without TLS, on a network that you trust")
    return parser.parse_args(None if words is None else list(words))


if __name__ == "__main__":
    asyncio.run(serve(arguments()))
