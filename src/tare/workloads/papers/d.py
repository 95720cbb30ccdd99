"""Paper D's savings, each with what this run's arms saved of the same kind."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean

from tare.published import papers
from tare.published.beside import Beside, Ours, measured, saved
from tare.workloads.findings import Findings, QuestionSeen, TrialSeen
from tare.workloads.migration.told import migrated

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


def beside(found: Findings) -> tuple[Beside, ...]:
    """Set the savings of paper D beside a run's; those of which it measured nothing stay out."""
    paper = papers()["D"]
    against_plain = [
        q
        for q in found.questions
        if q.cell.levels.get("arm") in _PROXIED and q.against.levels.get("arm") == "plain"
    ]
    wanted = [("micro-time", "time", _BEST), ("micro-network", "wire", _BEST)]
    wanted += [(f"time-{name}", "time", guest) for name, guest in _GUESTS.items()]
    wanted += [(f"network-{name}", "wire", guest) for name, guest in _GUESTS.items()]
    wanted += [("cpu-httperf", "cpu", "web")]
    rows = [
        Beside(
            paper.figure(figure),
            _WHAT[statistic],
            saved(
                (q.cell, q.others[statistic].promised.ratio)
                for q in against_plain
                if q.cell.levels.get("guest") == guest
            ),
        )
        for figure, statistic, guest in wanted
    ]
    rows.append(
        Beside(
            paper.figure("shared"),
            "pages of the stream that the destination had, zero pages not counted",
            _shared(against_plain, found.trials),
        )
    )
    return measured(rows)


def _shared(questions: Iterable[QuestionSeen], trials: Iterable[TrialSeen]) -> tuple[Ours, ...]:
    found = []
    for question in questions:
        if question.cell.levels.get("guest") not in _GUESTS.values():
            continue
        told = [migrated(t) for t in trials if t.cell == question.cell.id and t.status == "ok"]
        shares = [
            100 * one.proxies.send.pages_referenced / one.proxies.send.pages
            for one in told
            if one.proxies.send.pages and one.proxies.send.pages_referenced
        ]
        if shares:
            found.append(Ours(question.cell, mean(shares), min(shares), max(shares)))
    return tuple(found)
