"""What disturbs a measurement on purpose: a kind and a dose, on the host or inside.

`none`, or WHERE KIND LEVEL:

    host cpu 50 %              every processor is busy half of the time (stress-ng)
    inside memory 2            two workers stream through memory (stress-ng)
    host network 100 Mbit/s    datagrams at this rate from client to server (iperf3)
    inside disk 1              one worker reads and writes 4 KiB at random, past the cache (fio)

`inside` runs it in the environment that is measured: network then means the way to its address, and
processors are those that the environment may use. It never runs under SCHED_FIFO. It is started
before warm-up, seen to load before the measurement begins, and seen to have loaded to its end.
"""

from __future__ import annotations

import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tare import accounting, packages, process, units
from tare.command import Command
from tare.environments import (
    Inside,
    ServerProcess,
    Site,
    is_far,
    is_guest_of_qemu,
    scratch_disk,
)
from tare.environments.on_host import Server
from tare.errors import TrialError, UsageError
from tare.host import Host
from tare.packages import PROGRAMS
from tare.pauses import pauses
from tare.stress_ng import stress_ng_argv

Kind = Literal["cpu", "memory", "network", "disk"]
Where = Literal["host", "inside"]

_ALLOWED = (
    "'none', or where, what and how much: 'host cpu 50 %', 'inside memory 2',"
    " 'host network 100 Mbit/s', 'inside disk 1'"
)
_MOST_WORKERS = 256
_LIMIT_S = 3600
"""No tool runs longer than this, even if everything that should end it is dead."""
_START_TIMEOUT_S = 20.0
_SEEN_NS = 50_000_000
"""CPU time after which a tool is taken to be at work: five ticks of a guest's clock."""
_SEEN_BYTES = 50_000
_SEEN_READ = 1 << 20
"""More than a tool reads of itself and its libraries."""
_GUEST_TICKS_PER_S = 100
_LOOK_TIMEOUT_S = 20.0
_NEXT_TURN_S = 2.0
_REFUSED_WITHIN_S = 1.0
_PORT = 5201
_DATAGRAM_BYTES = 1400
_FILE_BYTES = 64 << 20
_FILE_TIMEOUT_S = 10.0
"""To write one, before any is read."""
_LOGGED = ("--log-file", "/proc/self/fd/2")
_DISKS = ("cat", "/proc/diskstats")
_STARTS_WORKERS = "dispatching hogs"
"""What stress-ng then says there, after up to a second of an emulated processor."""
_STREAM_CACHE_SIZE = "8M"
"""stress-ng streams through four times this, three times over: about 100 MB a worker."""


