"""A9: what a minute of measuring yields, with several sessions in a block against one."""

from __future__ import annotations

import math
import random
import re
import time
from statistics import median

import numpy as np

from claims.checking import Found, Workshop, shown
from claims.experiments import run_text
from claims.rows import bounded_rate
from tare import analysis
from tare.record import Record
from tare.runner import Progress
from tare.stats import Interval, Method
from tare.stats.bounds import Bound
from tare.stats.interval import mean_interval
from tare.stats.simulate import BIMODAL, NORMAL, RARE_MODE
from tare.stats.simulate_repeated import repeated_runs

QUICKSTART = "quickstart.yaml"
MOST = 0.6
ROUNDS = 6
_SEED = 9
_ENOUGH_BLOCKS = 90
_SIMULATED = 4000
_SETTINGS = {"one mode": NORMAL, "two modes, 1 : 1": BIMODAL, "two modes, 9 : 1": RARE_MODE}


class _TimeIsUpError(Exception):
    """The other run of the round took no longer."""


def in_the_same_time(workshop: Workshop, rounds: int = ROUNDS) -> Found:
    """Half-widths of the quickstart's container comparisons, of runs that alternate.

    In every round one run as it ships, and one with a single session a cell and block, in an order
    that is drawn, which ends when the other's wall time is over, or runs as long in advance as the
    last one did. What a run's last block took less or more than that counts by the root of time.
    """
    text = (workshop.home / "experiments" / QUICKSTART).read_text(encoding="utf-8")
    arms = {"several": text, "one": _single(text)}
    order = random.Random(_SEED)  # noqa: S311 - an order, not a secret
    ratios: list[float] = []
    data: dict[str, object] = {}
    seconds: float | None = None
    for number in range(rounds):
        # The first round has to see how long the run takes that ships.
        names = list(arms) if seconds is None else order.sample(list(arms), k=2)
        found: dict[str, dict[str, float]] = {}
        for name in names:
            limit = seconds if name == "one" else None
            took, found[name] = _run(workshop, arms[name], f"{name}-{number}", limit)
            seconds = took if name == "several" else seconds
        each = {c: found["several"][c] / found["one"][c] for c in found["several"]}
        data[f"round {number + 1}"] = {"order": names, "ratios": each, **found}
        ratios.append(median(each.values()))
    logs = mean_interval(np.log(ratios), workshop.confidence, Method.T)
    ends = [None if x is None else math.exp(x) for x in (logs.estimate, logs.low, logs.high)]
    narrower = Interval(ends[0], ends[1], ends[2], logs.confidence, logs.method, logs.n)
    line = f"half-width over that of one session a cell and block {shown(narrower)}"
    return Found(
        f"{line}, {rounds} rounds of {seconds or 0:.0f} s a run",
        data,
        (Bound("half-width", narrower, None, MOST),),
    )


def _single(text: str) -> str:
    """The same experiment with one session a cell and block, and blocks without end."""
    return re.sub(
        r"^blocks: .*$",
        f"blocks: {{min: {_ENOUGH_BLOCKS}, max: {_ENOUGH_BLOCKS}, sessions: 1}}",
        text,
        flags=re.MULTILINE,
    )


def _run(
    workshop: Workshop, text: str, name: str, limit_s: float | None
) -> tuple[float, dict[str, float]]:
    """Run to the end, or for a time; return the time, and log half-widths as if just that long."""
    began = time.monotonic()
    ended: dict[int, float] = {}

    def look(progress: Progress) -> None:
        now = time.monotonic() - began
        ended.setdefault(progress.block, now)  # the beginning of a block is the end of the last
        if limit_s is not None and now > limit_s:
            raise _TimeIsUpError

    blocks: float
    try:
        run_text(workshop, text, name, look)
    except _TimeIsUpError:
        blocks, took = max(ended), ended[max(ended)]
    else:
        blocks, took = math.inf, time.monotonic() - began
    record = Record(workshop.scratch / name)
    whole = [trial for trial in record.trials() if trial.block < blocks]
    widths = analysis.half_widths(record, whole)
    scale = math.sqrt(took / (limit_s or took))
    return took, {
        comparison: scale * math.log1p(width / 100)
        for comparison, width in widths.items()
        if width is not None and comparison.startswith("container/")
    }


def simulated(workshop: Workshop) -> Found:
    """False positives and coverage of whole runs whose truth is known."""
    bounds = []
    for name, sessions in _SETTINGS.items():
        for blocks in (8, 12):
            workshop.say(f"{_SIMULATED} runs, {name}, {blocks} blocks")
            found = repeated_runs(sessions, blocks, failing=0.02, runs=_SIMULATED)
            what = f"{name}, {blocks} blocks"
            bounds.append(
                bounded_rate(f"false positives, {what}", found.false_positives, None, 0.06)
            )
            bounds.append(bounded_rate(f"coverage, {what}", found.covered, 0.93, 0.97))
    rates = [100 * (b.found.estimate or 0.0) for b in bounds if b.least is None]
    covered = [100 * (b.found.estimate or 0.0) for b in bounds if b.least is not None]
    line = f"false positives at most {max(rates):.1f} %, coverage {min(covered):.1f}"
    return Found(f"{line} to {max(covered):.1f} %", bounds=tuple(bounds))
