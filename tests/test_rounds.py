"""What of a block is measured at once, and the threads that do it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import records
from needs import tare
from tare import experiment, lanes, plan, rounds
from tare.errors import UsageError
from tare.record import Record, Trial
from tare.sides import TareRun

A, B, C = (f"ssh root@{name}" for name in "abc")


def written(levels, how="at-once", rest="workload: cpu\nstatistic: score\n"):
    listed = ", ".join(levels)
    text = f"title: t\nfactors: {{environment: [{listed}]}}\nbaseline: {{environment: {levels[0]}}}"
    return f"{text}\nfamily: none\nblocks: {{min: 3, max: 3}}\nhosts: {how}\n{rest}"


def laid_out(*asked, seed=1, **more):
    return plan.make(experiment.parse(written(*asked, **more), "x.yaml"), seed)


def parts(made):
    return [[*rounds.of_block(made, block)] for block in made.blocks]


def machine(visit):
    level = visit.plot["environment"]
    return level.partition("/")[0].partition(":")[0].partition("@")[2] or None


@given(
    st.sets(
        st.sampled_from([A, f"{A}/container", f"{A}:23", B, f"{B}/qemu", "native", "container"])
    ),
    st.integers(0, 99),
)
def test_no_round_has_a_machine_twice_and_what_is_here_is_alone_in_its_place(levels, seed):
    made = laid_out([C, *sorted({A, B} | levels)], seed=seed)
    for block, found in zip(made.blocks, parts(made), strict=True):
        flat = [visit for visits in found for visit in visits]
        assert sorted(map(str, flat)) == sorted(map(str, block))
        for visits in found:
            named = [machine(visit) for visit in visits]
            assert len(named) == len(set(named))
            assert None not in named or len(named) == 1
        # Of one machine in the order that was drawn, and so of all that is on either side of ours.
        for name in "abc":
            assert [v for v in flat if machine(v) == name] == [
                v for v in block if machine(v) == name
            ]
        for visit in block:
            if machine(visit) is None:
                before = block[: block.index(visit)]
                assert sorted(map(str, flat[: flat.index(visit)])) == sorted(map(str, before))


def test_hosts_without_a_visit_of_ours_between_are_all_in_one_round():
    for found in parts(laid_out([A, B, C, f"{C}/container"])):
        first, *others = found
        assert {machine(visit) for visit in first} == {"a", "b", "c"}
        assert all(len(visits) < 3 for visits in others)


def test_nothing_is_at_once_unless_it_is_asked_for():
    assert all(len(visits) == 1 for found in parts(laid_out([A, B], "in-turn")) for visits in found)


@pytest.mark.parametrize(
    ("levels", "rest"),
    [
        ([A, "native"], "workload: cpu\nstatistic: score\n"),
        ([A, f"{A}/container", "ssh you@a:24"], "workload: cpu\nstatistic: score\n"),
        ([A, B], "workload: request-reply\n"),
        ([A, B], "workload: overhead\nstatistic: wake-process\n"),
    ],
)
def test_where_no_two_hosts_could_be_at_once_it_is_refused(levels, rest):
    with pytest.raises(UsageError, match="at-once asks for two or more machines"):
        laid_out(levels, rest=rest)


def test_who_reads_a_plan_or_compares_results_is_told(tmp_path):
    for how in ("at-once", "in-turn"):
        made = laid_out([A, B, "native"], how)
        record = Record.create(tmp_path / how, "title: t\n", made, records.FINGERPRINT)
        told = TareRun(record).settings.get("hosts")
        (tmp_path / f"{how}.yaml").write_text(written([A, B, "native"], how))
        shown = tare("run", tmp_path / f"{how}.yaml", "--dry-run")
        assert shown.returncode == 0, shown.stderr
        assert (
            (told == "at-once") == ("up to 2 hosts at once" in shown.stdout) == (how == "at-once")
        )


def trial(cell):
    return Trial(block=0, position=0, cell=cell, session="s", started="", seconds=0, status="ok")


def test_hosts_run_at_once_and_one_hosts_trials_one_after_another():
    met = threading.Barrier(2, timeout=30)
    running: dict[str, int] = {"a": 0, "b": 0}
    most: dict[str, int] = {"a": 0, "b": 0}

    def measured(host, cell):
        running[host] += 1
        most[host] = max(most[host], running[host])
        met.wait()  # the other host is at it too, or this never ends
        running[host] -= 1
        return trial(cell)

    hosts = [
        [(f"{host}{n}", lambda host=host, n=n: measured(host, f"{host}{n}")) for n in range(3)]
        for host in "ab"
    ]
    with lanes.Lanes() as threads:
        found = [*threads.measured(hosts)]
    assert most == {"a": 1, "b": 1}
    assert [t.cell for t in found if t.cell[0] == "a"] == ["a0", "a1", "a2"]
    for one in found:
        assert f"{'b' if one.cell[0] == 'a' else 'a'}{one.cell[1]}" in one.beside
        assert not any(cell[0] == one.cell[0] for cell in one.beside)


def test_what_ran_beside_a_trial_is_told_to_the_end_of_it():
    long_runs, short_ended = threading.Event(), threading.Event()

    def long():
        long_runs.set()
        short_ended.wait(30)
        return trial("long")

    def short(cell):
        long_runs.wait(30)
        return trial(cell)

    hosts = [
        [("long", long)],
        [("first", lambda: short("first")), ("second", lambda: short("second"))],
    ]
    found = {}
    with lanes.Lanes() as threads:
        for one in threads.measured(hosts):
            found[one.cell] = one.beside
            if one.cell == "second":
                short_ended.set()
    assert found == {"long": ("first", "second"), "first": ("long",), "second": ("long",)}


def test_who_leaves_early_begins_nothing_more_and_waits_for_what_runs():
    began, hung_up = threading.Event(), threading.Event()

    def waits():
        began.set()
        assert hung_up.wait(30)
        return trial("first")

    def never():
        raise AssertionError("it began after all")

    with pytest.raises(KeyboardInterrupt), lanes.Lanes() as threads:
        try:
            for _ in threads.measured(
                [[("quick", lambda: trial("quick"))], [("first", waits), ("second", never)]]
            ):
                began.wait(30)
                raise KeyboardInterrupt
        finally:
            threads.leave()
            hung_up.set()


def test_a_fault_of_ours_in_a_thread_is_not_lost():
    def faulty():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), lanes.Lanes() as threads:
        for one in threads.measured([[("a", faulty)], [("b", lambda: trial("b"))]]):
            assert one.cell == "b"
