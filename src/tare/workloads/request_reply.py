"""Request and reply (paper A): the client sends an array, the server works on it and answers.

The server runs inside the environment, the client on the host, in its own namespace; both are
fresh processes for every session. Round trips are whole, from the intended send to the reply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tare import accounting, capabilities, environments, process, rootless, transports, units
from tare.environments import ServerProcess
from tare.errors import TrialError, UsageError
from tare.levels import Factor, Settings, among, choice
from tare.placement import Placement
from tare.published.beside import Beside
from tare.workloads import Bench, Measurement, Room, Statistic, echo_samples, papers, rows
from tare.workloads.findings import Findings

# What the programs take (echo/).
_MOST_BYTES = 1 << 26
_MOST_CLIENTS = 1024
_MOST_REQUESTS = 1 << 31
_FASTEST = 1e6
"""Requests a second of a client in open loop: a send alone takes a microsecond."""

_WINDOW = 16
"""Requests of a client in open loop that wait for their replies at once."""
_PATIENCE = 10
"""Timeouts in a row without a reply, after which a server counts as dead."""

_START_TIMEOUT_S = 30.0
_AGENT_SLACK_S = 30.0


def _parse_mode(written: object) -> float | None:
    """Requests a second and client in open loop; None in closed loop."""
    text = str(written)
    if text == "closed":
        return None
    word, _, rate = text.partition(" ")
    if word != "open" or not rate:
        raise UsageError(f"{text!r} is neither 'closed' nor 'open' with a rate, as 'open 1000/s'")
    found = units.frequency(rate)
    if found == 0:
        raise UsageError(f"{text!r} would never send: give a rate above 0")
    if found > _FASTEST:
        raise UsageError(f"{text!r} would send more often than a clock tells: give 1 MHz or less")
    return found


class EchoLevels(rows.Placed):
    """The factors of `request-reply`."""

    environment = rows.environment("Where the server runs")
    transport = among(transports.by_name(), "udp", "What carries request and reply.")
    payload = rows.size("64 B", "Size of the array, both ways.", most=_MOST_BYTES)
    server_work = rows.duration("0 us", "How long the server computes on each request.", "100 us")
    reception = choice(("listener", "waitset"), "listener", "How a DDS hands data over.")
    placement = rows.PLACEMENT
    scheduling = rows.SCHEDULING
    mode = Factor(
        _parse_mode,
        lambda rate: "closed" if rate is None else f"open {rate:g}/s",
        "closed",
        "closed: the next request follows the reply (service time). open RATE: a schedule decides"
        " (response time from the intended send); the rate is of each client.",
        examples=("closed", "open 1000/s"),
        unit="1/s",
    )
    clients = rows.count("1", "Independent requesters.", most=_MOST_CLIENTS)
    interference = rows.INTERFERENCE
    link = rows.LINK


class EchoSettings(Settings):
    """What its sessions share."""

    requests = rows.count(
        "2000", "Requests of each client that are measured in a session.", most=_MOST_REQUESTS
    )
    warmup = rows.count(
        "200", "Requests of each client before measuring.", least=0, most=_MOST_REQUESTS
    )
    timeout = rows.duration("1 s", "An unanswered request is lost after this.", "1 s", least=1)


class EchoBench(Bench[EchoLevels, EchoSettings]):
    """Fresh processes for every session."""

    def measure(self, levels: EchoLevels) -> Measurement:
        """Measure one session: fresh server inside, fresh client outside.

        Raises:
            TrialError: a process died, nobody answered, or a reply was corrupted.
        """
        raw = self.site.scratch / "samples.echo"
        now = self.site.stopwatch.now
        with ExitStack() as stack:
            now("starting")
            server = self._serve(stack, levels)
            server_settings = server.event(_START_TIMEOUT_S) if server else {}
            client = stack.enter_context(
                process.start(
                    process.Command(
                        argv=self._ask(levels, raw),
                        netns=self.site.hosts.client_ns,
                        cpus=self.site.placement.client,
                        fifo=self.site.placement.fifo,
                    )
                )
            )
            client_settings = client.event(_START_TIMEOUT_S)
            stack.enter_context(levels.interference.running(self.site, self.inside))
            now("warming up")
            client.tell("warm up")
            client.event(self.longest(levels))
            now("accounting")
            before = _accounts(client.pid, server)
            with self.site.watching(*before):
                now("measuring")
                client.tell("measure")
                client.event(self.longest(levels))
                now("accounting")
            after = _accounts(client.pid, server)
            now("ending")
            client.tell("write")
            done = client.event(_START_TIMEOUT_S)
            if done.get("ended_by") != "requests":
                client.finish(_START_TIMEOUT_S)  # it says why by how it ends
            # All is told and written. A DDS would take leave for a tenth of a second at either
            # end, more than its requests took: both are killed, the client first.
        now("recording")
        counters = {name: int(count) for name, count in done.get("counters", {}).items()}
        _check(counters, levels.transport.name)
        samples = echo_samples.parse(raw.read_bytes())
        raw.unlink()
        return Measurement(
            counters=counters,
            settings={"server": server_settings, "client": client_settings},
            client=accounting.difference(before[0], after[0]),
            server=accounting.difference(before[1], after[1]),
            duration_ns=int(done["end_ns"]) - int(done["start_ns"]),
            samples=samples,
        )

    def _serve(self, stack: ExitStack, levels: EchoLevels) -> ServerProcess | None:
        """Start the server, unless the client answers itself.

        Where the kernel answers, its server looks on, so that the layer below it is accounted for
        as it is with every other transport.
        """
        transport, inside = levels.transport, self.inside
        if transport.answered_by == "client":
            return None
        argv = [transport.program, "serve"]
        if transport.domain is not None:
            argv += _dds(levels, inside.interface, self.site.hosts.client_address)
        else:
            argv += ["--bind", inside.address]
        if transport.has_port:
            argv += ["--port", str(transports.PORT)]
        if transport.answered_by == "server":
            argv += ["--work-ns", str(levels.server_work)]
        return stack.enter_context(inside.start(argv))

    def _ask(self, levels: EchoLevels, raw: Path) -> tuple[str, ...]:
        transport, site, inside, settings = levels.transport, self.site, self.inside, self.settings
        argv = [str(site.programs / transport.program), "ask"]
        if transport.domain is not None:
            argv += _dds(levels, site.hosts.client_address, inside.address)
        elif transport.answered_by == "client":
            argv += ["--work-ns", str(levels.server_work)]
        else:
            argv += ["--peer", inside.address]
        if transport.has_port:
            argv += ["--port", str(transports.PORT)]
        rate = levels.mode
        argv += ["--mode", "closed"] if rate is None else ["--mode", "open", "--rate", str(rate)]
        # In open loop a single stall loses many in a row, and is what open loop is to show.
        at_once = 1 if rate is None else min(_WINDOW, math.ceil(rate * settings.timeout / 1e9))
        argv += [
            "--outstanding", str(1 if rate is None else _WINDOW),
            "--give-up-after", str(_PATIENCE * at_once),
            "--payload", str(levels.payload),
            "--clients", str(levels.clients),
            "--requests", str(settings.requests),
            "--warmup", str(settings.warmup),
            "--timeout-ns", str(settings.timeout),
            "--out", str(raw),
            "--start-on-stdin",
        ]  # fmt: skip
        return tuple(argv)

    def longest(self, levels: EchoLevels) -> float:
        """Seconds after which a client that says nothing is given up.

        Every request may take its work, its way, and its timeout once in a hundred; what is slower
        than that is not a response time but a hang.
        """
        requests = self.settings.requests + self.settings.warmup
        each = max(20e-3, self.settings.timeout / 1e11) + levels.server_work / 1e9 + _way_s(levels)
        each = max(each, 0 if levels.mode is None else 1 / levels.mode)
        return _AGENT_SLACK_S + requests * levels.clients * each


class RequestReply(rows.InEnvironment[EchoLevels, EchoSettings]):
    """The workload `request-reply`."""

    name = "request-reply"
    levels = EchoLevels
    settings = EchoSettings
    bench = EchoBench
    statistics: Mapping[str, Statistic] = {
        "p50": Statistic("median response time of a session"),
        "mean": Statistic("mean response time of a session"),
        "p99": Statistic("99th percentile of a session"),
        "min": Statistic("smallest response time of a session"),
    }
    programs = ("echo/*",)
    paper = "A"
    response_times = True

    def subject(self, levels: EchoLevels) -> str:
        """A response, and what carries it."""
        return f"A response through {levels.transport.words}"

    def applicable(self, levels: EchoLevels) -> frozenset[str]:
        """Leave out what a transport does not know: only a DDS has reception modes."""
        names = set(super().applicable(levels))
        if levels.transport.domain is None:
            names.discard("reception")
        if levels.transport.answered_by == "kernel":  # nobody works
            names.discard("server_work")
        return frozenset(names)

    def refused(
        self, levels: EchoLevels, asked: Mapping[str, Sequence[str]]
    ) -> tuple[str, str] | None:
        """What a packet cannot carry; and work that no server does, beside others that do it."""
        row = levels.transport
        if levels.payload > row.most_bytes:
            return (
                "payload",
                f"{levels['payload']!r} is more than {row.words} carries in one packet:"
                f" give at most {row.most_bytes} B, or exclude it with transport {row.name}",
            )
        if row.answered_by == "kernel" and units.exact_duration(0) not in asked["server_work"]:
            return (
                "server_work",
                f"{levels['server_work']!r} would be left out with transport {row.name}, which the"
                " kernel answers: exclude it there, or add '0 us'",
            )
        return None

    def lacking(self, levels: EchoLevels, settings: EchoSettings, programs: Path) -> str | None:
        """What carries, and what disturbs."""
        if remedy := levels.transport.missing(programs):
            return f"not built; {remedy}"
        disturbs = levels.interference
        if environments.is_far(levels.environment) and str(disturbs).startswith("host network"):
            return (
                "what goes from client to host disturbs no other machine. Take `inside network`"
                " there"
            )
        if (
            levels.scheduling == "fifo"
            and not environments.is_far(levels.environment)
            and rootless.is_on()
        ):
            return "real-time priorities are root's. Run as root, or add `scheduling: other`"
        if levels.scheduling == "fifo" and (
            absent := capabilities.lacking(*capabilities.REAL_TIME)
        ):
            return f"{absent}, for real-time priorities. Give it that, or add `scheduling: other`"
        carries = levels.transport
        if not environments.is_far(levels.environment) and (
            absent := capabilities.lacking(*carries.capabilities)
        ):
            return f"{absent}, for {carries.words}. Give it that, or leave `{carries.name}` out"
        return super().lacking(levels, settings, programs) or disturbs.lacking(levels.environment)

    def room(self, levels: EchoLevels, settings: EchoSettings) -> Room:
        """A record a request; what is kept is smaller, by how much only the times tell."""
        size = settings.requests * levels.clients * echo_samples.RECORD_BYTES
        disk = levels.interference.disk_bytes(levels.environment)
        return Room(kept_bytes=size, scratch_bytes=size, disk_bytes=disk)

    def beside(self, found: Findings) -> tuple[Beside, ...]:
        """Paper A's response times."""
        return papers.a.beside(found)

    def placement(self, plot: EchoLevels) -> Placement:
        """Processors, and priority."""
        return replace(super().placement(plot), fifo=50 if plot.scheduling == "fifo" else None)

    def seconds(self, levels: EchoLevels, settings: EchoSettings) -> float:
        """Expected duration of a trial."""
        row, transport = environments.row(levels.environment), levels.transport
        each = row.request_s * transport.times + levels.server_work / 1e9 + _way_s(levels)
        # Clients share the processors and the wire; a schedule is each one's own.
        each *= levels.clients
        if levels.mode is not None:
            each = max(each, 1 / levels.mode)
        start = row.session_s + transport.start_s
        return start + (settings.requests + settings.warmup) * each


def _way_s(levels: EchoLevels) -> float:
    """Seconds of a payload on a link with a rate, both ways."""
    return 2 * 8 * levels.payload / levels.link if levels.link else 0.0


WORKLOAD = RequestReply()


def _check(counters: Mapping[str, int], transport: str) -> None:
    """A corrupted reply spoils a session; a lost one is a finding."""
    if counters.get("corrupted"):
        raise TrialError(f"{counters['corrupted']} replies over {transport} came back corrupted")
    if not counters.get("received"):
        lost = counters.get("lost")
        raise TrialError(f"nothing came back over {transport}: {lost} requests lost")


def _accounts(
    client_pid: int, server: ServerProcess | None
) -> tuple[accounting.Account, accounting.Account]:
    """Snapshot both ends. The server's comes last before, and its cost falls outside the loop."""
    served = server.account() if server else accounting.Account()
    return accounting.snapshot(client_pid, "client"), served


def _dds(levels: EchoLevels, interface: str, peer: str) -> list[str]:
    return [
        "--domain", str(levels.transport.domain),
        "--interface", interface,
        "--peer", peer,
        "--reception", levels.reception,
    ]  # fmt: skip
