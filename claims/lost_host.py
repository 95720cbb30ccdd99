"""B6: an ssh host that goes away, or stops answering, in the middle of a run."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Any

from claims.checking import Found, Workshop
from claims.experiments import run_text
from tare import analysis, environments, leftovers, report, runner
from tare.hosts import Hosts
from tare.stats.bounds import Kept
from tare.testing.far_machine import at_home

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
_HOW = {"lost": signal.SIGKILL, "stopped": signal.SIGSTOP}


def rest_is_complete(workshop: Workshop) -> Found:
    """B6: every trial on this machine measured, the host's absent, the report drawn."""
    found = {}
    for how, by in _HOW.items():
        workshop.say(f"a host that is {how} in block {_AFTER + 1}")
        found[how] = run_without(workshop, how, by)
    holds = all(
        seen["native failed"] == 0
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
        gone: list[int] = []

        def watch(progress: runner.Progress) -> None:
            if progress.block >= _AFTER and not gone:
                gone.extend((*far.sessions(), far.sshd.pid))
                for pid in gone:
                    os.kill(pid, by)

        try:
            record = run_text(workshop, text, f"{how}-host", watch)
        finally:
            for pid in gone:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
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
