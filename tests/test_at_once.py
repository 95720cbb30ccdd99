"""What counts of two sides that run a program again and again, and what their line may be."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needs import PROGRAMS
from tare.errors import TrialError
from tare.workloads.at_once import LEAST_RUNS, counted
from tare.workloads.cpu import CPU
from tare.workloads.meeting import OneOfMany, Run, overlap, read_run

LENGTHS = st.floats(0.1, 10)
PAUSES = st.floats(0, 0.5)


def side(began: float, ends: list[tuple[float, float]]) -> Run:
    """A side whose runs, each numbered by its output, take (pause before, length), in seconds."""
    each, now = [], began
    for number, (pause, length) in enumerate(ends):
        now += pause if number else 0.0
        each.append(OneOfMany(now, now + length, str(number)))
        now += length
    return Run(began, now, 0, each[-1].output, tuple(each))


SIDES = st.builds(
    side, st.floats(0, 20), st.lists(st.tuples(PAUSES, LENGTHS), min_size=1, max_size=8)
)


@given(SIDES, SIDES)
def test_a_run_counts_when_and_only_when_the_other_side_ran_for_all_of_it(
    host: Run, guest: Run
) -> None:
    for one, other in ((host, guest), (guest, host)):
        kept = one.within(overlap((host, guest)))
        for run in one.each:
            covered = other.began <= run.began and run.ended <= other.ended
            assert (run in kept) == covered


@given(SIDES, SIDES)
def test_what_counts_is_symmetric_and_a_side_without_a_run_in_the_overlap_fails(
    host: Run, guest: Run
) -> None:
    window = overlap((host, guest))
    try:
        found = counted(host, guest)
    except TrialError as error:
        assert not host.within(window) or not guest.within(window)
        assert "in which both sides ran" in str(error)
        return
    assert found.host
    assert found.guest
    assert found.seconds == window[1] - window[0] > 0
    # Each side's runs and what lies between them fill its time.
    assert found.host_cycle_s * len(host.each) == pytest.approx(host.seconds)
    swapped = counted(guest, host)
    assert (swapped.host, swapped.guest) == (found.guest, found.host)


@given(LENGTHS, LENGTHS, st.floats(0, 0.999), st.booleans())
def test_sides_that_run_until_both_have_enough_have_one_that_counts(
    host_length: float, guest_length: float, late: float, host_first: bool
) -> None:
    """As the meeting has it: each ends its run under way once both have ended the least."""
    first, second = (host_length, guest_length) if host_first else (guest_length, host_length)
    begins = (0.0, late * first)
    enough = max(
        begin + LEAST_RUNS * length for begin, length in zip(begins, (first, second), strict=True)
    )
    runs = [
        side(begin, [(0.0, length)] * math.floor((enough - begin) / length + 1))
        for begin, length in zip(begins, (first, second), strict=True)
    ]
    host, guest = runs if host_first else reversed(runs)
    found = counted(host, guest)
    assert len(found.host) >= 1
    assert len(found.guest) >= 1


def test_runs_are_placed_on_this_machines_clock_by_the_end_that_was_seen_here() -> None:
    # The side's own clock says something else; only differences of it are taken.
    each = [
        {"start_ns": 0, "end_ns": 10**9, "output": "a"},
        {"start_ns": 15 * 10**8, "end_ns": 25 * 10**8, "output": "b"},
    ]
    line = {"code": 0, "wall_ns": 25 * 10**8, "user_ns": 3, "system_ns": 4, "output": "b"}
    run = read_run({**line, "runs": each}, 102.5)
    assert [(one.began, one.ended, one.output) for one in run.each] == [
        (100.0, 101.0, "a"),
        (101.5, 102.5, "b"),
    ]
    assert (run.began, run.ended, run.cpu_ns) == (100.0, 102.5, 7)
    # Its last run ends when it ends, to the bit: so it counts where this side ended first.
    assert run.within((100.0, run.ended)) == run.each


KEYS = ("code", "wall_ns", "user_ns", "system_ns", "output", "runs", "start_ns", "end_ns")
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=8)
    ),
    max_leaves=16,
)


@given(st.dictionaries(st.sampled_from(KEYS), ANY))
def test_any_line_of_a_side_is_a_run_or_a_failed_trial(line: dict[str, object]) -> None:
    try:
        run = read_run(line, 100.0)
    except TrialError:
        return
    assert math.isfinite(run.began)
    assert run.each == run.within((-math.inf, math.inf))


def test_a_plan_counts_the_runs_that_a_concurrent_trial_takes() -> None:
    def seconds(mode: str) -> float:
        levels = {"environment": "native", "class": "integer", "mode": mode}
        return CPU.seconds(CPU.levels(levels), CPU.settings({"seconds": "2"}))

    assert seconds("concurrent") > (LEAST_RUNS + 1) * seconds("alone")


def test_a_far_machine_has_no_host_beside_it() -> None:
    levels = CPU.levels(
        {"environment": "ssh me@there:22", "class": "integer", "mode": "concurrent"}
    )
    assert "no host of ours" in str(CPU.lacking(levels, CPU.settings({}), PROGRAMS))
    assert CPU.lacking(levels.but(mode="alone"), CPU.settings({}), PROGRAMS) is None
