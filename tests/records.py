"""Makes result folders as a run would: plausible, well-formed, and known to the last number.

For tests alone. Levels are of the order that was once seen on a development machine, so that a
page drawn from them looks like a page; nothing here is a result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from needs import SMALL
from tare import experiment as experiments
from tare import plan as plans
from tare import repetition
from tare.accounting import Account, ThreadTime
from tare.cell import Cell
from tare.record import Record, Trial

EXPERIMENT = """\
title: What does a response cost in a virtual machine?
description: A plausible record for tests.
workload: request-reply
replays: A
factors:
  environment: [native, container, qemu]
  transport: [icmp, udp, cyclonedds, fastdds]
baseline: {environment: native}
floor: {transport: udp}
family: {transport: [udp, cyclonedds, fastdds]}
deadlines: [10 ms, 100 ms]
blocks: {min: 8, max: 12, until: 3 %}
"""

TWO_ENVIRONMENTS = """\
title: Two environments
factors:
  environment: [native, container]
  transport: [udp, cyclonedds]
baseline: {environment: native}
floor: {transport: udp}
deadlines: [20 us, 10 ms]
blocks: {min: 8, max: 10}
"""

FINGERPRINT = {
    "cpu": {"model": "Test processor", "online": "0-1", "virtual": True},
    "kernel": {"release": "6.1.0-test", "clock_source": "tsc"},
    "memory_bytes": 24 << 30,
    "system": "Debian GNU/Linux 12 (bookworm)",
    "packages": {"qemu-system-x86": "1:7.2"},
    "tare": {"version": "0.1.0", "commit": None},
    "programs": {"echo/echo-udp": "00"},
}

_CLOCK = {
    "read_ns": 25.0,
    "resolution_ns": 1.0,
    "timer_late_ns": 20_000.0,
    "null_response_ns": 60.0,
}

# Median response times in us, by environment and transport.
LEVELS_US = {
    "native": {"icmp": 2.7, "udp": 6.9, "cyclonedds": 17.0, "fastdds": 41.0},
    "container": {"icmp": 2.7, "udp": 6.9, "cyclonedds": 17.1, "fastdds": 41.0},
    "qemu": {"icmp": 60.0, "udp": 95.0, "cyclonedds": 448.0, "fastdds": 1094.0},
}


def response_us(cell: Cell) -> float:
    """The true median of a cell."""
    level = LEVELS_US[cell.levels["environment"]][cell.levels.get("transport", "udp")]
    payload = float(cell.levels.get("payload", "64 B").split()[0])
    work = float(cell.levels.get("server_work", "0 us").split()[0])
    return level * (1 + payload / 10_000) + work


@dataclass
class Recipe:
    """How the sessions of a record come out."""

    seed: int = 1
    blocks: int = 8
    requests: int = 1000
    truth_us: Callable[[Cell], float] = response_us
    """Median of a cell's sessions."""
    spread: float = 0.01
    """Standard deviation of the logarithm between sessions; ten times as much in a guest."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """Cell id -> factor on its response times."""
    stray: Mapping[tuple[int, str], float] = field(default_factory=dict)
    """(block, cell id) -> factor on the response times of that session, besides."""
    failing: frozenset[tuple[int, str]] = frozenset()
    """(block, cell id) of trials that fail."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Cell id -> requests lost in each session."""
    accelerator: Callable[[int, str], str] = lambda _block, _cell: "tcg"
    """(block, cell id) -> what a guest ran under."""
    day: str = "2026-01-01"
    error: str = "the server ended with status 1: cannot bind 10.0.0.2:7400"


@patch("os.fsync", lambda _: None)  # three a trial, and no power fails here
def make(
    folder: Path,
    recipe: Recipe | None = None,
    text: str = EXPERIMENT,
    fingerprint: Mapping[str, object] = FINGERPRINT,
    cut: Callable[[plans.Plan], plans.Plan] = lambda whole: whole,
) -> Record:
    """Make a whole record of an experiment file's text, or of what was left of its plan."""
    recipe = recipe or Recipe()
    experiment = experiments.parse(text, "experiment.yaml")
    plan = repetition.planned(cut(plans.make(experiment, recipe.seed)))
    record = Record.create(folder, text, plan, fingerprint)
    rng = np.random.default_rng(recipe.seed)
    with record.writing() as writer:
        for block in range(min(recipe.blocks, len(plan.blocks))):
            for visit in plan.blocks[block]:
                order = repetition.order(plan, block, visit, plan.sessions)
                for position, (cell_id, repeat) in enumerate(order):
                    where = (block, position, repeat)
                    writer.append(_trial(record, recipe, where, plan.cell(cell_id), rng))
    return record


def small(folder: Path, text: str = SMALL) -> Record:
    """Make a whole record of few trials, where it does not matter what they say."""
    return make(folder, Recipe(blocks=2, requests=50), text)


