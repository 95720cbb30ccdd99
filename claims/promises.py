"""How each claim of CLAIMS.md is checked: a row a figure, or a function where it is none.

A bound is kept where the whole interval keeps it, not the estimate alone: that nothing was found
slower does not show that nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from claims import (
    accounts,
    benchmarks,
    campaigns,
    commands,
    crash,
    darshan_logs,
    exhibits,
    first_report,
    gates,
    guides,
    instrument,
    layers,
    lost_host,
    machines,
    many_nodes,
    migrations,
    new_machines,
    patterns,
    peers,
    precision,
    prediction,
    rounds,
    run_times,
    services,
    simulation,
    slurm_jobs,
    standing,
)
from claims.checking import Part
from claims.rows import Wanted

_TESTBED, _SATURATED = "page-sharing-migration.yaml", "migration-saturated.yaml"
_MICRO, _RETURN = "migration-micro-benchmark.yaml", "migration-return.yaml"
_CPU, _WORSE = "migration-processor-time.yaml", "migration-never-worse.yaml"
_DISTANCE = "migration-distance.yaml"
_PIECES, _OPENING, _GRID = "small-pieces.yaml", "open-close.yaml", "ior-like.yaml"
_WALKS = "walks-patterns.yaml"
_WRITES, _LATENCY = "nvram-cache-writes.yaml", "write-latency.yaml"
_SIMULATED = "nvram-cache-writes-simulated.yaml"
_OWN_QUEUE = ("nvio,nodes=2/*", "nvio,nodes=2,write=async/*")
"""Synchronous writes over those that the process queues; plans compare with managers' queues."""
_SLOW = "nodes=2,store_kind=simulated"
_GUESTS = [*((_TESTBED, guest) for guest in ("web", "memcached", "compile")), (_SATURATED, "spin")]

