"""Hosts that are measured at once: sshds in namespaces, and what may not overlap."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from itertools import combinations
from pathlib import Path

import pytest
from reach import await_that

from needs import HEARING, PROGRAMS, needs_root
from tare import environments, rounds
from tare.command import start_time
from tare.errors import Exit
from tare.hosts import Hosts
from tare.leftovers import Registry
from tare.record import Record, Trial
from tare.testing import traces
from tare.testing.far_machine import FarMachine, all_at_home

pytestmark = [pytest.mark.system, needs_root]

EXPERIMENT = """\
title: Here and on several machines
workload: memory
factors: {{environment: [native, {levels}], class: [stream]}}
baseline: {{environment: native}}
family: none # so few blocks may do
a_a: [{{environment: {first}}}] # so one of them comes twice in every block
statistic: score
blocks: {{min: {blocks}, max: {blocks}}}
session: {{seconds: 1}}
hosts: at-once
seed: 1
"""


@pytest.fixture
def machines(registry: Registry, tmp_path: Path) -> Iterator[tuple[FarMachine, ...]]:
    """Three, each behind a wire of its own."""
    with ExitStack() as stack:
        wires = [stack.enter_context(Hosts(registry)) for _ in range(3)]
        (keys := tmp_path / "machines").mkdir()
        found = stack.enter_context(all_at_home(keys, PROGRAMS, wires))
        yield found
    assert await_that(lambda: not any(machine.left() for machine in found))


def level(machine: FarMachine) -> str:
    return environments.level(f"ssh {machine.destination}")


def asked(folder: Path, machines: Sequence[FarMachine], blocks: int) -> list[str | Path]:
    """Write an experiment file, and return what runs it."""
    levels = [level(machine) for machine in machines]
    text = EXPERIMENT.format(levels=", ".join(levels), first=levels[0], blocks=blocks)
    (folder / "file.yaml").write_text(text)
    return [*HEARING, sys.executable, "-m", "tare", "run", "file.yaml", "--json", "--out", "it"]


def where(record: Record, trial: Trial) -> str:
    return record.plan.cell(trial.cell).levels["environment"]


def overlap(one: Trial, other: Trial) -> bool:
    """By their recorded beginnings, in milliseconds, and lengths."""
    first, second = sorted(
        (datetime.fromisoformat(t.started).timestamp(), t.seconds) for t in (one, other)
    )
    return second[0] < first[0] + first[1] - 0.002


def measured_at(folder: Path, machine: FarMachine) -> bool:
    """Whether a trial of a machine is on record."""
    path = folder / "trials.ndjson"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    told = [json.loads(line) for line in lines if line.endswith("\n")]
    return any(str(machine.destination.netns) in one["cell"] for one in told)


def test_hosts_overlap_one_hosts_trials_never_do_and_this_machine_is_alone(
    machines: tuple[FarMachine, ...], tmp_path: Path
) -> None:
    subprocess.run(asked(tmp_path, machines[:2], 2), cwd=tmp_path, check=True, capture_output=True)
    record = Record(tmp_path / "it")
    trials = record.trials()
    assert len(trials) == 2 * len(record.plan.cells)
    assert all(t.status == "ok" for t in trials)
    at_once = {
        (number, frozenset(visit.cells[0] for visit in visits))
        for number, block in enumerate(record.plan.blocks)
        for visits in rounds.of_block(record.plan, block)
    }
    assert any(len(cells) == 2 for _, cells in at_once)
    for one, other in combinations(trials, 2):
        planned = (one.block, frozenset({one.cell, other.cell})) in at_once
        planned = planned and one.block == other.block
        assert overlap(one, other) == planned
        if one.block == other.block:
            assert (other.cell in one.beside) == (one.cell in other.beside) == planned
    for trial in trials:
        beside = {record.plan.cell(cell).levels["environment"] for cell in trial.beside}
        assert where(record, trial) not in beside
        assert not (beside and "native" in {where(record, trial), *beside})
    page = (tmp_path / "it" / "report.html").read_text()
    assert "Hosts were measured at once, one cell at a time on each." in page


def test_a_host_that_is_killed_costs_its_own_cells_alone(
    machines: tuple[FarMachine, ...], tmp_path: Path
) -> None:
    lost = machines[-1]
    command = asked(tmp_path, machines, 2)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as run:
        assert await_that(lambda: gone(run) or measured_at(tmp_path / "it", lost), 120)
        for pid in (*lost.sessions(), lost.sshd.pid):
            os.kill(pid, signal.SIGKILL)
        said, _ = run.communicate(timeout=240)
    assert run.returncode == Exit.TRIALS_FAILED
    record = Record(tmp_path / "it")
    trials = record.trials()
    assert len(trials) == 2 * len(record.plan.cells)
    there = [t for t in trials if where(record, t) == level(lost)]
    assert {t.status for t in trials if t not in there} == {"ok"}
    assert [there[0].status, there[-1].status] == ["ok", "failed"]
    assert str(lost.destination) in (there[-1].error or "")
    page = (tmp_path / json.loads(said)["report"]).read_text()
    assert all(level(machine) in page for machine in machines)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_leaves_nothing_anywhere_and_is_resumed(
    machines: tuple[FarMachine, ...], tmp_path: Path, how: signal.Signals
) -> None:
    leftovers = Path("/run/tare")
    command = asked(tmp_path, machines[:2], 2)
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        assert await_that(lambda: gone(run) or working_at(*machines[:2]), 120)
        mark = f"{run.pid}:{start_time(run.pid)}"
        runs = [path.name for path in leftovers.glob("*") if is_of(path, mark)]
        run.send_signal(how)
    assert len(runs) == 1
    assert await_that(lambda: not any(machine.left() for machine in machines))
    before = Record(tmp_path / "it").trials()
    assert len(before) < 2 * len(Record(tmp_path / "it").plan.cells)
    resume = [sys.executable, "-m", "tare", "run", "--resume", "it", "--json"]
    subprocess.run(resume, cwd=tmp_path, check=True, capture_output=True)
    assert traces.of_run(runs[0], mark) == []
    record = Record(tmp_path / "it")
    assert record.trials()[: len(before)] == before
    assert len(record.trials()) == 2 * len(record.plan.cells)
    assert all(t.status == "ok" for t in record.trials())


def gone(run: subprocess.Popen[str] | subprocess.Popen[bytes]) -> bool:
    return run.poll() is not None


def working_at(*machines: FarMachine) -> bool:
    """Whether something is being measured at each of them."""
    return all(any(is_stressor(one) for one in machine.left()) for machine in machines)


def is_stressor(left: str) -> bool:
    pid = left.removeprefix("process ")
    comm = Path(f"/proc/{pid}/comm")
    try:
        return pid.isdecimal() and comm.read_text().startswith("stress-ng")
    except OSError:  # it has ended
        return False


def is_of(run: Path, mark: str) -> bool:
    """Whether a list of what is owed is that of the owner of a mark."""
    try:
        return bool(json.loads((run / "owner").read_text())["mark"] == mark)
    except (OSError, ValueError):  # it is being made, or goes
        return False
