"""B6 and E4: ssh hosts that go away, or stop answering, in the middle of a run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from claims.checking import Found, Workshop
from claims.experiments import run_text
from tare import analysis, environments, leftovers, report, runner
from tare.hosts import Hosts
from tare.stats.bounds import Kept
from tare.testing.far_machine import FarMachine, all_at_home, at_home

_BLOCKS = 4
_AFTER = 2
"""Blocks that are measured before the host goes."""
_EXPERIMENT = """\
title: Here and there
factors: {{environment: [native, {far}], transport: [udp]}}
baseline: {{environment: native}}
family: none # so few blocks may do
blocks: {{min: {blocks}, max: {blocks}}}
session: {{requests: 300, warmup: 30, timeout: 1 s}}
"""
_HOSTS = 8
_SLOW_BITS_S = 10**7
_HOW = {"lost": signal.SIGKILL, "stopped": signal.SIGSTOP}


def rest_is_complete(workshop: Workshop) -> Found:
    """B6: every trial on this machine measured, the host's absent, the report drawn."""
    found = {}
    for how, by in _HOW.items():
        workshop.say(f"a host that is {how} in block {_AFTER + 1}")
        found[how] = run_without(workshop, how, by)
    holds = all(
        seen["native failed"] == 0
        and seen["native measured"] == _BLOCKS
        and seen["there measured"] >= _AFTER
        and seen["there failed"] == _BLOCKS - seen["there measured"] > 0
        and seen["in report"]
        for seen in found.values()
    )
    figure = "; ".join(
        f"{how}: here {seen['native measured']} of {_BLOCKS} trials, there {seen['there measured']}"
        f" measured and {seen['there failed']} absent, report drawn"
        for how, seen in found.items()
    )
    return Found(figure, found, counted=Kept.counted(holds))


def run_without(workshop: Workshop, how: str, by: signal.Signals) -> dict[str, Any]:
    """Run here and there, send a signal to the far side after some blocks, and go on to the end."""
    keys = workshop.scratch / f"host-{how}"
    keys.mkdir()
    with (
        leftovers.Registry() as owed,
        Hosts(owed) as hosts,
        at_home(keys, workshop.programs, hosts) as far,
    ):
        level = environments.level(f"{environments.FAR} {far.destination}")
        text = _EXPERIMENT.format(far=level, blocks=_BLOCKS)
        with _gone_after_some_blocks(far, by) as watch:
            record = run_text(workshop, text, f"{how}-host", watch)
        page = report.render(analysis.analyse(record))
    trials = record.trials()
    cells = {cell.id: cell for cell in record.plan.cells}
    here = [t for t in trials if cells[t.cell].levels["environment"] != level]
    there = [
        t
        for t in trials
        if cells[t.cell].levels["environment"] == level and cells[t.cell].replica == 1
    ]
    return {
        "native measured": len({t.block for t in here if t.status == "ok"}),
        "native failed": sum(t.status == "failed" for t in here),
        "there measured": sum(t.status == "ok" for t in there),
        "there failed": sum(t.status == "failed" for t in there),
        "in report": level in page,
    }


def rest_of_many_is_complete(workshop: Workshop) -> Found:
    """E4: every trial but those of the host that was killed; the report drawn."""
    keys = workshop.scratch / "hosts"
    keys.mkdir()
    with ExitStack() as stack:
        owed = stack.enter_context(leftovers.Registry())
        rates = [_SLOW_BITS_S, *[None] * (_HOSTS - 1)]
        hosts = [stack.enter_context(Hosts(owed, rate_bits_s=rate)) for rate in rates]
        far = stack.enter_context(all_at_home(keys, workshop.programs, hosts))
        levels = [environments.level(f"{environments.FAR} {one.destination}") for one in far]
        text = _EXPERIMENT.format(far=", ".join(levels), blocks=_BLOCKS)
        workshop.say(f"{_HOSTS} hosts: one is slow, one is killed in block {_AFTER + 1}")
        with _gone_after_some_blocks(far[-1], signal.SIGKILL) as watch:
            record = run_text(workshop, text, "many-hosts", watch)
        page = report.render(analysis.analyse(record))
    of = {cell.id: cell.levels["environment"] for cell in record.plan.cells}
    good = {(t.block, of[t.cell]) for t in record.trials() if t.status == "ok"}
    measured = Counter(level for _, level in good)
    slow, *rest, killed = levels
    holds = (
        all(measured[level] == _BLOCKS for level in ("native", slow, *rest))
        and all(of[t.cell] == killed for t in record.trials() if t.status != "ok")
        and _AFTER <= measured[killed] < _BLOCKS
        and all(level in page for level in levels)
    )
    figure = (
        f"of {_BLOCKS} blocks were measured: here {measured['native']}, at the slow host"
        f" {measured[slow]}, at {len(rest)} others {min(measured[level] for level in rest)} or"
        f" more, at the killed one {measured[killed]}; report drawn"
    )
    return Found(figure, {"measured": dict(measured)}, counted=Kept.counted(holds))


@contextmanager
def _gone_after_some_blocks(
    far: FarMachine, by: signal.Signals
) -> Iterator[Callable[[runner.Progress], None]]:
    """Send a signal to the far side after some blocks; what was stopped goes on at the end."""
    gone: list[int] = []

    def watch(progress: runner.Progress) -> None:
        if progress.block >= _AFTER and not gone:
            gone.extend((*far.sessions(), far.sshd.pid))
            for pid in gone:
                os.kill(pid, by)

    try:
        yield watch
    finally:
        for pid in gone:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
