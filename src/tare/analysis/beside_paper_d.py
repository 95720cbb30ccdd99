"""Paper D's savings, each with what this run's arms saved of the same kind."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from tare.analysis.beside import Beside, Ours
from tare.analysis.questions import Question
from tare.published import papers
from tare.record import Trial
from tare.stats import Interval

__all__ = ["beside_paper_d"]

_PROXIED = frozenset(
    {
        "references",
        "zstd",
        "pageshare",
        "all",
        "ksm",
        "base image",
        "return trip",
        "return by difference",
    }
)
_GUESTS = {"httperf": "web", "kernel": "compile", "memaslap": "memcached"}
"""The paper's workload -> the guest of ours that does the like."""
_BEST = "micro 82.8 %"
_WHAT = {
    "time": "migration time saved against plain pre-copy",
    "wire": "bytes saved on the wire against plain pre-copy, headers counted",
    "cpu": "processor time of migration threads and proxies saved; below 0 it is spent",
}


def beside_paper_d(questions: Iterable[Question], trials: Iterable[Trial]) -> tuple[Beside, ...]:
    """Set the savings of paper D beside this run's; those of which it measured nothing stay out."""
    paper = papers()["D"]
    against_plain = [
        q
        for q in questions
        if q.cell.levels.get("arm") in _PROXIED and q.against.levels.get("arm") == "plain"
    ]
    wanted = [("micro-time", "time", _BEST), ("micro-network", "wire", _BEST)]
    wanted += [(f"time-{name}", "time", guest) for name, guest in _GUESTS.items()]
    wanted += [(f"network-{name}", "wire", guest) for name, guest in _GUESTS.items()]
    wanted += [("cpu-httperf", "cpu", "web")]
    rows = [
        Beside(paper.figure(figure), _WHAT[statistic], _saved(against_plain, statistic, guest))
        for figure, statistic, guest in wanted
    ]
    rows.append(
        Beside(
            paper.figure("shared"),
            "pages of the stream that the destination had, zero pages not counted",
            _shared(against_plain, tuple(trials)),
        )
    )
    return tuple(row for row in rows if row.ours)


def _saved(questions: Iterable[Question], statistic: str, guest: str) -> tuple[Ours, ...]:
    found = (
        _percent_saved(q, q.others[statistic].ratio)
        for q in questions
        if q.cell.levels.get("guest") == guest
    )
    return tuple(ours for ours in found if ours is not None)


def _percent_saved(question: Question, ratio: Interval) -> Ours | None:
    if ratio.estimate is None:
        return None
    # The more it takes, the less it saves: the ends change places.
    ends = [None if end is None else 100 * (1 - end) for end in (ratio.high, ratio.low)]
    return Ours(question.cell, 100 * (1 - ratio.estimate), ends[0], ends[1])


def _shared(questions: Iterable[Question], trials: tuple[Trial, ...]) -> tuple[Ours, ...]:
    found = []
    for question in questions:
        if question.cell.levels.get("guest") not in _GUESTS.values():
            continue
        shares = [
            100 * record["pages_referenced"] / record["pages"]
            for trial in trials
            if trial.cell == question.cell.id and trial.status == "ok"
            for record in [trial.settings.whole.get("proxies", {}).get("send", {})]
            if record.get("pages") and record.get("pages_referenced")
        ]
        if shares:
            found.append(Ours(question.cell, mean(shares), min(shares), max(shares)))
    return tuple(found)
