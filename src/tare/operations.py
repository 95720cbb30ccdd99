"""What operations cost here and how often a request needs them: the budget by cause, measured.

Unit costs come from `probe`, on the client's side and inside, without the workload. Counts come
from a session of its own, in which tracepoints are counted (`perf stat`), since counting slows what
it counts; that session's response time is kept, so that its inflation can be told. Inside a guest
nothing is traced: its server's switches are read from /proc.

strace is no alternative: it triples the time and adds futex calls of its own.
"""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import select
import shutil
import signal
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tare import analysis, process, uprobes
from tare.accounting import Account
from tare.cell import Cell
from tare.command import PATH, Command
from tare.environments import Inside, Site
from tare.errors import TrialError, UnavailableError
from tare.events import events_in
from tare.leftovers import Registry
from tare.process import ProcessError
from tare.record import CauseSession
from tare.site import Watching
from tare.stepwise import Stepwise
from tare.workloads import AnyBench, Measurement, echo_samples

_LOG = logging.getLogger(__name__)
_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 30.0
_SINK_PORT = 7420
_EXTENT = ("--batches", "10", "--operations", "500")
_SLOW_EXTENT = ("--batches", "20", "--operations", "100")
"""For what fills a socket's buffer, or takes long."""
_PROBES: Mapping[str, tuple[str, ...]] = {
    "receive": ("udp-receive", *_SLOW_EXTENT),
    "wake thread": ("wakeup", "--kind", "thread", *_EXTENT),
    "wake process": ("wakeup", "--kind", "process", *_EXTENT),
    "wake by futex": ("wakeup", "--via", "futex", *_EXTENT),
    "system call": ("syscall", *_EXTENT),
    "clock reading": ("clock", *_EXTENT),
    "cold function": ("cold-code", "--batches", "10", "--operations", "20"),
    "integer step": ("integer", "--batches", "10", "--operations", "20000"),
    "floating-point step": ("floating-point", "--batches", "10", "--operations", "20000"),
    "copy of 4 KiB": ("memory-copy", "--bytes", "4096", *_EXTENT),
    "page fault": ("page-fault", *_EXTENT),
}
"""Cost -> the probe that measures it, alike on both sides."""
_REQUESTS = ("--batches", "20", "--operations", "50")
IN_A_REQUEST = "function in a request"
"""What code costs in the middle of a request, on the side that is named before it."""
_TAP = "tare-tap"
_TAP_ADDRESS = "10.78.0.1"
_BEHIND_TAP = "10.78.0.2"

_STAT = ("perf", "stat")
_CLOCK = "clock readings"
_EVENTS = {
    "calls": ("raw_syscalls:sys_enter",),
    "switches": ("sched:sched_switch",),
    "sends": tuple(f"syscalls:sys_enter_{c}" for c in ("sendto", "sendmsg", "sendmmsg")),
    "receives": tuple(f"syscalls:sys_enter_{c}" for c in ("recvfrom", "recvmsg", "recvmmsg")),
    "futexes": ("syscalls:sys_enter_futex",),
    "polls": tuple(f"syscalls:sys_enter_{c}" for c in ("epoll_wait", "ppoll", "poll", "select")),
}
"""What is counted in every thread, by kind of operation."""


def require_perf() -> None:
    """Refuse early where operations cannot be counted.

    Raises:
        UnavailableError: perf is not installed, or tracepoints are closed to this user.
    """
    if shutil.which("perf", path=PATH) is None:
        raise UnavailableError("not installed: linux-perf", "apt-get install linux-perf")
    try:
        # It also mounts what holds the tracepoints, where nobody has yet (see uprobes.py).
        process.run(Command((*_STAT, "--event", *_EVENTS["switches"], "--", "true")), _TIMEOUT_S)
    except ProcessError as error:
        raise UnavailableError(
            f"perf cannot count the kernel's tracepoints: {error.what}",
            "run as root, on a kernel with tracefs; or leave out 'causes'",
        ) from error


@dataclass(frozen=True)
class Cost:
    """What one operation costs, in ns; both over the means of batches."""

    mean: float
    median: float
    """What a disturbance in some batches does not reach."""


