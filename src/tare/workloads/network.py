"""Throughput of TCP (paper B, Fig. 4): from host and guest, to themselves, the host, a remote host.

The remote host is the client's namespace, across the bridge; `link` limits the wire to it. Each
side has a listener of its own where it sends to. `alone`: first the host sends, then the guest.
`concurrent`: both start at a barrier, and only the time in which both ran is measured. "Guest" is
the environment, whichever it is; "host" is a process of the host beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tare import environments, packages, process
from tare.command import Command
from tare.environments import Inside, ServerProcess, Site
from tare.environments.on_host import beside
from tare.errors import TrialError
from tare.levels import Settings, choice
from tare.packages import PROGRAMS
from tare.pauses import pauses
from tare.published.beside import Beside
from tare.stats.fairness import jain_index
from tare.workloads import Bench, Measurement, Statistic, papers, rows
from tare.workloads.findings import Findings
from tare.workloads.meeting import Meeting, Run, overlap

Party = Literal["host", "guest"]
_PORTS: Mapping[Party, int] = {"host": 5201, "guest": 5202}
_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_SLACK_S = 60.0
_MOST_INTERVALS = 400
"""That one side tells: what the other end of a meeting is told is bounded (probe/meet.cc)."""
_EDGE_S = 0.2
"""Left out on either side of the overlap: connecting, and what is told only at the end."""
_LEAST_OVERLAP = 0.9
"""A rate of dd's is over all of its time: the sides must have run together for so much of it."""


class NetworkLevels(rows.Placed):
    """The factors of `network`."""

    environment = rows.environment("What the guest is")
    to = choice(("localhost", "host", "remote"), "remote", "Whom each side sends to.")
    mode = choice(
        ("alone", "concurrent"),
        "alone",
        "Whether host and guest send one after the other, or at once.",
    )
    tool = choice(
        ("iperf3", "dd-nc"),
        "iperf3",
        "What sends: iperf3, or `dd if=/dev/zero bs=1M | nc`, whose figure is what dd handed over.",
    )
    placement = rows.PLACEMENT
    link = rows.LINK


class NetworkSettings(Settings):
    """What its sessions share."""

    seconds = rows.count("3", "How long each side sends, in whole seconds.", most=86_400)


class NetworkBench(Bench[NetworkLevels, NetworkSettings]):
    """Both hosts and the guest."""

    def measure(self, levels: NetworkLevels) -> Measurement:
        """Send from both sides, one after the other or at once.

        Raises:
            TrialError: a program failed, or the sides did not overlap.
        """
        parties: tuple[Party, ...] = ("host", "guest")
        if environments.is_far(levels.environment):
            # No host of ours is beside it there, and another machine sends by itself.
            parties = ("guest",)
        together = levels.mode == "concurrent" and len(parties) == 2
        turns = (parties,) if together else tuple((party,) for party in parties)
        found: dict[Party, _Sent] = {}
        for turn in turns:
            found |= _send(turn, levels, self.settings.seconds, self.site, self.inside)
        values = {str(party): sent.rate for party, sent in found.items()}
        values |= {
            f"{party}-cpu": sent.cpu_ns * 1e9 / sent.sent_bytes
            for party, sent in found.items()
            if sent.cpu_ns > 0
        }
        if together:
            rates = [sent.rate for sent in found.values()]
            values |= {"sum": sum(rates), "jain": jain_index(rates)}
        counters = {
            f"{party} retransmits": sent.retransmits
            for party, sent in found.items()
            if sent.retransmits is not None
        }
        settings: dict[str, Any] = {"commands": {p: sent.command for p, sent in found.items()}}
        if together:
            settings["overlap"] = {p: round(sent.overlap, 3) for p, sent in found.items()}
        return Measurement(values=values, counters=counters, settings=settings)


