"""The barrier: everybody begins together, and when each ended is seen from here."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from needs import needs_root
from tare.environments import Site
from tare.environments.native import Native
from tare.errors import TrialError
from tare.workloads import meeting as meeting_module
from tare.workloads.meeting import Meeting, overlap

pytestmark = [pytest.mark.system, needs_root]


def test_nobody_begins_before_everybody_is_there_and_ends_are_told_apart(tidy_site: Site) -> None:
    with (
        Native().enter(tidy_site) as inside,
        Meeting(tidy_site) as meeting,
        inside.start(meeting.command(["sh", "-c", "echo one; sleep 2"])) as first,
    ):
        meeting.arrived(first)
        with pytest.raises(TrialError, match="said nothing"):
            first.event(0.3)  # it waits, though it alone is there
        with inside.start(meeting.command(["sh", "-c", "echo two >&2; sleep 1"])) as second:
            meeting.arrived(second)
            runs = meeting.held([first, second], 60)
    assert [run.output for run in runs] == ["one\n", "two\n"]
    assert runs[1].ended < runs[0].ended
    # They overlapped: each began before the other ended.
    assert runs[0].began < runs[1].ended
    assert runs[0].seconds >= 2


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (["sh", "-c", "echo no such luck; exit 3"], "code 3: no such luck"),
        (["no-such-program"], "code 127"),
    ],
)
def test_a_program_that_fails_says_why(tidy_site: Site, program: list[str], said: str) -> None:
    with (
        Native().enter(tidy_site) as inside,
        Meeting(tidy_site) as meeting,
        inside.start(meeting.command(program)) as side,
    ):
        meeting.arrived(side)
        with pytest.raises(TrialError, match=said):
            meeting.held([side], 30)


def test_one_that_does_not_end_in_time_is_given_up(tidy_site: Site) -> None:
    with (
        Native().enter(tidy_site) as inside,
        Meeting(tidy_site) as meeting,
        inside.start(meeting.command(["sleep", "60"])) as side,
    ):
        meeting.arrived(side)
        with pytest.raises(TrialError, match="did not end in time"):
            meeting.held([side], 0.2)


def test_a_side_that_dies_before_it_comes_says_why(
    tidy_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting_module, "_ARRIVAL_TIMEOUT_S", 2.0)
    with Native().enter(tidy_site) as inside, Meeting(tidy_site) as meeting:
        argv = list(meeting.command(["true"]))
        argv[argv.index("--port") + 1] = "1"  # nobody listens there
        with inside.start(argv) as side, pytest.raises(TrialError, match="cannot reach"):
            meeting.arrived(side)


def test_both_sides_run_again_and_again_until_the_slower_has_enough(tidy_site: Site) -> None:
    with (
        Native().enter(tidy_site) as inside,
        Meeting(tidy_site) as meeting,
        inside.start(meeting.command(["sh", "-c", "sleep 0.05; echo quick"], again=True)) as first,
    ):
        meeting.arrived(first)
        slow = ["sh", "-c", "sleep 0.5; echo slow"]
        with inside.start(meeting.command(slow, again=True)) as second:
            meeting.arrived(second)
            runs = meeting.held_again([first, second], 2, 60)
    quick, late = runs
    assert len(late.each) >= 2
    assert len(quick.each) > len(late.each)
    assert {one.output for one in quick.each} == {"quick\n"}
    assert {one.output for one in late.each} == {"slow\n"}
    for run in runs:
        assert run.began == run.each[0].began
        assert run.ended == run.each[-1].ended
        for one, following in pairwise(run.each):
            assert one.began < one.ended <= following.began
    assert quick.within(overlap(runs))
    assert late.within(overlap(runs))


def test_a_side_that_fails_among_its_runs_ends_the_meeting_and_says_why(
    tidy_site: Site, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    program = ["sh", "-c", f"test ! -e {mark} || {{ echo had its day; exit 3; }}; touch {mark}"]
    with (
        Native().enter(tidy_site) as inside,
        Meeting(tidy_site) as meeting,
        inside.start(meeting.command(["sleep", "0.1"], again=True)) as steady,
    ):
        meeting.arrived(steady)
        with inside.start(meeting.command(program, again=True)) as failing:
            meeting.arrived(failing)
            with pytest.raises(TrialError, match="code 3: had its day"):
                meeting.held_again([steady, failing], 1000, 60)