CHECKS: Mapping[str, tuple[Part, ...]] = {
    "A1": (peers.beside_sockperf,),
    "A2": (peers.beside_ddsperf,),
    "A3": (simulation.false_positives, simulation.real_pairs),
    "A4": (simulation.covered_effects, simulation.injected_effect),
    "A5": (accounts.closes, accounts.explains),
    "A6": (Wanted("container-equivalence.yaml", least=0.97, most=1.03),),
    "A7": (benchmarks.analysis_of_many_samples,),
    "A8": (crash.kills,),
    "A9": (precision.in_the_same_time, precision.simulated),
    "A12": (gates.simulated, gates.covered, gates.real),
    "A10": (commands.beside_hyperfine, commands.everywhere, commands.added),
    "A11": tuple(partial(services.beside_by_hand, name=name) for name in services.EXPERIMENTS),
    "A13": (first_report.first_report,),
    "A14": (benchmarks.history_of_many_runs,),
    "B1": (layers.every_cell,),
    "B2": (instrument.costs_little,),
    "B3": (layers.repeat,),
    "B4": (prediction.predicted,),
    "B5": (rounds.nothing_stays,),
    "B6": (lost_host.rest_is_complete,),
    "C1": (campaigns.same,),
    "C2": (benchmarks.nodes,),
    "C3": (
        Wanted(_PIECES, "plain/write/4", "nvio/write/4", least=10.0),
        Wanted(_PIECES, "plain/read/4", "nvio/read/4", least=8.0),
        Wanted(_PIECES, "plain/write/1", "nvio/write/1", least=3.0),
        Wanted(_PIECES, "plain/read/1", "nvio/read/1", least=4.0),
        Wanted(_PIECES, most=1.05),
        Wanted(_GRID, most=1.05),
        Wanted(_OPENING, statistic="open", most=1e6, difference=True),
        Wanted(_OPENING, statistic="close", most=1e6, difference=True),
    ),
    "C4": (
        Wanted(_WALKS, "plain/4000/rows", "nvio/4000/rows", least=3.0),
        Wanted(_WALKS, "plain/8000/rows", "nvio/8000/rows", least=2.5),
        Wanted(_WALKS, "plain/4000/views", "nvio/4000/views", least=1.15),
        Wanted(_WALKS, "nvio/4000/block", most=1.05),
        Wanted(_WALKS, "nvio/4000/collective", most=1.05),
        Wanted(_WALKS, "plain/4000/views", "nvio,admit=always,bypass_size=8M/4000/views"),
        patterns.against_fastest_plain,
    ),
    "C5": (
        Wanted(_WRITES),
        Wanted(_WRITES, *_OWN_QUEUE),
        Wanted(_SIMULATED),
        Wanted(_SIMULATED, f"nvio,{_SLOW}/*", f"nvio,{_SLOW},write=async/*"),
        Wanted(_LATENCY, statistic="p50"),
        Wanted(_LATENCY, *_OWN_QUEUE, statistic="p50"),
        Wanted(_LATENCY, statistic="p99"),
        Wanted(_LATENCY, *_OWN_QUEUE, statistic="p99"),
    ),
    "C6": (campaigns.crashes,),
    "C7": (run_times.run_times,),
    "C8": (benchmarks.product,),
    "C9": (campaigns.types,),
    "C10": (many_nodes.growth,),
    "C11": (slurm_jobs.jobs,),
    "C12": (darshan_logs.advice,),
    "C13": (campaigns.beside,),
    "D1": (
        Wanted(_TESTBED, "web/pageshare", "web/plain", "wire", most=0.12),
        Wanted(_TESTBED, "web/pageshare", "web/multifd+zstd", "wire", most=0.40),
        Wanted(_TESTBED, "compile/pageshare", "compile/plain", "wire", most=0.12),
        Wanted(_TESTBED, "compile/pageshare", "compile/multifd+zstd", "wire", most=0.40),
        Wanted(_TESTBED, "memcached/pageshare", "memcached/plain", "wire"),
        Wanted(_TESTBED, "memcached/pageshare", "memcached/multifd+zstd", "wire"),
        partial(migrations.beside_floor, _TESTBED),
    ),
    "D2": (
        Wanted(_TESTBED, "*/pageshare", "*/plain", "time", most=0.40),
        Wanted(_TESTBED, "*/pageshare", "*/multifd+zstd", "time", most=0.75),
        Wanted(_SATURATED, "pageshare", "plain", "time", most=0.65, called="spin "),
        Wanted(_SATURATED, "pageshare", "multifd+zstd", "time", most=0.95, called="spin "),
        *(partial(migrations.downtime, *at) for at in _GUESTS),
        *(partial(migrations.idle, *at) for at in _GUESTS),
    ),
    "D3": (
        Wanted(_MICRO, "micro82.8%/pageshare", statistic="wire", most=0.18),
        Wanted(_MICRO, "micro82.8%/pageshare", statistic="time", most=0.30),
    ),
    "D4": (
        Wanted(_CPU, "*/pageshare", "*/multifd+zstd", "cpu", most=0.85),
        Wanted(_CPU, "*/references", "*/plain", "cpu", most=1.5),
        partial(migrations.extra_processor_time, _CPU),
    ),
    "D5": (
        Wanted(_WORSE, "random/pageshare/1000Mbit/s/off", statistic="time", most=1.05),
        Wanted(_WORSE, "random/pageshare/1000Mbit/s/off", statistic="wire", most=1.005),
        Wanted(_WORSE, "random/pageshare/10000Mbit/s/off", statistic="time", most=1.25),
        Wanted(_WORSE, "micro82.8%/pageshare/10000Mbit/s/off", statistic="time", most=1.30),
    ),
    "D6": (Wanted(_RETURN, "*/returntrip", statistic="wire", most=0.10),),
    "D7": (benchmarks.kills,),
    "D8": (benchmarks.parts,),
    "D9": (migrations.ablation,),
    "D10": (
        Wanted(_DISTANCE, "random/pageshare/*", statistic="time", most=1.05),
        Wanted(_DISTANCE, "web/pageshare/*", statistic="time", most=0.45),
        Wanted(_DISTANCE, "*/pageshare/*", statistic="downtime", most=50e6, difference=True),
    ),
    "D11": (machines.sessions, machines.fuzzed),
    "D12": (benchmarks.far_kills, benchmarks.versions),
    "D13": (benchmarks.crowd,),
    "E1": tuple(partial(new_machines.installed, release=name) for name in new_machines.RELEASES),
    "E2": (exhibits.replayed,),
    "E3": (guides.typed,),
    "E4": (lost_host.rest_of_many_is_complete,),
    "E5": (standing.current_or_pending,),
}
GROW = frozenset(
    ["A1", "A2", "A10", "A11", "A5", "A6", "C3", "C4", "D1", "D2", "D3", "D4", "D5", "D6", "D10"]
)
"""Claims to whose measurements blocks can be added (`Workshop.look`)."""