@dataclass(frozen=True)
class Interference:
    """One disturbance. `Interference()` is none."""

    kind: Kind | None = None
    level: int = 0
    """By kind: percent of each processor; workers; bits a second; workers."""
    where: Where = "host"

    @staticmethod
    def parse(written: object) -> Interference:
        """Read what `str` writes, and what a person would write.

        Raises:
            UsageError: it is none of the forms; the message names them.
        """
        text = " ".join(str(written).split())
        if text == "none":
            return Interference()
        where, _, rest = text.partition(" ")
        kind, _, level = rest.partition(" ")
        for place in get_args(Where):
            for known in get_args(Kind):
                if (where, kind) == (place, known):
                    return Interference(known, _level(known, level, text), place)
        raise UsageError(f"cannot read the interference {text!r}: write {_ALLOWED}")

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        if self.kind is None:
            return "none"
        level = str(self.level)
        if self.kind == "cpu":
            level = f"{self.level} %"
        elif self.kind == "network":
            level = _exact_rate(self.level)
        return f"{self.where} {self.kind} {level}"

    def lacking(self, environment: str, *, tree: bool = False) -> str | None:
        """Say what is missing for it here, and what to do.

        Args:
            environment: the canonical level.
            tree: whether what runs inside sees a user's files, and nothing of the run's.
        """
        if self.kind == "disk" and (why := self._no_disk(environment, tree=tree)):
            return why
        tools = {"cpu": "stress-ng", "memory": "stress-ng", "network": "iperf3", "disk": "fio"}
        if self.kind is None:
            return None
        return packages.lacking({tools[self.kind]: PROGRAMS["interference"][tools[self.kind]]})

    def disk_bytes(self, environment: str) -> int:
        """How large its files are."""
        files = self.kind == "disk" and not self._on_device(environment)
        return self.level * _FILE_BYTES if files else 0

    def _on_device(self, environment: str) -> bool:
        return self.where == "inside" and is_guest_of_qemu(environment)

    def _no_disk(self, environment: str, *, tree: bool) -> str | None:
        folder = Path(tempfile.gettempdir())
        if self.where == "host":
            folder = scratch_disk.folder_for(folder)
        elif self._on_device(environment) and not tree:
            return None
        elif tree or environment in ("gvisor", "uml") or is_far(environment):
            return f"what runs inside has no disk for '{self}'. Take `host disk {self.level}`"
        if scratch_disk.is_in_memory(folder):
            return (
                f"{folder} is in memory, where '{self}' would load no disk. Set TMPDIR to a folder"
                " on a disk"
            )
        return None

    @contextmanager
    def running(self, site: Site, inside: Inside) -> Iterator[None]:
        """Disturb while the context is open.

        Raises:
            TrialError: a tool did not start to load, or did not load to the end.
        """
        if self.kind is None:
            yield
        elif self.kind == "network":
            with self._network(site, inside):
                yield
        else:
            with self._tool(site, inside):
                yield

    @contextmanager
    def _tool(self, site: Site, inside: Inside) -> Iterator[None]:
        here = self.where == "host"
        with ExitStack() as stack:
            argv = self._argv(site, inside, stack)
            starting = _on_host(Command(argv), site) if here else inside.start(argv)
            tool = stack.enter_context(starting)

            def consumed_ns() -> int:
                account = tool.account()
                if account.far or any(thread.role == "guest" for thread in account.threads):
                    # Such an account is of the first process alone, and the workers are others.
                    return _busy_ns(inside.run(("cat", "/proc/stat"), _LOOK_TIMEOUT_S))
                # gVisor tells only what runs programs for it.
                return sum(t.cpu_ns for t in account.threads if t.role in ("server", "vcpu"))

            def begun() -> bool:
                return _STARTS_WORKERS in tool.stderr()

            device = inside.facts.null_disk if self.where == "inside" else None

            def read_bytes() -> int:
                if device is not None:
                    return _sectors_read(inside.run(_DISKS, _LOOK_TIMEOUT_S), device) * 512
                return sum(_read_by(thread.tid) for thread in tool.account().threads)

            with (
                self._loading(tool, read_bytes, _SEEN_READ)
                if self.kind == "disk"
                else self._loading(tool, consumed_ns, _SEEN_NS, begun)
            ):
                yield

    @contextmanager
    def _network(self, site: Site, inside: Inside) -> Iterator[None]:
        hosts = site.hosts
        here = self.where == "host"
        address = hosts.server_address if here else inside.address
        serve = ("iperf3", "--server", "--port", str(_PORT))
        ask = (
            "iperf3", "--client", address, "--port", str(_PORT), "--udp",
            "--bitrate", str(self.level), "--length", str(_DATAGRAM_BYTES),
            "--time", str(_LIMIT_S),
        )  # fmt: skip

        # Towards another machine it has the name that this one gave it.
        find = ("ip", "-oneline", "-4", "address", "show", "to", hosts.client_address)
        found = process.run(Command(find, netns=hosts.client_ns), _LOOK_TIMEOUT_S).stdout
        interface = found.split()[1]

        server = _on_host(Command(serve, netns=hosts.server_ns), site) if here else None
        with (
            server or inside.start(serve),
            _connected(Command(ask, netns=hosts.client_ns)) as client,
        ):

            def sent_bytes() -> int:
                look = Command(("cat", "/proc/net/dev"), netns=hosts.client_ns)
                counters = process.run(look, _LOOK_TIMEOUT_S).stdout
                return accounting.interface_bytes(counters, interface)[0] or 0

            with self._loading(client, sent_bytes, _SEEN_BYTES):
                yield

    @contextmanager
    def _loading(
        self,
        loader: ServerProcess | process.Running,
        count: Callable[[], int],
        enough: int,
        begun: Callable[[], bool] = lambda: True,
    ) -> Iterator[None]:
        """Wait until a count has grown enough, let the caller measure, and see that it grew on.

        What it grows by before the loader has begun is not counted.
        """

        def counted() -> int:
            try:
                return count()
            finally:
                if not loader.alive():
                    loader.stop()  # says why, if it failed
                    raise TrialError("it ended")

        files = self.level if self.kind == "disk" else 0
        patience_s = _START_TIMEOUT_S + files * _FILE_TIMEOUT_S
        try:
            at_work, before = False, 0
            for _ in pauses(patience_s):
                if not at_work:
                    at_work, before = begun(), counted()
                elif counted() >= before + enough:
                    break
            else:
                raise TrialError(f"it did not load within {patience_s:g} s")
        except TrialError as error:
            raise TrialError(f"the interference '{self}' could not start: {error}") from error
        yield
        try:
            # What was measured counts too, and is over. A short trial may end between two turns of
            # a light load, or while its tool gives up.
            now = counted()
            went_on = any(counted() > now for _ in pauses(_NEXT_TURN_S))
        except TrialError as error:
            raise TrialError(
                f"the interference '{self}' ended before the trial: {error}"
            ) from error
        if not went_on:
            raise TrialError(f"the interference '{self}' stood still while the trial ran")

    def _argv(self, site: Site, inside: Inside, stack: ExitStack) -> tuple[str, ...]:
        """Say what loads; what it works on goes with the stack."""
        if self.kind == "cpu":
            look = ("cat", "/proc/self/status", "/proc/cpuinfo")
            if self.where == "inside":
                told = inside.run(look, _LOOK_TIMEOUT_S)
            else:
                told = process.run(Command(look), _LOOK_TIMEOUT_S).stdout
            load = ("--cpu-load", str(self.level), "--cpu-method", "int64")
            return stress_ng_argv("cpu", _processors(told), _LIMIT_S, *load, *_LOGGED)
        if self.kind == "memory":
            size = ("--stream-l3-size", _STREAM_CACHE_SIZE)
            return stress_ng_argv("stream", self.level, _LIMIT_S, *size, *_LOGGED)
        return (
            "fio", "--name", "tare-interference", *self._disk(site, inside, stack),
            "--rw", "randrw", "--bs", "4k", "--direct", "1", "--ioengine", "psync", "--thread",
            "--numjobs", str(self.level), "--time_based", "--runtime", str(_LIMIT_S),
        )  # fmt: skip

    def _disk(self, site: Site, inside: Inside, stack: ExitStack) -> tuple[str, ...]:
        """Name what fio works on: a guest's disk, or else files of the run."""
        device = inside.facts.null_disk
        if self.where == "inside" and device is not None:
            return ("--filename", device, "--size", str(_FILE_BYTES))
        # Inside, no other folder is there.
        above = scratch_disk.folder_for(site.scratch) if self.where == "host" else site.scratch
        folder = above / f"tare-interference-{secrets.token_hex(4)}"
        stack.enter_context(site.leftovers.owing("directory", str(folder)))
        folder.mkdir(mode=0o700)
        return ("--directory", str(folder), "--size", str(_FILE_BYTES))


