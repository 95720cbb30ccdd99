"""Where the wall time went: every moment is somewhere, and `--profile` shows it."""

from hypothesis import given
from hypothesis import strategies as st

from tare.cli import printing, profile
from tare.stopwatch import PHASES, Stopwatch

steps = st.lists(
    st.tuples(
        st.floats(0, 100), st.sampled_from(["at", "back", "now"]), st.sampled_from("abc"),
        st.sampled_from(PHASES),
    )
)  # fmt: skip


@given(steps, st.floats(0, 100))
def test_all_of_the_time_is_accounted_for(steps, rest):
    now = [7.0]
    watch = Stopwatch(lambda: now[0])
    for seconds, step, place, phase in steps:
        now[0] += seconds
        getattr(watch, step)(*((phase,) if step == "now" else (place, phase)))
    now[0] += rest
    found = sum(sum(row.seconds.values()) for row in watch.rows())
    assert abs(found - (now[0] - 7.0)) < 1e-9 * max(1.0, now[0])


def test_a_place_counts_as_often_as_it_is_come_to():
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    for _ in range(2):
        watch.at("native", "setting up")
        now[0] += 1
        watch.at("native/udp", "starting")
        now[0] += 2
        watch.now("measuring")
        now[0] += 4
        watch.back("native", "taking down")
        now[0] += 8
    rows = {row.place: row for row in watch.rows()}
    assert rows["native"].times == rows["native/udp"].times == 2
    assert rows["native"].seconds == {"setting up": 2.0, "taking down": 16.0}
    assert rows["native/udp"].seconds == {"starting": 4.0, "measuring": 8.0}


def test_the_table_has_a_row_a_place_and_says_how_much_was_measured(capsys, monkeypatch):
    now = [0.0]
    watch = Stopwatch(lambda: now[0])
    watch.at("container/udp", "starting")
    now[0] += 3
    watch.now("measuring")
    now[0] += 1
    monkeypatch.setattr(printing, "err", printing.Console(stderr=True, width=40))
    profile.show(watch)
    said = capsys.readouterr().err
    assert any(line.split() == ["container/udp", "1", "3.00", "1.00", "4.00"]
               for line in said.splitlines())  # fmt: skip
    assert "measuring: 1.0 of 4.0 s, 25%" in said
