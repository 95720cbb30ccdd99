"""A1 and A2: our round trips beside the field's own tools, interleaved on the same link and core.

A benchmark whose own overhead is large measures itself. The peers are sockperf for UDP and ddsperf
for Cyclone DDS; both sides get the same placement, priority, payload size and namespaces.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from claims.checking import Found, Workshop, shown
from tare import process
from tare.analysis import summarise_session
from tare.command import Command
from tare.environments import Inside, Site
from tare.environments.native import Native
from tare.errors import TrialError
from tare.placement import Placement
from tare.stats import paired_ratio
from tare.stats.bounds import Bound
from tare.testing.site import levels_of, site_for
from tare.workloads import echo_samples, request_reply

_BLOCKS = 15
_NO_SLOWER = 1.05
_PAYLOAD = 64
_FIFO = 50
_SOCKPERF_MEDIAN = re.compile(r"percentile 50\.000 =\s*([0-9.]+)")
_DDSPERF_MEDIAN = re.compile(r"size \d+ mean [0-9.]+us min [0-9.]+us 50% ([0-9.]+)us")
_DDSPERF_DOMAIN = "31"
_SESSION = request_reply.EchoSettings({"requests": "20000", "warmup": "1000", "timeout": "1 s"})

Measure = Callable[[Site, Inside], float]


def _ours(transport: str, reception: str | None = None) -> Measure:
    """Median round trip of a session of our own, in ns."""
    chosen = {"transport": transport, "payload": f"{_PAYLOAD} B"}
    if reception is not None:
        chosen["reception"] = reception
    asked = levels_of(request_reply.WORKLOAD, **chosen)

    def measure(site: Site, inside: Inside) -> float:
        samples = site.scratch / "ours.parquet"
        found = request_reply.EchoBench(site, inside, _SESSION).measure(asked)
        assert found.samples is not None  # responses are timed
        echo_samples.to_parquet(found.samples, samples)
        median = summarise_session(samples).value("p50")
        assert median is not None  # the workload refuses a session without replies
        return median

    return measure


def _command(site: Site, netns: str, *argv: str, env: dict[str, str] | None = None) -> Command:
    placement = site.placement
    cpus = placement.client if netns == site.hosts.client_ns else placement.server
    return Command(argv=argv, netns=netns, cpus=cpus, fifo=placement.fifo, env=env or {})


def _sockperf(site: Site, inside: Inside) -> float:
    """Median round trip that `sockperf ping-pong --full-rtt` reports, in ns."""
    where = ("-i", inside.address, "-p", "7411")
    with process.start(_command(site, site.hosts.server_ns, "sockperf", "server", *where)):
        time.sleep(0.3)  # it announces nothing that a program could wait for
        said = process.run(
            _command(
                site, site.hosts.client_ns, "sockperf", "ping-pong", *where,
                "--full-rtt", "-m", str(_PAYLOAD), "-t", "1", "--mps=max",
            ),
            timeout_s=20,
        )  # fmt: skip
    found = _SOCKPERF_MEDIAN.search(said.stdout)
    if found is None:
        raise TrialError(f"sockperf said nothing of a median: {said.stdout[-300:]!r}")
    return float(found[1]) * 1e3


def _ddsperf(site: Site, _: Inside) -> float:
    """Twice the median half trip that ddsperf reports in its steady seconds, in ns."""

    def on(netns: str, interface: str, *argv: str) -> Command:
        uri = f"<General><Interfaces><NetworkInterface name='{interface}'/></Interfaces></General>"
        return _command(
            site, netns, "ddsperf", "-i", _DDSPERF_DOMAIN, *argv, env={"CYCLONEDDS_URI": uri}
        )

    hosts = site.hosts
    with process.start(on(hosts.server_ns, hosts.server_interface, "-D", "20", "pong", "listener")):
        ping = ("-D", "4.5", "ping", "size", str(_PAYLOAD), "listener")
        said = process.run(on(hosts.client_ns, hosts.client_interface, *ping), timeout_s=20)
    seconds = [float(half) for half in _DDSPERF_MEDIAN.findall(said.stdout)]
    if len(seconds) < 3:
        raise TrialError(f"ddsperf reported {len(seconds)} seconds: {said.stdout[-300:]!r}")
    return 2e3 * statistics.median(seconds[1:])  # the first second holds discovery


def interleave(
    workshop: Workshop, arms: Mapping[str, Measure], placement: Placement | None = None
) -> dict[str, list[float]]:
    """Measure every arm once a block in random order; medians in ns.

    Args:
        workshop: what the claim may use.
        arms: by name.
        placement: of the site that each is given; all on one core, under SCHED_FIFO, where None.
    """
    blocks = _BLOCKS if workshop.look is None else workshop.look.blocks(_BLOCKS)
    kept = workshop.scratch / f"{'-'.join(arms)}.json"
    found: dict[str, list[float]] = {name: [] for name in arms}
    if kept.exists():
        found = json.loads(kept.read_text())
    order = random.Random(1)  # noqa: S311 - an order, not a secret
    with site_for("native", workshop.programs, workshop.cache) as (_, site):
        given = placement or replace(site.placement, fifo=_FIFO)
        site = replace(site, placement=given)  # noqa: PLW2901
        with Native().enter(site) as inside:
            for block in range(blocks):
                names = list(arms)
                order.shuffle(names)
                if block < min(map(len, found.values())):  # on record, in this very order
                    continue
                workshop.say(f"block {block + 1} of {blocks}: {', '.join(arms)}")
                for name, ns in {name: arms[name](site, inside) for name in names}.items():
                    found[name].append(ns)
                kept.write_text(json.dumps(found))
    return {name: values[:blocks] for name, values in found.items()}


def beside_peers(
    workshop: Workshop,
    arms: Mapping[str, tuple[Measure, Measure]],
    peer: str,
    *,
    least: float,
    most: float,
) -> Found:
    """Ours over a peer's, of each thing by itself; on processors that are not chosen.

    Args:
        workshop: what the claim may use.
        arms: what is measured -> ours, the peer's.
        peer: its name.
        least: that each ratio may be.
        most: likewise.
    """
    bounds: list[Bound] = []
    data: dict[str, list[float]] = {}
    for name, (ours, theirs) in arms.items():
        both = {f"ours-{name}": ours, f"{peer.replace(' ', '-')}-{name}": theirs}
        found = interleave(workshop, both, Placement())
        data |= found
        here, there = found.values()
        ratio = paired_ratio(here, there, workshop.confidence).ratio
        bounds.append(Bound(f"{name} / {peer}", ratio, least, most))
    line = ", ".join(f"{one.name} {shown(one.found)}" for one in bounds)
    return Found(line, data, tuple(bounds))


def _over(
    name: str, found: dict[str, list[float]], ours: str, peer: str, confidence: float
) -> Found:
    """One arm over another, which it may not be slower than."""
    ratio = paired_ratio(found[ours], found[peer], confidence).ratio
    a, b = (statistics.median(found[arm]) / 1e3 for arm in (ours, peer))
    line = f"{name} {shown(ratio)} ({a:.2f} us against {b:.2f} us, {len(found[ours])} blocks)"
    return Found(line, found, (Bound(name, ratio, most=_NO_SLOWER),))


def beside_sockperf(workshop: Workshop) -> Found:
    """A1: UDP."""
    found = interleave(workshop, {"ours": _ours("udp"), "sockperf": _sockperf})
    return _over("UDP p50 / sockperf", found, "ours", "sockperf", workshop.confidence)


def beside_ddsperf(workshop: Workshop) -> Found:
    """A2: Cyclone DDS by listener; by waitset it is told beside."""
    listener, waitset = (_ours("cyclonedds", how) for how in ("listener", "waitset"))
    arms = {"listener": listener, "waitset": waitset, "ddsperf": _ddsperf}
    found, peer = interleave(workshop, arms), ("ddsperf", workshop.confidence)
    judged = _over("Cyclone p50 / 2 x ddsperf", found, "listener", *peer)
    beside = _over("by waitset / 2 x ddsperf", found, "waitset", *peer)
    return replace(judged, line=f"{judged.line}; reported beside: {beside.line}")