class Network(rows.InEnvironment[NetworkLevels, NetworkSettings]):
    """The workload `network`."""

    name = "network"
    levels = NetworkLevels
    settings = NetworkSettings
    bench = NetworkBench
    statistics: Mapping[str, Statistic] = {
        "guest": Statistic("throughput of the guest's sender", "B/s", "higher"),
        "host": Statistic("throughput of the host's sender beside it", "B/s", "higher"),
        "sum": Statistic("throughput of both, sent at once", "B/s", "higher"),
        "jain": Statistic("Jain's index of the split: 1 is even, 0.5 one has all", "1", "higher"),
        "guest-cpu": Statistic(
            "processor time for each gigabyte from the guest: its sender and receiver, or the"
            " guest's threads on the host"
        ),
        "host-cpu": Statistic("processor time for each gigabyte from the host"),
    }
    response_times = False

    def subject(self, levels: NetworkLevels) -> str:
        """What sentences about a cell speak of."""
        return f"Throughput of TCP to {levels.to} ({levels.tool})"

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """The paper's table of a network."""
        return papers.b.network(found)

    def lacking(
        self, levels: NetworkLevels, settings: NetworkSettings, programs: Path
    ) -> str | None:
        """What sends; and whom a guest on another machine cannot send to."""
        where = levels.environment
        guest = environments.is_far(where) and environments.is_guest_of_qemu(where)
        if levels.to == "host" and guest:
            return (
                "a guest on another machine has that machine's address for itself, and cannot"
                " send to it. Take `to: localhost` or `to: remote` there"
            )
        program = "iperf3" if levels.tool == "iperf3" else "nc.openbsd"
        needed = {program: PROGRAMS["network"][program]}
        return super().lacking(levels, settings, programs) or packages.lacking(needed)

    def seconds(self, levels: NetworkLevels, settings: NetworkSettings) -> float:
        """Expected duration of a trial."""
        return (2 if levels.mode == "alone" else 1) * (settings.seconds + 1.5)


WORKLOAD = Network()


@dataclass(frozen=True)
class _Sent:
    """What one side sent in the time that counts."""

    rate: float
    """Bytes a second."""
    sent_bytes: float
    """In all of its time, which `cpu_ns` is of."""
    cpu_ns: int
    retransmits: int | None
    overlap: float
    """Share of its time in which the other ran too."""
    command: str


def told(seconds: int) -> tuple[str, ...]:
    """How iperf3 is to tell of its intervals: 0.1 s to 60 s are what it takes."""
    each = min(60.0, max(0.1, seconds / _MOST_INTERVALS))
    return "--interval", f"{each:g}", "--json"


class _Side:
    """One of the two: where it runs, and where it sends to."""

    def __init__(
        self, party: Party, levels: NetworkLevels, seconds: int, site: Site, inside: Inside
    ) -> None:
        self.party: Party = party
        self._seconds = seconds
        self._told = told(seconds)
        self._tool = levels.tool
        self._site = site
        self._inside = inside
        self._far = environments.is_far(levels.environment)
        self._to = levels.to
        self.port = _PORTS[party]

    @property
    def address(self) -> str:
        """Whom it sends to."""
        hosts = self._site.hosts
        return {
            "localhost": "127.0.0.1",
            # Another machine is its own host.
            "host": self._inside.address if self._far else hosts.server_address,
            "remote": hosts.client_address,
        }[self._to]

    def start(self, argv: Sequence[str]) -> ServerProcess:
        """Start a program where this side is."""
        if self.party == "guest":
            return self._inside.start(argv)
        return beside(
            self._site, argv, self.party, self._site.hosts.server_ns, self._site.placement.client
        )

    @contextmanager
    def listener(self) -> Iterator[ServerProcess]:
        """Hold what it sends to; entered, it listens."""
        argv: tuple[str, ...] = (
            "iperf3", "--server", "--port", str(self.port), "-4", *self._told,
        )  # fmt: skip
        if self._tool == "dd-nc":
            argv = ("sh", "-c", f"exec nc.openbsd -4lk {self.port} >/dev/null")
        hosts, placement = self._site.hosts, self._site.placement
        namespace: str | None = hosts.server_ns
        started: ServerProcess
        if self._to == "remote":
            started = beside(self._site, argv, self.party, hosts.client_ns, ())
            namespace = hosts.client_ns
        elif self.party == "guest" and (self._to == "localhost" or self._far):
            started, namespace = self._inside.start(argv), None
        else:
            started = beside(self._site, argv, self.party, hosts.server_ns, placement.client)
        with started:
            self._await_listening(namespace)
            yield started

    def _await_listening(self, namespace: str | None) -> None:
        look = ("cat", "/proc/net/tcp")
        for _ in pauses(_START_TIMEOUT_S):
            if namespace is None:
                table = self._inside.run(look, _START_TIMEOUT_S)
            else:
                table = process.run(Command(look, netns=namespace), _START_TIMEOUT_S).stdout
            if _listens(table, self.port):
                return
        raise TrialError(f"the {self.party}'s listener did not listen on port {self.port}")

    def sender(self) -> tuple[str, ...]:
        """Return what sends."""
        seconds = self._seconds
        if self._tool == "iperf3":
            return (
                "iperf3", "--client", self.address, "--port", str(self.port), "-4",
                "--time", str(seconds), *self._told, "--get-server-output",
            )  # fmt: skip
        # dd tells what it wrote when it is interrupted once: hence --foreground. By path, since
        # some shells have one of their own.
        dd = f"/usr/bin/timeout --foreground -s INT {seconds} /usr/bin/dd if=/dev/zero bs=1M"
        return ("sh", "-c", f"{dd} | nc.openbsd -4N {self.address} {self.port}")