def ended(block: int, position: int, cell: str, **more: object) -> Trial:
    """A trial that ended well; what it measured, and what else is another's, is the caller's."""
    known = {
        "session": "s",
        "started": f"2026-01-01T00:{block:02}:{position:02}.000+00:00",
        "seconds": 1.0,
        "status": "ok",
    }
    return Trial(block=block, position=position, cell=cell, **(known | more))


def _trial(
    record: Record,
    recipe: Recipe,
    where: tuple[int, int, int],
    cell: Cell,
    rng: np.random.Generator,
) -> Trial:
    block, position, repeat = where
    environment = cell.levels["environment"]
    guest = environment == "qemu"
    accelerator = recipe.accelerator(block, cell.id)
    facts = {"accelerator": accelerator, "kernel": "6.1.0-13-cloud-amd64"} if guest else {}
    common = {
        "block": block,
        "position": position,
        "cell": cell.id,
        "repeat": repeat,
        "session": f"{environment}-{block}-{cell.replica}",
        "started": f"{recipe.day}T00:{block:02d}:{position:02d}.000+00:00",
        "seconds": 0.5,
        "facts": facts,
        "calibration": {"client": _CLOCK, "inside": _CLOCK, "floor_ns": 60.0},
        "machine": {
            "seconds": 0.5,
            "load_1min": 0.8,
            "steal_ns": int(rng.integers(0, 5_000_000)),
            "pressure_us": {"cpu": 1000, "memory": 0, "io": None},
        },
    }
    if (block, cell.id) in recipe.failing:
        return Trial(**common, status="failed", error=recipe.error)
    spread = recipe.spread * (10 if guest else 1)
    factor = recipe.scale.get(cell.id, 1.0) * recipe.stray.get((block, cell.id), 1.0)
    median = recipe.truth_us(cell) * 1e3 * factor
    if cell.levels.get("transport") == "fastdds" and rng.random() < 0.4:
        median *= 1.4
    median *= float(np.exp(rng.normal(0, spread)))
    responses = draw_responses(rng, median, recipe.requests, 0.5 if guest else 0.08)
    lost = recipe.lost.get(cell.id, 0)
    name = f"{block:03d}-{cell.id.replace('/', '-').replace('#', '-')}-{repeat}.parquet"
    duration = write_samples(record.folder / "samples" / name, responses, lost)
    mean = float(responses[lost:].mean())
    client, server = _accounts(environment, mean, recipe.requests)
    return Trial(
        **common,
        status="ok",
        samples=name,
        counters={"sent": recipe.requests, "received": recipe.requests - lost, "lost": lost},
        settings={"server": {"qos": {"reliability": "reliable"}}},
        client=client,
        server=server,
        duration_ns=duration,
    )


def draw_responses(
    rng: np.random.Generator, median_ns: float, n: int, tail: float
) -> npt.NDArray[np.int64]:
    """Response times with a given median, a sharp left side and a long right tail."""
    body = np.exp(rng.normal(0, 0.04, n)) * median_ns
    slow = rng.random(n) < 0.05
    body[slow] *= 1 + rng.gamma(2.0, tail, int(slow.sum()))
    return body.astype(np.int64)


def write_samples(path: Path, responses: npt.NDArray[np.int64], lost: int = 0) -> int:
    """Write one session as a workload does; the first requests are the lost ones.

    Returns:
        Its duration in ns.
    """
    n = responses.size
    sent = 1_000_000_000 + np.concatenate([[0], np.cumsum(responses[:-1] + 300)])
    received = sent + responses
    missing = np.arange(n) < lost
    pq.write_table(
        pa.table(
            {
                "client": pa.array(np.zeros(n, dtype=np.int32)),
                "sequence": pa.array(np.arange(n, dtype=np.int32)),
                "intended_ns": pa.array(sent),
                "sent_ns": pa.array(sent),
                "received_ns": pa.array(received, mask=missing),
            }
        ),
        path,
    )
    return int(received[-1] - sent[0])


def _accounts(environment: str, mean_ns: float, requests: int) -> tuple[Account, Account]:
    """Threads whose times make up 97 % of the mean response."""

    def thread(role: str, share: float, wait: float = 0.0) -> ThreadTime:
        cpu, waiting = round(share * mean_ns * requests), round(wait * mean_ns * requests)
        return ThreadTime(role, role, 1, cpu, waiting, cpu // 2, cpu // 2)  # type: ignore[arg-type]

    if environment == "qemu":
        server = (thread("vmm", 0.25), thread("vcpu", 0.55, 0.02), thread("guest", 0.2))
        return (
            Account((thread("client", 0.15),), 4 << 20),
            Account(server, 300 << 20, 120 * requests, 120 * requests),
        )
    return (
        Account((thread("client", 0.5),), 4 << 20),
        Account((thread("server", 0.45, 0.02),), 5 << 20, 106 * requests, 106 * requests),
    )
