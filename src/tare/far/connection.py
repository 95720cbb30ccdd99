"""A synchronous face of asyncssh, whose event loop runs in a thread of its own.

Keys alone let us in: the user's agent, or keys without a passphrase. There is no password to ask
for or to keep. The far machine must be in known_hosts. OpenSSH's own configuration file is read.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import asyncssh

from tare import netns
from tare.destination import Destination
from tare.errors import TrialError

_CONNECT_TIMEOUT_S = 15.0
_SILENCE_S = 15
"""Between questions whether the far side is there; after two without an answer it is lost."""

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """How a program on the far machine ended, and what it wrote."""

    code: int
    """Its exit code; minus one if a signal killed it."""
    stdout: bytes
    stderr: str


class Connection(AbstractContextManager["Connection"]):
    """One connection. Entering connects; leaving hangs up."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self._pumps: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tare-ssh", daemon=True)

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            TrialError: the machine is not there, is not the known one, does not let us in, or is
                reached through another.
        """
        self._thread.start()
        try:
            self._ssh = self._wait(self._connect(), 2 * _CONNECT_TIMEOUT_S, "connecting to")
        except BaseException:
            self._end_loop()
            raise
        ends = [self._ssh.get_extra_info(name) for name in ("peername", "sockname")]
        if not all(end and end[0] for end in ends):
            self.__exit__()
            raise TrialError(
                f"{self.destination} is reached through another machine or program (ProxyJump or"
                " ProxyCommand), which nothing but ssh passes",
                "name it as it is reached directly, or run Tare on the machine in between",
            )
        self.address, self.own_address = (str(end[0]) for end in ends)
        return self

    def __exit__(self, *raised: object) -> None:
        async def close() -> None:
            self._ssh.abort()
            await self._ssh.wait_closed()

        with suppress(TrialError):
            self._wait(close(), 5, "hanging up on")
        self._end_loop()

    def run(
        self, argv: Sequence[str], timeout_s: float, stdin: bytes = b"", *, name: str | None = None
    ) -> Finished:
        """Run a program to its end. Whether its exit code is a failure is the caller's matter.

        Args:
            argv: what to run.
            timeout_s: after this it is killed; what it started goes with its folder.
            stdin: what it finds on its standard input.
            name: what to call it in messages, by default its own.

        Raises:
            TrialError: it took too long, or the connection is lost.
        """

        async def run() -> Finished:
            given: dict[str, Any] = {"input": stdin} if stdin else {"stdin": asyncssh.DEVNULL}
            # There, since a server that root logs in to passes no signals on. It lets few programs
            # run at once: MaxSessions of its sshd_config, ten by default.
            bounded = ("timeout", "-s", "KILL", str(math.ceil(timeout_s) + 1), *argv)
            done = await self._ssh.run(_line(bounded), encoding=None, check=False, **given)
            code = -1 if done.exit_status is None else done.exit_status
            return Finished(code, _bytes(done.stdout), _bytes(done.stderr).decode(errors="replace"))

        return self._wait(run(), timeout_s, f"running {name or argv[0]} on")

    def start(self, argv: Sequence[str], *, name: str | None = None) -> Far:
        """Start a program and return a line to it; `name` is what to call it in messages."""

        async def start() -> Any:
            return await self._ssh.create_process(_line(argv), encoding=None)

        doing = f"starting {name or argv[0]} on"
        return Far(self, self._wait(start(), _CONNECT_TIMEOUT_S, doing))

    def plug(self, argv: Sequence[str], line: socket.socket, *, name: str) -> None:
        """Start a program, and tie its standard input and output to a socket of ours.

        Args:
            argv: what to run.
            line: one end of a pair; a copy of it is kept, until either side closes.
            name: what to call the program in messages.
        """
        near = line.dup()
        near.setblocking(False)

        async def plug() -> None:
            process = await self._ssh.create_process(_line(argv), encoding=None)
            reader, writer = await asyncio.open_connection(sock=near)
            # Held on to, since the loop itself would let them be collected.
            self._pumps += [
                asyncio.create_task(_pump(reader, process.stdin)),
                asyncio.create_task(_pump(process.stdout, writer)),
            ]

        self._wait(plug(), _CONNECT_TIMEOUT_S, f"starting {name} on")

    async def _connect(self) -> Any:
        destination = self.destination
        options: dict[str, Any] = {
            "preferred_auth": "publickey",
            "password_auth": False,
            "kbdint_auth": False,
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "login_timeout": _CONNECT_TIMEOUT_S,
            "keepalive_interval": _SILENCE_S,
            "keepalive_count_max": 2,
            "request_pty": False,  # what goes over the line are bytes, whatever RequestTTY says
        }
        if destination.user is not None:
            options["username"] = destination.user
        if destination.port is not None:
            options["port"] = destination.port
        if destination.netns is not None:
            where = (destination.netns, destination.host, destination.port or 22)
            options["sock"] = await asyncio.to_thread(_socket_in, *where)
        return await asyncssh.connect(destination.host, family=socket.AF_INET, **options)

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float, doing: str) -> T:
        """Have the loop do a piece of work, and word what goes wrong."""

        async def bounded() -> T:
            return await asyncio.wait_for(work, timeout_s)

        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result()
        except BaseException as error:
            future.cancel()
            if isinstance(error, Exception) and not isinstance(error, TrialError):
                raise _worded(error, doing, self.destination, timeout_s) from error
            raise

    def _end_loop(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class Far:
    """A line to a program that runs on the far machine. `Connection.start` makes one."""

    def __init__(self, connection: Connection, process: Any) -> None:
        self._connection = connection
        self._process = process
        self._stderr = ""

    def runs(self) -> bool:
        """Whether it has not ended, as far as was heard here."""
        process = self._process
        return process.exit_status is None and not (process.exit_signal or process.is_closing())

    def stderr(self) -> str:
        """Return what it wrote to standard error so far; its standard output is let go."""

        async def collect(process: Any) -> bytes:
            return _bytes(process.collect_output()[1])

        found = self._do(collect, _CONNECT_TIMEOUT_S, "listening to")
        self._stderr += found.decode(errors="replace")
        return self._stderr

    def line(self, timeout_s: float) -> bytes:
        """Return the next line of its standard output; empty once there is none to come.

        Raises:
            TrialError: none came in time, or the connection is lost.
        """
        return _bytes(self._do(lambda p: p.stdout.readline(), timeout_s, "listening to"))

    def tell(self, data: bytes) -> None:
        """Write to its standard input; the connection's loop sends it on."""

        async def tell(process: Any) -> None:
            with suppress(BrokenPipeError, asyncssh.Error):  # it has ended: `line` tells how
                process.stdin.write(data)

        self._do(tell, _CONNECT_TIMEOUT_S, "writing to")

    def close_input(self) -> None:
        """Close its standard input."""

        async def close(process: Any) -> None:
            process.stdin.write_eof()

        self._do(close, _CONNECT_TIMEOUT_S, "writing to")

    def finished(self, timeout_s: float) -> Finished:
        """Wait for its end, and return what of its output was not read yet.

        Raises:
            TrialError: it did not end in time, or the connection is lost.
        """
        done = self._do(lambda p: p.wait(check=False), timeout_s, "waiting for the end on")
        if done.exit_status is None and done.exit_signal is None:
            raise TrialError(f"the connection to {self._connection.destination} is lost")
        code = -1 if done.exit_status is None else done.exit_status
        stderr = self._stderr + _bytes(done.stderr).decode(errors="replace")
        return Finished(code, _bytes(done.stdout), stderr)

    def _do(self, work: Callable[[Any], Coroutine[Any, Any, T]], timeout_s: float, doing: str) -> T:
        return self._connection._wait(work(self._process), timeout_s, doing)


