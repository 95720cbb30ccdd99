"""The workload migration: what its factors mean, and what is made of a migration's events."""

from __future__ import annotations

import asyncio
import json
import lzma
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tare.analysis.questions import Question
from tare.cell import Cell
from tare.errors import TrialError, UsageError
from tare.guests.monitor import Event, Monitor
from tare.plan import Comparison
from tare.stats import paired_ratio
from tare.told import Told
from tare.workloads import Measurement
from tare.workloads.migration import WORKLOAD, arms, ksm, load, rows, usage
from tare.workloads.migration.beside import Throughput
from tare.workloads.migration.guest import Blueprint, Guest
from tare.workloads.migration.hypervisor import Hypervisor
from tare.workloads.migration.journey import Journey, travel
from tare.workloads.migration.proxies import Proxies
from tare.workloads.migration.rows import MigrationLevels, MigrationSettings
from tare.workloads.migration.testbed import Bed
from tare.workloads.migration.workload import _Trial

LEVELS = MigrationLevels.defaults()
SESSION = MigrationSettings.defaults()


@pytest.mark.parametrize(
    ("factor", "written", "shown"),
    [
        ("guest", "micro 82.8%", "micro 82.8 %"),
        ("guest", "micro 64.0 %", "micro 64 %"),
        ("guest", "web", "web"),
        ("wire", "0.1 Gbit/s", "100 Mbit/s"),
        ("wire", "unlimited", "unlimited"),
        ("round_trip", "0.04 s", "40 ms"),
        ("round_trip", "0 ms", "0 us"),
        ("loss", "0.001", "0.1 %"),
        ("loss", "0 %", "0 %"),
        ("rate", "20 Hz", "20/s"),
        ("dirty", "30 MiB", "30 MiB"),
    ],
)
def test_one_level_has_one_form_however_it_is_written(factor, written, shown):
    row = MigrationLevels.rows[factor]
    assert row.level(written) == shown
    assert row.level(shown) == shown


@pytest.mark.parametrize(
    ("factor", "written"),
    [
        ("guest", "micro 120 %"),
        ("guest", "database"),
        ("arm", "postcopy"),
        ("wire", "0 Gbit/s"),
        ("round_trip", "2 s"),
        ("round_trip", "10 ms each way"),
        ("loss", "30 %"),
        ("loss", "1"),
        ("rate", "0/s"),
        ("dirty", "fast"),
    ],
)
def test_a_level_that_means_nothing_is_refused(factor, written):
    with pytest.raises(UsageError, match=f"'{re.escape(written)}'"):
        MigrationLevels.rows[factor].level(written)


def test_only_a_guest_that_is_asked_has_a_rate():
    assert "rate" in WORKLOAD.applicable(LEVELS.but(guest="memcached"))
    assert "rate" not in WORKLOAD.applicable(LEVELS.but(guest="compile"))


def test_a_wire_with_a_distance_needs_its_program_and_one_without_does_not(tmp_path):
    levels = LEVELS.but(processors="all", testbed="tiny", memory="1 MiB")
    for far in ({"round_trip": "1 ms"}, {"loss": "1 %"}):
        assert "probe/probe" in str(WORKLOAD.lacking(levels.but(**far), SESSION, tmp_path))
    assert "probe/probe" not in str(WORKLOAD.lacking(levels, SESSION, tmp_path))


def test_trials_at_a_distance_are_expected_to_take_longer():
    near, far = (LEVELS.but(round_trip=each) for each in ("0 ms", "100 ms"))
    assert WORKLOAD.seconds(far, SESSION) > WORKLOAD.seconds(near, SESSION)


def test_a_comma_in_a_path_is_none_of_qemus(tmp_path: Path) -> None:
    made = Blueprint(Hypervisor("qemu", "10.0"), tmp_path, tmp_path, False, "tcg", 1 << 28)
    guest = Guest(made, name="one", netns="n", logs=tmp_path / "a,b", folder=tmp_path, role="boot")
    with Monitor("QEMU", greets=True) as guest._qmp:
        words = guest._command_line()
    assert f"file,id=console,path={tmp_path}/a,,b/one.console" in words


