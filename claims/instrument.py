"""B2: what the instrument itself costs, in each environment, beside what it reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims.checking import Found, Workshop
from claims.everywhere import absence, in_each, judged
from claims.experiments import run_text
from tare import analysis, clocks, environments
from tare.accounting import Account
from tare.command import owner_mark
from tare.environments import Inside, Site
from tare.errors import TrialError
from tare.levels import Settings
from tare.stats.bounds import Kept
from tare.testing import traces
from tare.testing.site import levels_of, site_for
from tare.workloads import echo_samples, overhead, request_reply

_MOST, _MOST_REFUSED = 0.01, 1
"""Of what is reported; of the nine probes of an environment."""
_SESSION = request_reply.EchoSettings({"requests": "1000", "warmup": "100", "timeout": "1 s"})
_TRACED = """\
title: How much does counting slow what it counts?
factors: {environment: [native, container], transport: [udp]}
baseline: {environment: native}
blocks: {min: 6, max: 6}
causes: 2
session: {requests: 500, warmup: 50, timeout: 1 s}
"""
_TRACERS = ("perf", "strace", "bpftrace", "ltrace")


def costs_little(workshop: Workshop) -> Found:
    """B2: clock and probes in each environment, tracers, and what counting costs."""

    def look(name: str) -> dict[str, Any]:
        workshop.say(name)
        with site_for(name, workshop.programs, workshop.cache) as (level, site):
            return _cost(level, site)

    found, absent = in_each(workshop, look)
    workshop.say("counting operations")
    counted = analysis.analyse(run_text(workshop, _TRACED, "traced")).operations
    inflation = {c.cell.id: c.inflation for c in counted if c.inflation is not None}
    figure = "; ".join(
        f"{name}: clock {seen['clock over response']:.2%} of a UDP response, worst probe"
        f" {seen['worst probe']:.2%}"
        + (f", refused: {', '.join(seen['refused'])}" if seen["refused"] else "")
        for name, seen in found.items()
    )
    figure += "; no tracer" if not any(s["tracers"] for s in found.values()) else "; TRACED"
    figure += "; counting sessions took " + ", ".join(
        f"{value:.2f} times as long ({cell})" for cell, value in inflation.items()
    )
    data = {**found, "inflation": inflation, "absent": absent}
    return Found(figure + absence(absent), data, counted=verdict(found, inflation, absent))


def verdict(
    found: Mapping[str, dict[str, Any]], inflation: Mapping[str, float], absent: Mapping[str, str]
) -> Kept:
    """An environment that is not here, like an inflation that was not seen, decides nothing."""
    sound = {
        name: not seen["tracers"]
        and seen["clock over response"] < _MOST
        and len(seen["refused"]) <= _MOST_REFUSED  # a share above that is told of no probe
        for name, seen in found.items()
    }
    return judged(sound, absent if inflation else {**absent, "inflation": "not seen"})


def _cost(level: str, site: Site) -> dict[str, Any]:
    tracers: list[str] = []

    @contextmanager
    def watching(_client: Account, _server: Account) -> Iterator[None]:
        tracers.extend(_tracers())
        yield
        tracers.extend(_tracers())

    with environments.for_plot({"environment": level}).enter(site) as inside:
        calibration = clocks.calibrate(site, inside)
        samples = site.scratch / "samples.parquet"
        asked = levels_of(
            request_reply.WORKLOAD, environment=level, transport="udp", scheduling="other"
        )
        bench = request_reply.EchoBench(replace(site, watching=watching), inside, _SESSION)
        measured = bench.measure(asked)
        assert measured.samples is not None  # responses are timed
        echo_samples.to_parquet(measured.samples, samples)
        mean = analysis.summarise_session(samples).value("mean")
        if mean is None:
            raise TrialError(f"the clock in {level} is too coarse for a UDP response")
        probes = _probes(level, site, inside)
    null_ns = calibration.client.null_response_ns
    assert null_ns is not None  # it stamps them
    return {
        # Each response is stamped when it was sent and when it came back.
        "clock over response": 2 * calibration.client.read_ns / mean,
        "null response over response": null_ns / mean,
        "mean response ns": mean,
        "clock ns": [calibration.client.read_ns, calibration.inside.read_ns],
        "timer late ns": [calibration.client.timer_late_ns, calibration.inside.timer_late_ns],
        "worst probe": max(probes["shares"].values()),
        "refused": probes["refused"],
        "tracers": tracers,
    }


def _probes(level: str, site: Site, inside: Inside) -> dict[str, Any]:
    asked = levels_of(overhead.WORKLOAD, environment=level)
    found = overhead.OverheadBench(site, inside, Settings({})).measure(asked)
    if not found.settings["clock's share"]:
        raise TrialError(f"no probe gave a value in {level}")
    return {"shares": found.settings["clock's share"], "refused": found.settings["refused"]}


def _tracers() -> list[str]:
    """Name the tracers at work on our processes: by what they are, and by who is traced.

    User-Mode Linux and gVisor run their own programs by tracing them: that is the environment.
    """
    ours = traces.processes_of(owner_mark())
    found = []
    for pid in ours:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has ended
            continue
        traced = next(line for line in status.splitlines() if line.startswith("TracerPid:"))
        if name in _TRACERS or int(traced.split()[1]) not in (0, *ours):
            found.append(f"{name} ({traced})")
    return found
