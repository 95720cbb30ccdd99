"""Operations of a request: who could not be counted is absent; who is not there does nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import records
from tare import accounting, analysis, report, runner, uprobes
from tare import operations as counting
from tare.accounting import Account, ThreadTime
from tare.analysis.difference import explain
from tare.analysis.operations import counted_in
from tare.analysis.sessions import Sessions
from tare.analysis.threads import lines_of
from tare.errors import TrialError
from tare.leftovers import Registry
from tare.record import CauseSession, Record
from tare.workloads import echo_samples

TEXT = """\
title: What does a sandbox cost?
factors: {{environment: [native, gvisor], transport: [{transport}]}}
baseline: {{environment: native}}
blocks: {{min: 8, max: 8}}
"""
SIDES = ("send", "receive", "wake process", "wake thread")
COSTS = dict.fromkeys((*SIDES, *(f"inside {name}" for name in SIDES)), 1_000.0)
CLIENT = {f"client {what}": 1.0 for what in ("sends", "receives", "switches")}
SERVER = {f"server {what}": 1.0 for what in ("sends", "receives", "switches")}
"""What perf counts of a server that is a process of this machine: none in gVisor or UML."""


def make(folder: Path, transport: str = "udp", user_ns: int = 400) -> Record:
    """Native and gVisor; a sandbox's threads run the server, which nobody can count."""
    recipe = records.Recipe(requests=200, truth_us=lambda _: 10.0)
    made = records.make(folder, recipe, TEXT.format(transport=transport))
    with made.writing() as writer:
        for trial in made.trials():
            sent = trial.counters["sent"]
            role = "vcpu" if trial.cell.startswith("gvisor") else "server"
            client = ThreadTime("client", "c", 1, 4_000 * sent, 0, user_ns * sent, 0)
            server = ThreadTime(role, "s", 2, 4_000 * sent, 0, user_ns * sent, 0)  # type: ignore[arg-type]
            accounts = {"client": Account((client,)), "server": Account((server,))}
            writer.append(trial.model_copy(update=accounts))
        for cell in made.plan.cells:
            native = cell.levels["environment"] == "native" and transport != "icmp"
            for repeat in range(3):
                writer.append(
                    CauseSession(
                        repeat=repeat,
                        cell=cell.id,
                        unit_costs_ns=COSTS,
                        counts={**CLIENT, **(SERVER if native else {})},
                        mean_ns=1e4,
                    )
                )
    return made


def operations(record: Record, environment: str):
    cell = next(c for c in record.plan.cells if c.levels["environment"] == environment)
    return counted_in(cell, Sessions(record))


def test_a_server_that_nobody_could_count_has_no_operations_and_that_is_said(tmp_path: Path):
    record = make(tmp_path / "r")
    inside = {"send, server", "receive, server", "wake server", "wake threads, server"}
    native, gvisor = operations(record, "native"), operations(record, "gvisor")
    assert inside <= {o.name for o in native.operations}
    assert native.absent == ()
    assert not inside & {o.name for o in gvisor.operations}
    assert set(gvisor.absent) == {*inside, "user time, server"}
    page = report.render(analysis.analyse(record))
    assert "not known here" in page


def test_a_kernel_that_answers_by_itself_does_what_a_server_would_not_at_all(tmp_path: Path):
    found = operations(make(tmp_path / "r", "icmp"), "gvisor")
    assert found.absent == ()
    assert (
        next(o for o in found.operations if o.name == "send, server").count_per_request == [0.0] * 3
    )


def test_what_one_side_could_not_count_is_in_no_change(tmp_path: Path):
    found = explain(make(tmp_path / "r"), "gvisor")
    assert "send, server" in found.uncounted
    assert not {"send, server", "user time"} & {o.name for o in found.operations}


def test_a_user_time_below_the_kernels_tick_is_absent_and_not_zero(tmp_path: Path):
    found = operations(make(tmp_path / "r", user_ns=0), "native")
    assert "user time" not in {o.name for o in found.operations}
    assert set(found.absent) == {"user time, client", "user time, server"}


def test_user_time_stands_beside_the_response_of_its_own_sessions(tmp_path: Path):
    record = make(tmp_path / "r")
    (user,) = (o for o in operations(record, "native").operations if o.name == "user time")
    assert user.beside_response
    assert user.unit_cost_ns == pytest.approx([800.0] * 8)


def test_an_account_without_its_server_has_no_time_of_it_rather_than_none(tmp_path: Path):
    record = make(tmp_path / "r")
    cell = next(c for c in record.plan.cells if c.levels["environment"] == "native")
    first = next(t for t in record.trials() if t.key == (0, cell.id, 0))
    with record.writing() as writer:
        writer.append(first.model_copy(update={"server": None}))
    times = lines_of(cell, Sessions(record))["server on CPU"]
    assert times[0] is None
    assert all(time == pytest.approx(4_000.0) for time in times[1:])


def test_threads_of_a_far_machine_are_not_counted_among_those_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Their numbers are those of anybody's threads here."""
    watched: dict[str, list[int]] = {}

    class Watch:
        def __init__(self, role: str, tids: list[int], *_: object) -> None:
            watched[role] = list(tids)

        def __enter__(self) -> Watch:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def totals(self) -> dict[str, int]:
            return {}

    monkeypatch.setattr(counting, "_Watch", Watch)
    monkeypatch.setattr(uprobes, "add_clock_readings", lambda _: None)
    client = Account((ThreadTime("client", "c", os.getpid(), 0, 0, 0, 0),))
    server = Account((ThreadTime("server", "s", 1, 0, 0, 0, 0),), far=True)
    far = accounting.combined(server, Account())
    used = accounting.difference(far, far)
    with (
        Registry(tmp_path / "owed") as owed,
        counting.Counter(tmp_path, owed).watching(client, used),
    ):
        pass
    assert watched == {"client": [os.getpid()]}


def test_a_cell_that_fails_while_counting_costs_the_others_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = TEXT.format(transport="icmp, tcp, udp") + "causes: 1\n"
    record = records.make(
        tmp_path / "r", records.Recipe(blocks=1, requests=50, truth_us=lambda _: 10.0), text
    )
    sample = record.samples_path(record.trials()[0])
    failing, measured = {"tcp"}, []

    class Bench:
        site = inside = None

        def measure(self, levels: Mapping[str, str]) -> SimpleNamespace:
            measured.append(levels["transport"])
            if levels["transport"] in failing:
                raise TrialError("nothing came back")
            account = Account(())
            return SimpleNamespace(samples=sample, counters={"sent": 50}, server=account)

    monkeypatch.setattr(counting, "unit_costs", lambda *_: {})
    monkeypatch.setattr(echo_samples, "to_parquet", shutil.copyfile)
    monkeypatch.setattr(runner._Run, "_entered", lambda *_: nullcontext(Bench()))

    def count() -> dict[str, set[str]]:
        with record.writing() as writer:
            runner._Run(
                record=record, programs=tmp_path, cache=tmp_path, on_progress=lambda _: None,
                writer=writer, registry=None, scratch=tmp_path, blocks=None,  # type: ignore[arg-type]
            )._count_causes()  # fmt: skip
        found: dict[str, set[str]] = {}
        for one in record.causes():
            found.setdefault(str(one.error), set()).add(one.cell.rpartition("/")[2])
        return found

    assert count() == {"None": {"icmp", "udp"}, "nothing came back": {"tcp"}}
    failing.clear()
    measured.clear()
    assert count() == {"None": {"icmp", "tcp", "udp"}}
    assert measured == ["tcp"] * 2  # in each environment
