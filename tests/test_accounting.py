import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare import accounting
from tare.accounting import (
    Account,
    ThreadTime,
    combined,
    difference,
    interface_bytes,
    snapshot,
    snapshot_kernel,
)
from tare.command import Command
from tare.errors import TrialError
from tare.process import start


def thread(tid: int = 1, cpu: int = 0, wait: int = 0, switches: int = 0) -> ThreadTime:
    return ThreadTime("server", "x", tid, cpu, wait, 0, 0, switches)


def test_who_works_is_charged_and_who_sleeps_is_not() -> None:
    code = """
print("{}", flush=True); input()
for _ in range(5_000_000): pass
print("{}", flush=True); input()
"""
    with (
        start(Command((sys.executable, "-c", code))) as worker,
        start(Command(("sleep", "60"))) as idler,
    ):
        worker.event(20)
        before = combined(snapshot(worker.pid, "client"), snapshot(idler.pid, "server"))
        worker.tell("go")
        worker.event(60)
        after = combined(snapshot(worker.pid, "client"), snapshot(idler.pid, "server"))
    used = difference(before, after)
    client = sum(t.cpu_ns for t in used.threads if t.role == "client")
    server = sum(t.cpu_ns for t in used.threads if t.role == "server")
    # The sleeper may still be on its way to sleep; the loop takes some hundred times as long.
    assert client > 3 * server
    assert used.peak_memory_bytes is not None
    assert used.peak_memory_bytes > 1 << 20


def test_descendants_are_charged_to_their_root() -> None:
    code = """
import subprocess
p = subprocess.Popen(["sh", "-c", "read x; while :; do :; done"], stdin=subprocess.PIPE)
print("{}", flush=True)
input(); p.stdin.write(b"\\n"); p.stdin.flush(); p.wait()
"""
    with start(Command((sys.executable, "-c", code))) as running:
        running.event(20)
        before = snapshot(running.pid, "server")
        assert len(before.threads) == 2
        running.tell("go")
        while True:  # until the clock of the busy child has moved; pytest's timeout bounds it
            used = difference(before, snapshot(running.pid, "server"))
            busiest = max(used.threads, key=lambda t: t.cpu_ns)
            if busiest.cpu_ns > 10_000_000:
                break
    assert busiest.tid != running.pid


def test_roles_can_depend_on_the_threads_name() -> None:
    own = Path("/proc/self/comm").read_text().strip()
    account = snapshot(os.getpid(), lambda name: "vcpu" if name == own else "vmm")
    assert {t.role for t in account.threads if t.tid == os.getpid()} == {"vcpu"}


def test_the_kernels_softirq_threads_are_seen() -> None:
    names = {t.name for t in snapshot_kernel().threads}
    assert any(name.startswith("ksoftirqd/") for name in names)


def test_a_snapshot_of_the_dead_is_an_error() -> None:
    with start(Command(("true",))) as running:
        assert running.ended_within(20)
        with pytest.raises(TrialError, match="ended before"):  # a zombie still
            snapshot(running.pid, "server")
    with pytest.raises(TrialError, match="ended before"):
        snapshot(running.pid, "server")


def test_threads_that_end_or_begin_in_between_never_count_below_zero() -> None:
    before = Account((thread(1, cpu=100), thread(2, cpu=500)))
    after = Account((thread(2, cpu=700), thread(3, cpu=50)))
    assert {t.tid: t.cpu_ns for t in difference(before, after).threads} == {2: 200, 3: 50}


def test_a_recycled_number_counts_from_zero() -> None:
    used = difference(Account((thread(1, cpu=900),)), Account((thread(1, cpu=20),)))
    assert used.threads[0].cpu_ns == 20


counters = st.integers(0, 2**60)
threads = st.builds(thread, st.integers(1, 4), counters, counters, counters)
accounts = st.builds(
    Account,
    st.lists(threads, unique_by=lambda t: t.tid).map(tuple),
    st.none() | counters,
    st.none() | counters,
    st.none() | counters,
)


@given(accounts, accounts)
def test_no_difference_is_negative(before: Account, after: Account) -> None:
    used = difference(before, after)
    for t in used.threads:
        assert min(t.cpu_ns, t.wait_ns, t.user_ns, t.system_ns, t.switches) >= 0
    assert (used.sent_bytes is None) == (before.sent_bytes is None or after.sent_bytes is None)
    assert used.peak_memory_bytes == after.peak_memory_bytes


def test_interface_bytes_reads_the_kernels_table() -> None:
    table = "Inter-|  Receive | Transmit\n  eth0: 7 1 0 0 0 0 0 0 9 2 0 0 0 0 0 0\n"
    assert interface_bytes(table, "eth0") == (9, 7)
    assert interface_bytes(Path("/proc/net/dev").read_text(), "lo") != (None, None)
    assert interface_bytes("", "lo") == (None, None)


@given(st.text(max_size=300))
def test_interface_bytes_survives_any_text_without_digits(text: str) -> None:
    text = "".join(c for c in text if not c.isdigit())
    assert interface_bytes(text, "eth0") == (None, None)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), counters, counters)
def test_any_name_of_a_thread_is_read_past(name: str, user: int, system: int) -> None:
    stat = f"12 ({name}) R 1 2 3 4 5 6 7 8 9 10 {user} {system} 0 0"
    found, user_ns, system_ns, faults = accounting._parse_stat(stat)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert (found, user_ns, system_ns, faults) == (name, user * tick_ns, system * tick_ns, 7 + 9)


def test_faults_and_preemptions_are_counted_and_never_negative():
    code = """
import mmap, os
print("{}", flush=True); input()
m = mmap.mmap(-1, 4096 * 256)
for i in range(256): m[i * 4096] = 1
print("{}", flush=True); input()
"""
    with start(Command((sys.executable, "-c", code))) as running:
        running.event(20)
        before = snapshot(running.pid, "client")
        running.tell("go")
        running.event(60)
        used = difference(before, snapshot(running.pid, "client"))
    # Anonymous memory may come in huge pages: then one fault serves many.
    assert sum(t.faults for t in used.threads) > 0
    assert all(t.preemptions >= 0 for t in used.threads)
    assert used.huge_bytes is None or used.huge_bytes >= 0