def _exact_rate(bits_s: int) -> str:
    for factor, unit in ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if bits_s % factor == 0:
            return f"{bits_s // factor} {unit}"
    return f"{bits_s} bit/s"


def _level(kind: Kind, level: str, text: str) -> int:
    if kind == "network":
        found = units.bit_rate(level)
    elif kind == "cpu":
        number = re.fullmatch(r"([0-9]{1,3}) ?%", level)
        found = int(number[1]) if number else 0
        if found > 100:
            found = 0
    else:
        found = int(level) if re.fullmatch(r"[0-9]{1,3}", level) else 0
        if found > _MOST_WORKERS:
            found = 0
    if found == 0:
        raise UsageError(
            f"cannot read how much in the interference {text!r}: write {_ALLOWED}; cpu takes 1 % to"
            f" 100 %, memory and disk 1 to {_MOST_WORKERS} workers"
        )
    return found


def _on_host(command: Command, site: Site) -> Server:
    host = Host(site)
    running = host.start(command, name="interference")
    return Server(host, running, running.pid)


@contextmanager
def _connected(command: Command) -> Iterator[process.Running]:
    """Start iperf3's client; again while its server, which never says when, does not listen yet."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        with process.start(command) as client:
            if not client.ended_within(_REFUSED_WITHIN_S):
                yield client
                return
            if time.monotonic() > deadline:
                client.finish(0)
                raise TrialError(f"the interference found no server: {command}")


def _processors(told: str) -> int:
    """Count the processors that a process may use, by its /proc/PID/status (proc(5)).

    gVisor's tells none: behind it stands /proc/cpuinfo, with those that a sandbox has.
    """
    if mask := re.search(r"^Cpus_allowed:\s*([0-9a-f,]+)$", told, re.MULTILINE):
        return int(mask[1].replace(",", ""), 16).bit_count()
    return max(1, len(re.findall(r"^processor\b", told, re.MULTILINE)))


def _read_by(tid: int) -> int:
    """Bytes that a thread has read (proc(5)): fio next to none while it writes its files.

    Not those of devices: a file system in user space tells none.
    """
    try:
        said = Path(f"/proc/{tid}/io").read_text(encoding="ascii")
    except OSError:  # it has ended
        return 0
    found = re.search(r"^rchar: (\d+)$", said, re.MULTILINE)
    return int(found[1]) if found else 0


def _sectors_read(diskstats: str, device: str) -> int:
    """Of /proc/diskstats (proc(5)), the sixth word of a device's line."""
    name = device.rpartition("/")[2]
    return sum(
        int(words[5]) for line in diskstats.split("\n") if name in (words := line.split())[2:3]
    )


def _busy_ns(stat: str) -> int:
    """Time that processors spent on programs: user, nice and system of /proc/stat (proc(5))."""
    words = stat.partition("\n")[0].split()
    return sum(int(word) for word in words[1:4]) * (1_000_000_000 // _GUEST_TICKS_PER_S)
