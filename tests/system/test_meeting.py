"""The barrier: everybody begins together, and when each ended is seen from here."""

from __future__ import annotations

import pytest

from needs import needs_root
from tare.environments import Site
from tare.environments.native import Native
from tare.errors import TrialError
from tare.workloads import meeting as meeting_module
from tare.workloads.meeting import Meeting

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