def unit_costs(site: Site, inside: Inside) -> dict[str, Cost]:
    """Measure what one operation costs, on both sides.

    Together they are an overhead vector: what the environment makes of each elementary operation.

    Returns:
        Name -> cost. Names that begin with "inside" were measured in the environment.

    Raises:
        TrialError: a probe failed.
    """
    found = {name: _on_client(site, *probe) for name, probe in _PROBES.items()}
    found |= {f"inside {name}": _within(inside, *probe) for name, probe in _PROBES.items()}
    sink = ("probe/probe", "udp-sink", "--port", str(_SINK_PORT))
    with inside.start(sink) as there:
        there.event(_START_TIMEOUT_S)
        found["send"] = _on_client(site, "udp-send", *_to(inside.address), *_SLOW_EXTENT)
        there.stop()
    with process.start(_client_command(site, *sink)) as here:
        here.event(_START_TIMEOUT_S)
        to_client = _to(site.hosts.client_address)
        found["inside send"] = _within(inside, "udp-send", *to_client, *_SLOW_EXTENT)
        here.stop()
    echo = ("probe/probe", "code-echo", "--port", str(_SINK_PORT))
    with inside.start(echo) as there:
        there.event(_START_TIMEOUT_S)
        for name, side in ((IN_A_REQUEST, "here"), (f"inside {IN_A_REQUEST}", "there")):
            probe = ("request-code", *_to(inside.address), "--side", side)
            found[name] = _on_client(site, *probe, *_REQUESTS)
        there.stop()
    device = inside.facts.null_disk
    if device is not None:  # only a machine has a device model to kick
        found["virtio kick and interrupt"] = _within(
            inside, "block", "--device", device, *_SLOW_EXTENT
        )
        found["tap hop"] = _tap_hop(site)
    return found


def _to(address: str) -> tuple[str, ...]:
    return ("--peer", address, "--port", str(_SINK_PORT))


def _client_command(site: Site, program: str, *argv: str) -> Command:
    return Command(
        (str(site.programs / program), *argv),
        netns=site.hosts.client_ns,
        cpus=site.placement.client,
        fifo=site.placement.fifo,
    )


def _on_client(site: Site, *argv: str) -> Cost:
    said = process.run(_client_command(site, "probe/probe", *argv), _TIMEOUT_S)
    return _cost(said.stdout, argv[0])


def _within(inside: Inside, *argv: str) -> Cost:
    return _cost(inside.run(("probe/probe", *argv), _TIMEOUT_S), argv[0])


def _cost(said: str, probe: str) -> Cost:
    try:
        batches = [float(batch) for batch in json.loads(said)["batches"]]
        found = Cost(statistics.fmean(batches), statistics.median(batches))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise TrialError(f"probe {probe} printed no batches: {said[-200:]!r}") from error
    if not (math.isfinite(found.mean) and math.isfinite(found.median)):
        raise TrialError(f"probe {probe} printed batches that are no times: {said[-200:]!r}")
    return found


def _tap_hop(site: Site) -> Cost:
    """Round trip to a program behind a tap: the hop, and the wake-ups on both ends.

    The program runs as QEMU does: on the VMM's processors, under SCHED_OTHER.
    """
    programs = site.programs
    echo = Command(
        (str(programs / "probe/probe"), "tap-echo", "--name", _TAP),
        netns=site.hosts.client_ns,
        cpus=site.placement.vmm,
    )
    out = site.scratch / "tap.echo"
    with process.start(echo) as behind:
        behind.event(_START_TIMEOUT_S)
        address = ("ip", "address", "add", f"{_TAP_ADDRESS}/24", "dev", _TAP)
        process.run(Command(address, netns=site.hosts.client_ns), _TIMEOUT_S)
        up = ("ip", "link", "set", _TAP, "up")
        process.run(Command(up, netns=site.hosts.client_ns), _TIMEOUT_S)
        asked = _client_command(
            site, "echo/echo-udp", "ask", "--peer", _BEHIND_TAP, "--port", str(_SINK_PORT),
            "--payload", "64", "--requests", "3000", "--warmup", "300", "--out", str(out),
        )  # fmt: skip
        done = events_in(process.run(asked, _TIMEOUT_S).stdout, "echo-udp")[-1]
        behind.stop()
    out.unlink(missing_ok=True)
    mean = (float(done["end_ns"]) - float(done["start_ns"])) / float(done["counters"]["received"])
    return Cost(mean, mean)


@dataclass
class Counter:
    """Counts operations of both ends while a session's measured part runs.

    `watching` is given to the site; `counts` holds the result of the last session.
    """

    scratch: Path
    leftovers: Registry
    counts: dict[str, int] = field(default_factory=dict)
    """ "client switches", "vcpu switches", "server sends", ...: totals of the measured part."""

    @contextmanager
    def watching(self, client: Account, server: Account) -> Iterator[None]:
        """Count in the threads of this machine that the accounts name, while the context is open.

        A far machine's thread numbers are those of others here: what it did stays uncounted.
        """
        self.counts = {}
        groups: dict[str, list[int]] = {}
        for thread in (t for party in (client, server) if not party.far for t in party.threads):
            if thread.role in ("client", "server", "vmm", "vcpu"):  # not a guest's own numbers
                groups.setdefault(thread.role, []).append(thread.tid)
        with ExitStack() as stack:
            name = f"clock_{self.leftovers.run_id}_{secrets.token_hex(2)}"
            stack.enter_context(self.leftovers.owing("uprobe", name))
            clock = uprobes.add_clock_readings(name)
            events = _EVENTS if clock is None else _EVENTS | {_CLOCK: (clock,)}
            watches = [
                stack.enter_context(_Watch(role, tids, self.scratch, events))
                for role, tids in groups.items()
            ]
            yield
            for watch in watches:
                self.counts |= watch.totals()

    def per_request(self, measured: Measurement) -> dict[str, float]:
        """Divide by the requests; add what a guest counted of itself, untraced."""
        requests = measured.counters["sent"]
        totals = dict(self.counts)
        within = [thread for thread in measured.server.threads if thread.role == "guest"]
        if within:
            totals["inside switches"] = sum(thread.switches for thread in within)
        return {name: total / requests for name, total in totals.items()}