def crossed(**wire: Any) -> Any:
    """A result of one trial over a wire."""
    settings = Told.model_validate({"wire": {"bits_s": 10**9, "measured_bits_s": 0.955e9, **wire}})
    return SimpleNamespace(trials=[SimpleNamespace(settings=settings)], cells=[])


RELAY: dict[str, Any] = {
    "round_trip_ns": 40_000_000,
    "measured_round_trip_ns": 40_400_000,
    "relay_ns_per_byte": 2.0,
    "tcp": {"tcp_wmem": "4096 16384 4194304", "tcp_congestion_control": "cubic"},
    "forth": {"late_mean_ns": 30_000, "late_most_ns": 1_200_000},
    "back": {"late_mean_ns": 10_000, "late_most_ns": 20_000},
}


def test_a_report_says_what_a_long_wire_carried_and_took():
    said, tcp = WORKLOAD.remarks(crossed(**RELAY))
    for part in (
        "1 Gbit/s",
        "40 ms",
        "40.4 ms",
        "0.955 Gbit/s",
        "0.24 of a processor",
        "20 us late",
    ):
        assert part in said
    assert "1.2 ms at most" in said
    assert "cubic, with at most 4 MiB" in tcp
    assert "less than was asked for" not in said
    assert "not to lose" not in said


def test_a_report_says_of_a_wire_that_it_fell_short_or_lost_frames_unasked():
    assert WORKLOAD.remarks(crossed()) == ()
    (said,) = WORKLOAD.remarks(crossed(bits_s=25 * 10**9, measured_bits_s=1.2e10))
    assert "25 Gbit/s carried 12 Gbit/s" in said
    assert "less than was asked for" in said
    said, _ = WORKLOAD.remarks(crossed(**{**RELAY, "forth": {"overflowed_frames": 3}}))
    assert "lost 3 frames that it was not to lose" in said


def test_the_micro_benchmark_fills_memory_of_which_a_share_is_alike():
    plot = LEVELS.but(memory="512 MiB", dirty="0 B")
    assert rows.words("micro 82.8 %", plot, seed=7) == ("tare.work=idle", "tare.own=320,828,7")
    assert rows.words("random", plot, seed=7) == ("tare.work=idle", "tare.own=320,0,7")


def test_a_dirtying_guest_is_told_how_fast():
    words = rows.words("idle", LEVELS.but(memory="512 MiB", dirty="30 MiB"), seed=7)
    assert words == ("tare.work=idle", f"tare.dirty={30 << 20},7")


def test_every_arm_with_proxies_names_sources_and_every_other_none_of_their_options():
    for arm in arms.ARMS:
        assert arm.help
        assert arm.sources or not arm.proxied
        assert arm.proxied or not (arm.receive or arm.ksm or arm.returning or arm.differing)


@given(st.lists(st.integers(0, 10**10), min_size=2, max_size=12), st.integers(0, 6))
def test_the_parts_of_a_migration_sum_to_the_whole(gaps, iterations):
    times = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    journey = Journey(
        asked=times[0],
        passes=tuple(times[1 : 1 + iterations]),
        stopped=times[-1],
        completed=times[-1],
        resumed=times[-1] + 5,
        reported_downtime_ms=0,
        iterations=iterations,
    )
    parts = journey.parts()
    assert sum(parts.values()) == journey.total
    assert all(part >= 0 for part in parts.values())
    assert journey.downtime == 5