def _line(argv: Sequence[str]) -> str:
    """Words for the login shell; fish reads a backslash in quotes, so it stands outside of them."""
    return shlex.join(argv).replace("\\", "'\\\\'")


async def _pump(source: Any, target: Any) -> None:
    """Pass on what comes until there is no more, and close behind it."""
    with suppress(OSError, asyncssh.Error):
        while chunk := await source.read(1 << 16):
            target.write(chunk)
            await target.drain()
    with suppress(OSError, asyncssh.Error):
        target.close()


def _socket_in(namespace: str, host: str, port: int) -> socket.socket:
    """Connect from within a network namespace, in a thread that enters it and then ends."""

    def connect() -> socket.socket:
        netns.enter(namespace)
        return socket.create_connection((host, port), _CONNECT_TIMEOUT_S)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="tare-netns") as executor:
        made = executor.submit(connect).result()
    made.setblocking(False)
    return made


def _worded(error: Exception, doing: str, destination: Destination, timeout_s: float) -> TrialError:
    """Say what went wrong, and what to do."""
    what = f"{doing} {destination}"
    # `ssh` has no words for a namespace; whoever uses one knows how to enter it.
    login = f"ssh {'' if destination.port is None else f'-p {destination.port} '}" + (
        f"{destination.user}@{destination.host}" if destination.user else destination.host
    )
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return TrialError(
            f"{what} failed: its host key is not the one in known_hosts, or not there ({error})",
            f"connect once with `{login}` and compare the key's fingerprint with the machine's",
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return TrialError(
            f"{what} failed: it lets none of our keys in ({error})",
            f"let `{login}` succeed without a password: ssh-copy-id, or ssh-add into your agent",
        )
    if isinstance(error, ValueError):  # of the user's configuration, or of a key
        return TrialError(f"{what} failed: {error}")
    if isinstance(error, TimeoutError | asyncssh.TimeoutError):
        return TrialError(f"{what} took over {timeout_s:g} s: it does not answer")
    if isinstance(error, OSError) and not isinstance(error, ConnectionResetError | BrokenPipeError):
        # asyncio puts words of its own where the system's would be.
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror or error
        of = f" ({error.filename})" if error.filename else ""
        return TrialError(f"{what} failed: {why}{of}", f"see whether `{login}` gets there")
    return TrialError(f"{what} failed: the connection is lost ({error or type(error).__name__})")


def _bytes(found: object) -> bytes:
    assert isinstance(found, bytes)  # encoding is None
    return found
