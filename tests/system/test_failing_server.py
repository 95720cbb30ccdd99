"""A server that dies or hangs in the middle of a trial: that trial is absent, the run goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import numpy as np
import pyarrow.parquet as pq
import pytest

from needs import PROGRAMS, needs_root
from tare import experiment, machine, plan, runner
from tare.accounting import Account
from tare.command import owner_mark
from tare.environments import Site
from tare.environments.native import Native
from tare.errors import TrialError
from tare.record import Record
from tare.testing import traces
from tare.testing.site import levels_of
from tare.workloads import echo_samples
from tare.workloads.request_reply import WORKLOAD, EchoBench, EchoLevels, EchoSettings

pytestmark = [pytest.mark.system, needs_root]

SESSION = EchoSettings({"requests": "200", "warmup": "20", "timeout": "10 ms"})


def servers() -> list[int]:
    """Pids of the echo servers that this process started."""
    found = []
    for pid in traces.processes_of(owner_mark()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith(b"echo-udp") and b"serve" in words:
            found.append(pid)
    return found


@contextmanager
def signalled(number: int) -> Iterator[Callable[[Account, Account], object]]:
    """Give a watcher that signals the server once the measured part has begun."""

    @contextmanager
    def watching(_client: Account, _server: Account) -> Iterator[None]:
        for pid in servers():
            os.kill(pid, number)
        yield

    yield watching


def asked(**levels: str) -> EchoLevels:
    return levels_of(WORKLOAD, **levels)


def measured(site: Site, what: EchoLevels, number: int | None, folder: Path) -> Path:
    path = folder / "samples.parquet"
    with Native().enter(site) as inside:
        if number is None:
            found = EchoBench(site, inside, SESSION).measure(what)
        else:
            with signalled(number) as watching:
                found = EchoBench(replace(site, watching=watching), inside, SESSION).measure(what)
    assert found.samples is not None
    echo_samples.to_parquet(found.samples, path)
    return path


def test_an_open_loop_counts_from_the_moment_at_which_it_should_have_sent(tidy_site, tmp_path):
    samples = pq.read_table(measured(tidy_site, asked(mode="open 1000/s"), None, tmp_path))
    intended = samples["intended_ns"].to_numpy()
    assert len(intended) == 200
    assert np.all(np.diff(intended) == 1_000_000)  # the schedule, whatever the replies do
    assert np.all(samples["sent_ns"].to_numpy() >= intended)


def test_icmp_is_measured_without_a_server(tidy_site, tmp_path):
    samples = pq.read_table(measured(tidy_site, asked(transport="icmp"), None, tmp_path))
    assert samples.num_rows == 200
    assert samples["received_ns"].null_count == 0


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, r"ended before its consumption could be read|signal 9|exit code 4"),
        (signal.SIGSTOP, r"echo-udp .* ended with exit code 4"),
    ],
    ids=["dies", "hangs"],
)
def test_a_server_that_stops_answering_makes_no_trial(tidy_site, tmp_path, number, said):
    with pytest.raises(TrialError, match=said):
        measured(tidy_site, asked(), number, tmp_path)
    assert not (tmp_path / "samples.parquet").exists()
    assert servers() == []


def test_the_run_goes_on_after_a_server_that_died(tmp_path):
    text = (
        "title: t\nfactors: {transport: [udp, icmp]}\nbaseline: {transport: icmp}\n"
        "blocks: {min: 6, max: 6}\nsession: {requests: 2000, warmup: 20, timeout: 1 s}\n"
    )
    made = plan.make(experiment.parse(text, "x"), seed=1)
    record = Record.create(tmp_path / "r", text, made, machine.fingerprint(PROGRAMS))
    killed: list[int] = []

    def assassin() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for pid in servers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = Thread(target=assassin)
    thread.start()
    try:
        outcome = runner.run(record, PROGRAMS, tmp_path / "cache")
    finally:
        thread.join()
    assert killed
    failed = [t for t in record.trials() if t.status == "failed"]
    assert outcome.trials == len(made.cells) * 6
    assert [t.cell.removesuffix("#2") for t in failed] == ["udp"] * len(killed)
    assert all(t.error and t.samples is None for t in failed)
