"""Sentences say neither more nor less than the verdict allows."""

import records
from tare import analysis
from tare.analysis import Question
from tare.cell import Cell
from tare.plan import Comparison
from tare.report import remarks, wording
from tare.stats import Judgement, Verdict, paired_ratio
from tare.workloads import Statistic

LEVELS = {"transport": "cyclonedds", "mode": "closed"}
NATIVE = Cell(id="n", levels={"environment": "native", **LEVELS})
GUEST = Cell(id="q", levels={"environment": "qemu", **LEVELS})
B = [16.8e3, 16.9e3, 16.7e3, 16.8e3, 16.85e3, 16.75e3, 16.9e3, 16.7e3]


class View:
    def __init__(self, cell, accelerator=None):
        self.cell = cell
        self.accelerator = accelerator


NAMES = wording.Names(
    [View(NATIVE), View(GUEST, "tcg")],
    {"environment": "native"},
    {"n": "A response through Cyclone DDS", "q": "A response through Cyclone DDS"},
)
TIME = Statistic("median response time")


def say(verdict, factor, numerator=GUEST, statistic=TIME):
    a = [value * factor * shift for value, shift in zip(B, [1.01, 0.99] * 4, strict=True)]
    question = Question(
        comparison=Comparison(id="x", kind="effect", cell="q", against="n", family=True),
        cell=numerator,
        against=NATIVE,
        ratio=paired_ratio(a, B),
        judgement=Judgement(verdict, "because", 0.01) if verdict else None,
        others={},
    )
    said = str(wording.sentence(question, NAMES, 0.03, statistic))
    return said.replace("\N{NO-BREAK SPACE}", " ")


def test_slower():
    said = say(Verdict.SLOWER, 26.7)
    assert said.startswith("A response through Cyclone DDS takes 26.7")
    assert "as long in the QEMU guest (TCG) as on the host: 449 µs against 16.80 µs" in said


def test_faster():
    assert "takes only 0.500 \N{MULTIPLICATION SIGN} [0.495, 0.505] as long" in say(
        Verdict.FASTER, 0.5
    )


def test_equivalent_names_the_margin():
    assert "takes as long in the QEMU guest (TCG) as on the host, within ±3 %" in say(
        Verdict.EQUIVALENT, 1.0
    )


def test_a_rate_that_falls_is_no_longer_time():
    rate = Statistic("bytes a second", "B/s", "higher")
    said = say(Verdict.SLOWER, 0.5, statistic=rate)
    assert "reaches only 0.500" in said
    assert "as much throughput in the QEMU guest (TCG) as on the host: 8.40 kB/s" in said


def test_bytes_are_neither_slow_nor_fast():
    said = say(Verdict.MORE, 2.0, statistic=Statistic("bytes on the wire", "B"))
    assert "takes 2.000" in said
    assert "as many bytes" in said


def test_inconclusive_claims_nothing():
    said = say(Verdict.INCONCLUSIVE, 1.02)
    assert said.startswith(
        "More data are needed to tell whether a response through Cyclone DDS takes longer in the"
    )


def test_below_the_instrument_claims_nothing():
    assert "below what the instrument can tell" in say(Verdict.BELOW_INSTRUMENT, 1.0)


def test_without_a_block_there_is_no_number():
    question = Question(
        comparison=Comparison(id="x", kind="effect", cell="q", against="n", family=True),
        cell=GUEST,
        against=NATIVE,
        ratio=paired_ratio([], []),
        judgement=Judgement(Verdict.NOT_MEASURED, "0 complete blocks give no interval", 1.0),
        others={},
    )
    assert "is not compared with that on the host: no block has both" in str(
        wording.sentence(question, NAMES, 0.03, TIME)
    )


def test_other_factors_than_the_environment_are_compared_in_their_own_words():
    levels = {"environment": "native", "transport": "udp"}
    base = Cell(id="a", levels={**levels, "interference": "none"})
    busy = Cell(id="b", levels={**levels, "interference": "host cpu 50 %"})
    names = wording.Names([View(base), View(busy)], {"interference": "none"})
    assert names.main(busy) == ("host cpu 50 %", "with host cpu 50 %")
    assert names.main(base) == ("undisturbed", "undisturbed")
    assert names.place(busy).series == "UDP"


def test_a_level_that_nobody_named_is_shown_as_it_is():
    cells = [View(Cell(id=x, levels={"environment": x, "transport": "udp"})) for x in ("m", "n")]
    names = wording.Names(cells, {"environment": "m"})
    assert names.main(cells[1].cell) == ("n", "in n")
    assert names.level("query", "name from users") == "query name from users"


def test_where_transports_are_compared_each_is_named_once():
    levels = {"environment": "native", "mode": "closed"}
    base = Cell(id="a", levels={**levels, "transport": "udp"})
    dds = Cell(id="b", levels={**levels, "transport": "cyclonedds"})
    subjects = {"a": "A response through UDP", "b": "A response through Cyclone DDS"}
    names = wording.Names([View(base), View(dds)], {"transport": "udp"}, subjects)
    assert names.place(dds).full == "Cyclone DDS, Host"
    question = Question(
        comparison=Comparison(id="x", kind="effect", cell="b", against="a", family=True),
        cell=dds,
        against=base,
        ratio=paired_ratio([2.0 * value for value in B], B),
        judgement=Judgement(Verdict.SLOWER, "because", 0.01),
        others={},
    )
    said = str(wording.sentence(question, names, 0.03, TIME))
    assert said.startswith("A response through Cyclone DDS takes 2")
    assert " as long as with UDP: " in said


def test_where_every_trial_failed_no_more_blocks_are_asked_for(tmp_path):
    record = records.make(tmp_path / "whole", records.Recipe(blocks=1))
    ids = [cell.id for cell in record.plan.cells]
    failing = frozenset((block, cell) for block in range(12) for cell in ids)
    failed = records.make(tmp_path / "failed", records.Recipe(blocks=12, failing=failing))
    said = remarks.outcome(analysis.analyse(failed))
    assert said.endswith("nothing can be compared: too few of their trials succeeded.")


def test_a_row_says_what_tells_it_from_the_others_and_not_what_all_share():
    cells = [Cell(id=arm, levels={"arm": arm, "guest": "web"}) for arm in ("plain", "pageshare")]
    subject = "The migration of the web guest"
    names = wording.Names(
        [View(cell) for cell in cells], {"arm": "plain"}, {cell.id: subject for cell in cells}
    )
    place = names.place(cells[1])
    assert place.series == subject
    assert place.full == "arm pageshare"