def count(
    cells: Sequence[Cell],
    repeat: int,
    counter: Counter,
    entered: Callable[[Watching], AbstractContextManager[AnyBench]],
) -> Iterator[CauseSession]:
    """Set cells up once and count in a session of each; one that fails is absent, with its reason.

    Args:
        cells: of one setting up, with response times.
        repeat: from 0: which of the cells' counting sessions.
        counter: of this setting up.
        entered: sets up what is measured, looked on by a counter.
    """
    left = list(cells)
    samples = counter.scratch / "counted.parquet"
    try:
        with entered(counter.watching) as bench:
            costs = unit_costs(bench.site, bench.inside)
            while left:
                begun = partial(CauseSession, repeat=repeat, cell=left[0].id)
                try:
                    measured = bench.measure(left[0].levels)
                except TrialError as error:  # says nothing of the other cells
                    _LOG.warning("counting in %s: %s", left[0].id, error)
                    found = begun(error=str(error))
                else:
                    assert measured.samples is not None  # only such workloads can be asked to count
                    echo_samples.to_parquet(measured.samples, samples)
                    found = begun(
                        unit_costs_ns={name: cost.mean for name, cost in costs.items()},
                        unit_medians_ns={name: cost.median for name, cost in costs.items()},
                        counts=counter.per_request(measured),
                        mean_ns=analysis.summarise_session(samples).value("mean"),
                    )
                del left[0]
                yield found
    except TrialError as error:
        _LOG.warning("counting in %s: %s", ", ".join(cell.id for cell in left), error)
        for cell in left:
            yield CauseSession(repeat=repeat, cell=cell.id, error=str(error))


class _Watch(Stepwise):
    """One `perf stat` on some threads, switched on once it is attached."""

    def __init__(
        self,
        role: str,
        threads: Sequence[int],
        scratch: Path,
        counted: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._role = role
        self._counted = counted
        self._out = scratch / f"perf-{role}"
        self._control, self._answer = scratch / f"perf-{role}-control", scratch / f"perf-{role}-ack"
        for fifo in (self._control, self._answer):
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo, 0o600)
        events = ",".join(event for kind in counted.values() for event in kind)
        self._command = Command(
            (
                *_STAT, "--field-separator", ",", "--output", str(self._out),
                "--event", events, "--tid", ",".join(map(str, threads)),
                "--delay", "-1", "--control", f"fifo:{self._control},{self._answer}",
            )
        )  # fmt: skip

    def _build(self, stack: ExitStack) -> None:
        # Both ends for writing and reading, so that opening waits for nobody.
        control = os.open(self._control, os.O_RDWR)
        stack.callback(os.close, control)
        self._ack = os.open(self._answer, os.O_RDWR | os.O_NONBLOCK)
        stack.callback(os.close, self._ack)
        self._perf = stack.enter_context(process.start(self._command))
        self._control_end = control
        self._say("enable")

    def totals(self) -> dict[str, int]:
        """Stop counting and return the totals by kind of operation."""
        self._say("disable")
        self._perf.stop(_START_TIMEOUT_S, by=signal.SIGINT)  # on SIGTERM it prints nothing
        return self._read()

    def _say(self, word: str) -> None:
        """Tell perf something and wait until it has done it."""
        os.write(self._control_end, word.encode() + b"\n")
        poller = select.poll()
        poller.register(self._ack, select.POLLIN)
        if not poller.poll(_START_TIMEOUT_S * 1000):
            raise TrialError(f"perf did not {word} within {_START_TIMEOUT_S:g} s")
        os.read(self._ack, 64)

    def _read(self) -> dict[str, int]:
        kinds = {event: kind for kind, events in self._counted.items() for event in events}
        totals = dict.fromkeys((f"{self._role} {kind}" for kind in self._counted), 0)
        for line in self._out.read_text().splitlines():
            columns: list[Any] = line.split(",")
            if len(columns) < 3 or columns[2] not in kinds:
                continue
            if columns[0] == "<not counted>":  # no thread of the group ran at all
                continue
            if not columns[0].isdecimal():
                raise TrialError(f"perf did not count {columns[2]} of the {self._role}: {line!r}")
            totals[f"{self._role} {kinds[columns[2]]}"] += int(columns[0])
        return totals