class _Restless:
    """A guest whose migration goes from pass to pass."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def forget_events(self) -> None: ...

    def ask(self, what: str, **_: str) -> None:
        self.asked.append(what)

    def event(self, _timeout_s: float) -> Event:
        return Event("MIGRATION_PASS", 1, {})


def test_a_migration_that_does_not_converge_is_cancelled_in_time() -> None:
    source: Any = _Restless()
    with pytest.raises(TrialError, match=r"did not end within 0.05 s"):
        travel(source, source, "unix:x", 0.05)
    assert source.asked == ["migrate", "migrate_cancel"]


class _Arriving(_Restless):
    """A guest whose migration has ended by the time somebody looks."""

    def event(self, _timeout_s: float) -> Event:
        name = "RESUME" if "cont" in self.asked else "MIGRATION"
        return Event(name, 2, {"status": "completed"})

    def ask(self, what: str, **_: str) -> Any:
        super().ask(what)
        return {}


def test_a_migration_that_ended_at_its_deadline_has_ended() -> None:
    source: Any = _Arriving()
    assert travel(source, source, "unix:x", 0.0).completed == 2
    assert "migrate_cancel" not in source.asked


def test_however_much_a_load_was_answered_its_report_has_short_lines() -> None:
    guest = load.LoadedGuest("web", "10.0.0.2", random.Random(1))
    guest.done, guest.failed = list(range(25_000)), 3
    lines = [json.dumps(event) for event in load.report([guest])]
    assert max(map(len, lines)) < 1 << 20
    bed: Any = SimpleNamespace(load=_Telling(lines))
    assert Bed.answers(bed) == {"web": {"done": list(range(25_000)), "failed": 3}}
    bed = SimpleNamespace(load=_Telling([json.dumps(event) for event in load.report([guest])]))
    assert Bed.answers(bed) == {"web": {"done": [], "failed": 0}}


class _Telling:
    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)

    def tell(self, line: str) -> None:
        assert line == "report"

    def event(self, _timeout_s: float) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(next(self._lines))
        return found


def test_ksm_that_has_not_seen_all_memory_is_no_ksm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full_scans").write_text("7\n")
    monkeypatch.setattr(ksm, "_ROOT", tmp_path)
    monkeypatch.setattr(ksm, "_TIMEOUT_S", 0.01)
    with pytest.raises(TrialError, match="not seen all memory twice"):
        ksm._wait_for_scans()


def test_what_pageshare_passed_on_unread_is_no_migration_through_it(tmp_path: Path) -> None:
    told = {"error": None, "verbatim": "main: RAM word 0x400", "verbatim_bytes": 1 << 30}
    for role in ("send", "receive"):
        (tmp_path / f"{role}.json").write_text(json.dumps(told) + "\n")
    proxies = Proxies.__new__(Proxies)
    proxies._scratch = tmp_path
    proxies._sender = proxies._receiver = cast("Any", None)
    with pytest.raises(TrialError, match=r"unread.*RAM word 0x400"):
        proxies.records_of_pages()


def test_a_guest_whose_pages_passed_unread_is_brought_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unread() -> None:
        assert bed.bring_back.called
        raise TrialError("passed pages on unread")

    bed: Any = MagicMock()
    settings: Any = SimpleNamespace(warmup=0)
    bench: Any = SimpleNamespace(settings=settings, site=None, inside=SimpleNamespace(bed=bed))
    levels: Any = SimpleNamespace(arm=arms.BY_NAME["pageshare"], destination="lazy")
    trial = _Trial(levels, bench)
    proxies = SimpleNamespace(records_of_pages=unread, index_seconds=1.0)
    monkeypatch.setattr(trial, "_measured", lambda *_: (Measurement(), proxies))
    with pytest.raises(TrialError, match="unread"):
        trial.run()
    bed.bring_back.assert_called_once()


@pytest.mark.parametrize("seconds", [-5, 5])
def test_a_migration_in_which_the_clock_was_set_is_no_measurement(
    seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed: Any = MagicMock()
    settings: Any = SimpleNamespace(warmup=0)
    bench: Any = SimpleNamespace(settings=settings, site=None, inside=SimpleNamespace(bed=bed))
    levels: Any = SimpleNamespace(arm=arms.BY_NAME["plain"], destination="lazy")
    trial = _Trial(levels, bench)
    now, ahead = time.time_ns, [0, seconds]
    monkeypatch.setattr(time, "time_ns", lambda: now() + ahead[0] * 10**9)
    measured = Measurement(), None
    monkeypatch.setattr(trial, "_measured", lambda *_: measured)
    assert trial.run() is measured[0]
    monkeypatch.setattr(trial, "_measured", lambda *_: ahead.pop(0) or measured)
    with pytest.raises(TrialError, match=rf"was set by \{seconds:+}\.00"):
        trial.run()
    assert bed.bring_back.call_count == 2


class _Answering:
    """A bed whose load was answered at known times."""

    def __init__(self) -> None:
        self.load: object | None = None
        self.done: dict[str, list[int]] = {}

    def answers(self) -> dict[str, Any]:
        found = {guest: {"done": times, "failed": 1} for guest, times in self.done.items()}
        self.done = {}
        return found


def test_those_beside_are_compared_with_themselves_before():
    bed: Any = _Answering()
    watched = Throughput(bed, 0.01)
    begin, end = watched._from, watched._until
    ms = 10**6
    journey = Journey(end, (), end + 80 * ms, end + 90 * ms, end + 100 * ms, 0, 1)
    span = (end - begin) // 10
    bed.done = {
        "stays": [begin + n * span for n in range(10)] + [end + n * 10 * ms for n in range(10)],
        "peer": [begin + n * span for n in range(10)],
    }
    found = watched.ratios(journey)
    before, during = 10 / ((end - begin) / 1e9), 10 / 0.1
    assert found["beside_source"] == pytest.approx(during / before)
    assert "beside_destination" not in found  # none at all: a ratio of 0 has no logarithm
    series = watched.series(journey)
    assert series["failed"] == {"stays": 1, "peer": 1}
    assert sum(series["rates"]["stays"]) * series["bin_s"] >= 10


def test_a_meter_counts_threads_that_have_ended_and_leaves_out_those_it_was_told_to():
    work = (
        "import sys, threading\n"
        "def spin():\n"
        "    for _ in range(2_000_000): pass\n"
        "sys.stdin.readline()\n"
        "t = threading.Thread(target=spin); t.start(); t.join()\n"
        "print('done', flush=True); sys.stdin.readline()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        whole = usage.Meter.start(process.pid)
        without_main = usage.Meter.start(process.pid, usage.threads(process.pid))
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        assert 0 < without_main.read() <= whole.read()
        process.stdin.close()
    assert usage.Meter.start(process.pid).read() == 0


def test_an_item_of_memcached_is_of_the_size_it_says():
    target = load.LoadedGuest("stays", "127.0.0.1", random.Random(1))
    item = load._item(target, 5, 2, reply=True)
    head, value, rest = item.split(b"\r\n")
    assert head == b"set session:5 0 0 1024"
    assert (len(value), rest) == (1024, b"")


def test_no_code_is_shorter_than_what_is_drawn_for_items_and_a_good_one_hardly_longer():
    guest = load.LoadedGuest("stays", "127.0.0.1", random.Random(1))
    items = b"".join(load._item(guest, key, 0, reply=False) for key in range(2000))
    drawn = load.drawn_bytes() / load._ITEMS * 2000
    assert drawn < len(lzma.compress(items)) < 1.3 * drawn


def test_the_load_counts_a_guest_that_is_not_there_as_failed():
    target = load.LoadedGuest("stays", "127.0.0.1", random.Random(1))

    async def refused(_target: load.LoadedGuest, _number: int) -> bool:
        raise ConnectionRefusedError

    asyncio.run(load._ask(refused, target, 1))
    assert (target.done, target.failed) == ([], 1)
    part, _ = load.report([target])
    assert part == {"event": "part", "guest": "stays", "done": [], "failed": 1}
    assert target.failed == 0


def test_paper_ds_savings_stand_beside_ours():
    def cell(arm: str) -> Cell:
        return Cell(id=arm, levels=LEVELS.but(guest="web", arm=arm))

    halved = paired_ratio([1.0, 1.1, 0.9, 1.0, 1.05, 0.95], [2.0, 2.2, 1.8, 2.0, 2.1, 1.9])
    question = Question(
        comparison=Comparison(
            id="q", kind="effect", cell="pageshare", against="plain", family=True
        ),
        cell=cell("pageshare"),
        against=cell("plain"),
        ratio=halved,
        judgement=None,
        others=dict.fromkeys(("time", "wire", "cpu"), halved),
    )
    result = cast("Any", SimpleNamespace(questions=[question], trials=[]))
    found = {row.figure.id: row for row in WORKLOAD.beside(result)}
    assert set(found) == {"time-httperf", "network-httperf", "cpu-httperf"}
    ours = found["time-httperf"].ours[0]
    assert ours.estimate == pytest.approx(50)
    assert ours.low is not None
    assert ours.high is not None
    assert ours.low <= ours.estimate <= ours.high