def _listens(table: str, port: int) -> bool:
    """Tell whether a port is in state LISTEN (0A) in the text of /proc/net/tcp (proc(5))."""
    for line in table.splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[1].endswith(f":{port:04X}") and words[3] == "0A":
            return True
    return False


def _send(
    parties: tuple[Party, ...],
    levels: NetworkLevels,
    seconds: int,
    site: Site,
    inside: Inside,
) -> dict[Party, _Sent]:
    """Have these sides send at once."""
    sides = [_Side(party, levels, seconds, site, inside) for party in parties]
    with ExitStack() as stack:
        for side in sides:
            stack.enter_context(side.listener())
        # It stays when the senders have ended, and the layer below is the same for all.
        anchor = stack.enter_context(inside.start(("sleep", str(seconds + int(_SLACK_S)))))
        meeting = stack.enter_context(Meeting(site))
        senders = []
        for side in sides:
            sender = stack.enter_context(side.start(meeting.command(side.sender())))
            meeting.arrived(sender)
            senders.append(sender)
        before = _layer_ns(anchor)
        runs = meeting.held(senders, seconds + _SLACK_S)
        layer_ns = _layer_ns(anchor) - before
    window = overlap(runs)
    if window[1] - window[0] < 2 * _EDGE_S:
        raise TrialError("host and guest did not send at the same time: lengthen `seconds`")
    read = _read_iperf3 if levels.tool == "iperf3" else _read_dd
    return {
        side.party: read(
            run,
            window,
            layer_ns if side.party == "guest" else 0,
            " ".join(side.sender()),
        )
        for side, run in zip(sides, runs, strict=True)
    }


def _layer_ns(server: ServerProcess) -> int:
    """Processor time of the layer below a program, where it has threads of its own on the host."""
    threads = server.account().threads
    return sum(thread.cpu_ns for thread in threads if thread.role in ("vcpu", "vmm"))


def _read_iperf3(run: Run, window: tuple[float, float], layer_ns: int, command: str) -> _Sent:
    """Read what arrived in those intervals that lie within the window.

    Of the receiver's intervals: what was sent may still lie in sockets, megabytes of it.
    """
    try:
        said = json.loads(run.output)
        if "error" in said:
            raise TrialError(f"iperf3: {said['error']}")
        intervals = [one["sum"] for one in said["server_output_json"]["intervals"]]
        counted = [
            one
            for one in intervals
            if run.began + one["start"] >= window[0] + _EDGE_S
            and run.began + one["end"] <= window[1] - _EDGE_S
        ]
        seconds = sum(float(one["seconds"]) for one in counted)
        amount = sum(float(one["bytes"]) for one in counted)
        whole = said["end"]["sum_sent"]
        sent_bytes, retransmits = float(whole["bytes"]), whole.get("retransmits")
        receiving = float(said["end"]["cpu_utilization_percent"]["remote_total"]) / 100
        whole_s = float(whole["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise TrialError(f"iperf3 printed something else: {run.output[-300:]!r}") from error
    if seconds <= 0 or amount <= 0 or sent_bytes <= 0:
        raise TrialError("iperf3 sent nothing in the time that counts")
    return _Sent(
        rate=amount / seconds,
        sent_bytes=sent_bytes,
        cpu_ns=layer_ns or run.cpu_ns + round(receiving * whole_s * 1e9),
        retransmits=None if retransmits is None else int(retransmits),
        overlap=(window[1] - window[0]) / run.seconds,
        command=command,
    )


def _read_dd(run: Run, window: tuple[float, float], layer_ns: int, command: str) -> _Sent:
    """Read dd's last report, which is of all its time.

    Source: dd(1): "N bytes (...) copied, S s, RATE".
    """
    found = re.findall(r"^(\d+) bytes .*copied, ([0-9.e+-]+) s", run.output, re.MULTILINE)
    if not found or float(found[-1][1]) <= 0 or int(found[-1][0]) <= 0:
        raise TrialError(f"dd told of nothing that it copied: {run.output[-300:]!r}")
    overlap = (window[1] - window[0]) / run.seconds
    if overlap < _LEAST_OVERLAP:
        raise TrialError(
            f"host and guest sent at the same time for {overlap:.0%} only: lengthen `seconds`"
        )
    amount, seconds = float(found[-1][0]), float(found[-1][1])
    return _Sent(amount / seconds, amount, layer_ns or run.cpu_ns, None, overlap, command)
